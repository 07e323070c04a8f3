//! A CertificateSigningRequest of the apiserver.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec as Spec;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::AuthorityError;
use super::members::Members;

/// The most characters of a condition's message. It may quote what the client has written.
const LONGEST_MESSAGE: usize = 1000;

/// A request that can be changed and written back.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: Head,
    /// As it is written back.
    pub(super) object: Members,
}

/// What a list needs to know of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) metadata: Meta,
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    certificate: Option<String>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

// === impl Request ===

impl Request {
    /// # Errors
    /// This is no request.
    pub(super) fn new(object: Members) -> Result<Self, AuthorityError> {
        let (metadata, status) = (object.read("metadata"), object.read("status"));
        let error = |error: serde_json::Error| content(&error.to_string());
        let head = Head { metadata: metadata.map_err(error)?, status: status.map_err(error)? };
        Ok(Self { head, object: object.without_managed_fields() })
    }

    pub(super) fn spec(&self) -> serde_json::Result<Spec> {
        self.object.read("spec")
    }

    pub(super) fn add_condition(&mut self, kind: &str, reason: &str, message: &str) -> Result<(), AuthorityError> {
        let message: String = message.chars().take(LONGEST_MESSAGE).collect();
        let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
        self.change(|status| {
            let mut conditions: Vec<Box<RawValue>> = status.get("conditions");
            conditions.push(serde_json::value::to_raw_value(&condition)?);
            status.set("conditions", &conditions)
        })
    }

    pub(super) fn set_certificate(&mut self, chain: &str) -> Result<(), AuthorityError> {
        self.change(|status| status.set("certificate", &STANDARD.encode(chain)))
    }

    fn change(&mut self, how: impl FnOnce(&mut Members) -> serde_json::Result<()>) -> Result<(), AuthorityError> {
        let mut status: Members = self.object.get("status");
        let changed = how(&mut status).and_then(|()| self.object.set("status", &status));
        changed.map_err(|error| content(&error.to_string()))
    }
}

// === impl Head ===

impl Head {
    /// Whether nobody has decided it yet.
    pub(super) fn waits(&self) -> bool {
        self.certificate().is_none() && !self.has("Denied") && !self.has("Failed")
    }

    /// The certificate, in Base64 of PEM.
    pub(super) fn certificate(&self) -> Option<&str> {
        self.status.as_ref()?.certificate.as_deref().filter(|certificate| !certificate.is_empty())
    }

    /// Whether it has a condition.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.message(kind).is_some()
    }

    /// The message of a condition.
    pub(super) fn message(&self, kind: &str) -> Option<&str> {
        let conditions = self.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.kind == kind).map(|condition| &*condition.message)
    }
}

fn content(message: &str) -> AuthorityError {
    AuthorityError::Content { what: "CertificateSigningRequest".to_owned(), message: message.to_owned() }
}
