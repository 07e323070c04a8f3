//! Which moments the cells of built-in types tell, by the printers of the kube-apiserver.

use serde_json::Value;

use crate::meta::{Gvr, Moment};

use super::path::Path;

/// Where a cell's moment stands in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// `metadata.creationTimestamp`.
    Creation,
    /// At a path of a definition.
    At(Path),
    /// A job's start, as long as it runs.
    JobStart,
    LastSchedule,
    /// When an event happened first, and last.
    FirstSeen,
    LastSeen,
    /// When a pod's containers last ended; the cell counts the restarts besides.
    LastRestart,
    TaintAdded,
    /// When a ResourcePoolStatusRequest was completed.
    Completed,
}

/// What an object says of such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellTime {
    /// The cell says how long ago this is.
    At(Moment),
    /// It has none: the cell says so, and not how long ago something is.
    Nothing,
    /// The cell says how long something took that is over.
    Over,
}

/// Columns of built-in types that tell no time relative to now, whatever their cells hold. Names of 1.30 to 1.37; what
/// is none of them is looked at cell by cell.
const STATIC: &[&str] = &[
    "Access Modes",
    "Active",
    "AddressType",
    "Allocated",
    "AllowVolumeExpansion",
    "Allowed Disruptions",
    "AttachRequired",
    "Attached",
    "Attacher",
    "Available",
    "BinaryVersion",
    "Bindings",
    "CIDRs",
    "Capacity",
    "Claim",
    "Class",
    "Cluster-IP",
    "CommonEncodingVersion",
    "Completions",
    "Condition",
    "Container-Runtime",
    "Containers",
    "Controller",
    "Count",
    "Created At",
    "Current",
    "Data",
    "Desired",
    "DistinguisherMethod",
    "Driver",
    "DriverName",
    "Drivers",
    "Effect",
    "EmulationVersion",
    "Endpoints",
    "Error",
    "Errors",
    "External-IP",
    "FsGroupPolicy",
    "Global-Default",
    "Groups",
    "HandSize",
    "Handler",
    "Holder",
    "Hosts",
    "IP",
    "Images",
    "Internal-IP",
    "Kernel-Version",
    "Key",
    "Labels",
    "LeaseName",
    "Limit",
    "MatchingPrecedence",
    "Max Unavailable",
    "MaxPods",
    "Message",
    "Min Available",
    "MinPods",
    "MissingPL",
    "Modes",
    "Mutations",
    "Name",
    "Node",
    "Node Selector",
    "NodeName",
    "NominalConcurrencyShares",
    "Nominated Node",
    "OS-Image",
    "Object",
    "PV",
    "ParamKind",
    "ParamRef",
    "Parameters",
    "ParentRef",
    "Pod Labels",
    "Pod-Selector",
    "PodInfoOnMount",
    "PodName",
    "Policy",
    "PolicyName",
    "Pool",
    "Pools",
    "Port(s)",
    "Ports",
    "PreemptionPolicy",
    "PriorityLevel",
    "Provisioner",
    "QueueLengthLimit",
    "Queues",
    "Readiness Gates",
    "Ready",
    "Reason",
    "Reclaim Policy",
    "ReclaimPolicy",
    "Reference",
    "Replicas",
    "Request",
    "RequestedDuration",
    "Requestor",
    "RequiresRepublish",
    "Resource",
    "Revision",
    "Role",
    "Roles",
    "Schedule",
    "Selector",
    "ServiceAccountName",
    "ServiceAccounts",
    "SignerName",
    "Source",
    "State",
    "Status",
    "StorageCapacity",
    "StorageClass",
    "StorageClassName",
    "StorageVersions",
    "Subobject",
    "Suspend",
    "Targets",
    "Timezone",
    "TokenRequests",
    "Total",
    "Type",
    "Unavailable",
    "UnverifiedUserAnnotations",
    "Up-to-date",
    "Users",
    "Validations",
    "Value",
    "Verbs",
    "Version",
    "Volume",
    "VolumeAttributesClass",
    "VolumeBindingMode",
    "VolumeMode",
    "Webhooks",
    "Workload",
];

/// Whether no cell of this column of a built-in type tells a time relative to now.
pub(super) fn is_static(column: &str) -> bool {
    STATIC.contains(&column)
}

// === impl Time ===

