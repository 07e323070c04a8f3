//! `audit.k8s.io/v1` Event, level Metadata, in the apiserver's order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;

use super::policy::Stage;
use crate::auth::attributes::Attributes;
use crate::auth::user::UserInfo;
use crate::meta::Status;

const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// Nobody confirmed the decision when it was used: the apiserver was away.
const KEPT: &str = "informerd.io/decision-kept";

/// One request, as it is logged.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub audit_id: String,
    /// The request URI as the client sent it.
    pub uri: String,
    pub attributes: &'a Attributes,
    /// `None`: the client was not authenticated.
    pub user: Option<&'a UserInfo>,
    /// The impersonated user, if any.
    pub impersonated: Option<&'a UserInfo>,
    pub source: Option<IpAddr>,
    /// By [`super::user_agent`].
    pub user_agent: String,
    /// Whether it is allowed by a decision that was kept because the apiserver is away.
    pub is_kept: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<UserInfo>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    request_received_timestamp: String,
    stage_timestamp: String,
    annotations: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ResponseStatus {
    metadata: BTreeMap<(), ()>,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    code: u16,
}

// === impl Event ===

impl Event {
    pub(super) fn new(request: &Request<'_>, user: &UserInfo) -> Self {
        let now = now();
        let mut annotations = BTreeMap::from([(DECISION, "allow"), (REASON, "")]);
        if request.is_kept {
            annotations.insert(KEPT, "true");
        }
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: request.audit_id.clone(),
            stage: Stage::RequestReceived,
            request_uri: request.uri.clone(),
            verb: request.attributes.verb.clone(),
            user: user.clone(),
            impersonated_user: request.impersonated.cloned(),
            source_ips: request.source.map(|ip| ip.to_canonical().to_string()).into_iter().collect(),
            user_agent: request.user_agent.clone(),
            object_ref: request.attributes.path.is_none().then(|| ObjectReference::of(request.attributes)),
            response_status: None,
            request_received_timestamp: now.clone(),
            stage_timestamp: now,
            annotations,
        }
    }

    pub(super) fn forbid(&mut self) {
        self.annotations.insert(DECISION, "forbid");
    }

    pub(super) fn at(&mut self, stage: Stage) {
        self.stage = stage;
        self.stage_timestamp = now();
    }
}

// === impl ObjectReference ===

impl ObjectReference {
    fn of(attributes: &Attributes) -> Self {
        Self {
            resource: attributes.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            api_group: attributes.group.clone(),
            api_version: attributes.version.clone(),
            subresource: attributes.subresource.clone(),
        }
    }
}

// === impl ResponseStatus ===

impl ResponseStatus {
    pub(super) fn ok(code: u16) -> Self {
        Self { metadata: BTreeMap::new(), status: String::new(), message: String::new(), reason: String::new(), code }
    }

    pub(super) fn of(status: &Status) -> Self {
        Self {
            metadata: BTreeMap::new(),
            status: status.status.clone(),
            message: status.message.clone(),
            reason: status.reason.clone(),
            code: status.code,
        }
    }
}

/// The current time with microseconds, as in `metav1.MicroTime`.
fn now() -> String {
    format!("{:.6}", Timestamp::now())
}
