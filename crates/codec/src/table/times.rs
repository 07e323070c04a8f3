//! The times in the cells of built-in types, according to the printers of the kube-apiserver.

use serde_json::Value;

use informerd_meta::{Gvr, Moment};

use super::path::Path;

/// Where the object holds the time of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// `metadata.creationTimestamp`.
    Creation,
    /// At a path of a printer column.
    At(Path),
    /// The start of a job, while it runs.
    JobStart,
    LastSchedule,
    /// When an event first occurred, and when it last occurred.
    FirstSeen,
    LastSeen,
    /// When a container of the pod last terminated. The cell also contains the number of restarts.
    LastRestart,
    TaintAdded,
    /// When a ResourcePoolStatusRequest was completed.
    Completed,
}

/// The state of such a time in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellTime {
    /// The cell shows how long ago this moment is.
    At(Moment),
    /// The object has no such time. The cell shows that, not a relative time.
    Nothing,
    /// The cell shows the duration of something that has ended.
    Over,
}

/// Columns of built-in types that never show a relative time, whatever their cells contain. The list covers versions
/// 1.30 to 1.37. For any other column, each cell is examined.
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

/// Whether no cell of this column of a built-in type shows a relative time.
pub(super) fn is_static(column: &str) -> bool {
    STATIC.contains(&column)
}

// === impl Time ===

impl Time {
    /// The time that a column of a built-in type shows.
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

    /// Whether the metadata alone is enough to find it.
    pub(super) fn is_of_metadata(&self) -> bool {
        *self == Self::Creation
    }

    /// The part of a cell that shows how long ago the moment is.
    pub(super) fn part<'a>(&self, cell: &'a str) -> Option<&'a str> {
        match self {
            Self::LastRestart => cell.split_once(" (")?.1.strip_suffix(" ago)"),
            _ => Some(cell),
        }
    }
}

fn moment(value: Option<&Value>) -> Option<Moment> {
    let text = value?.as_str()?;
    // Go writes a year after 9999, which RFC 3339 cannot express, with more digits. It lies ahead, whichever it is.
    let is_ahead = text.bytes().take_while(u8::is_ascii_digit).count() > 4;
    // And one before the year 0 with a sign.
    let moment = match text.as_bytes() {
        _ if is_ahead => Some(Moment::default().plus(i64::MAX)),
        [b'-', ..] => Some(Moment::default().plus(i64::MIN)),
        _ => Moment::parse(text),
    };
    moment.filter(|moment| !moment.is_zero())
}

/// Reads a field of an event that has a different name in each of the two API versions.
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

/// While a pod initializes, only its init containers count. Afterwards, its containers and its restartable init
/// containers count.
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