impl Time {
    /// The time that a column of a built-in type tells.
    pub(super) fn of(gvr: &Gvr, column: &str) -> Option<Self> {
        Some(match (&*gvr.group, &*gvr.resource, column) {
            ("" | "events.k8s.io", "events", "Last Seen") => Self::LastSeen,
            ("" | "events.k8s.io", "events", "First Seen") => Self::FirstSeen,
            ("", "pods", "Restarts") => Self::LastRestart,
            ("batch", "jobs", "Duration") => Self::JobStart,
            ("batch", "cronjobs", "Last Schedule") => Self::LastSchedule,
            ("resource.k8s.io", "devicetaintrules", "TimeAdded") => Self::TaintAdded,
            ("resource.k8s.io", "resourcepoolstatusrequests", "Completed") => Self::Completed,
            (_, _, "Age") => Self::Creation,
            _ => return None,
        })
    }

    pub(super) fn find(&self, object: &Value) -> CellTime {
        let is_over = |time: &Value| !time.is_null();
        if *self == Self::JobStart && object.pointer("/status/completionTime").is_some_and(is_over) {
            return CellTime::Over;
        }
        self.moment(object).map_or(CellTime::Nothing, CellTime::At)
    }

    fn moment(&self, object: &Value) -> Option<Moment> {
        match self {
            Self::Creation => moment(object.pointer("/metadata/creationTimestamp")),
            Self::At(path) => moment(path.first(object)),
            Self::JobStart => moment(object.pointer("/status/startTime")),
            Self::LastSchedule => moment(object.pointer("/status/lastScheduleTime")),
            Self::FirstSeen => first_seen(object),
            Self::LastSeen => last_seen(object),
            Self::LastRestart => last_restart(object),
            Self::TaintAdded => moment(object.pointer("/spec/taint/timeAdded")),
            Self::Completed => completed(object),
        }
    }

    /// Whether the metadata alone tells it.
    pub(super) fn is_of_metadata(&self) -> bool {
        *self == Self::Creation
    }

    /// The part of a cell that says how long ago the moment is.
    pub(super) fn part<'a>(&self, cell: &'a str) -> Option<&'a str> {
        match self {
            Self::LastRestart => cell.split_once(" (")?.1.strip_suffix(" ago)"),
            _ => Some(cell),
        }
    }
}

fn moment(value: Option<&Value>) -> Option<Moment> {
    value.and_then(Value::as_str).and_then(Moment::parse).filter(|moment| !moment.is_zero())
}

/// Either of the names that the two versions of the type have for a field.
fn event_time(event: &Value, core: &str, events: &str) -> Option<Moment> {
    moment(event.get(core)).or_else(|| moment(event.get(events)))
}

fn first_seen(event: &Value) -> Option<Moment> {
    event_time(event, "firstTimestamp", "deprecatedFirstTimestamp").or_else(|| moment(event.get("eventTime")))
}

fn last_seen(event: &Value) -> Option<Moment> {
    match event.get("series") {
        Some(series) if !series.is_null() => moment(series.get("lastObservedTime")),
        _ => event_time(event, "lastTimestamp", "deprecatedLastTimestamp").or_else(|| first_seen(event)),
    }
}

fn completed(request: &Value) -> Option<Moment> {
    let conditions = array(request, "/status/conditions");
    let is = |condition: &&Value, of: &str| condition["type"] == of && condition["status"] == "True";
    let decides = |condition: &&Value| is(condition, "Complete") || is(condition, "Failed");
    let first = conditions.iter().find(decides).filter(|condition| is(condition, "Complete"));
    first.and_then(|condition| moment(condition.get("lastTransitionTime")))
}

/// While a pod initializes, the containers that do so count; then those that run, init containers that go on running
/// among them.
fn last_restart(pod: &Value) -> Option<Moment> {
    let init = array(pod, "/spec/initContainers");
    let stays = |status: &Value| {
        init.iter().any(|container| container["name"] == status["name"] && container["restartPolicy"] == "Always")
    };
    let (mut initializing, mut last, mut last_of_those_that_stay) = (false, None, None);
    for status in array(pod, "/status/initContainerStatuses") {
        last = last.max(ended(status));
        if stays(status) {
            last_of_those_that_stay = last_of_those_that_stay.max(ended(status));
        }
        let terminated = &status["state"]["terminated"];
        let is_done = !terminated.is_null() && terminated["exitCode"].as_i64().unwrap_or(0) == 0;
        if !(is_done || stays(status) && status["started"] == true) {
            initializing = true;
            break;
        }
    }
    let initialized = |condition: &Value| condition["type"] == "Initialized" && condition["status"] == "True";
    if !initializing || array(pod, "/status/conditions").iter().any(initialized) {
        last = array(pod, "/status/containerStatuses").iter().map(ended).fold(last_of_those_that_stay, Option::max);
    }
    last
}

fn ended(status: &Value) -> Option<Moment> {
    moment(status.pointer("/lastState/terminated/finishedAt"))
}

fn array<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
#[path = "times_tests.rs"]
mod tests;
