//! AdmissionReviews (`admission.k8s.io/v1`), as the apiserver sends and expects them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Meta;

const API_VERSION: &str = "admission.k8s.io/v1";
/// The apiserver cuts longer texts.
const LONGEST_WARNING: usize = 256;
const MOST_WARNINGS: usize = 8;

/// What the apiserver asks.
#[derive(Debug)]
pub struct Review<'a> {
    pub uid: String,
    pub namespace: String,
    pub dry_run: bool,
    /// The pod that is created, and its metadata. `None` if something else is reviewed.
    pub pod: Option<(Meta, &'a RawValue)>,
}

/// What the apiserver is told. Every request is allowed.
#[derive(Debug, Default)]
pub struct Answer {
    pub patch: Vec<Value>,
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("this is no AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error("this is {kind:?} of {version:?}, and no AdmissionReview of {API_VERSION} with a request")]
    Kind { kind: String, version: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    kind: Kind,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Meta,
}

// === impl Review ===

impl<'a> Review<'a> {
    /// # Errors
    /// This is no AdmissionReview.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        let Envelope { api_version, kind, request } = serde_json::from_slice(body)?;
        let Some(request) = request.filter(|_| kind == "AdmissionReview" && api_version == API_VERSION) else {
            return Err(ReviewError::Kind { kind, version: api_version });
        };
        let Kind { group, version, kind } = &request.kind;
        let creates = request.operation == "CREATE" && request.sub_resource.is_empty();
        let is_pod = creates && group.is_empty() && version == "v1" && kind == "Pod";
        let pod = match request.object.filter(|_| is_pod) {
            Some(object) => Some((serde_json::from_str::<Object>(object.get())?.metadata, object)),
            None => None,
        };
        let dry_run = request.dry_run.unwrap_or_default();
        Ok(Self { uid: request.uid, namespace: request.namespace, dry_run, pod })
    }
}

// === impl Answer ===

impl Answer {
    pub fn warning(text: String) -> Self {
        Self { patch: Vec::new(), warnings: vec![text] }
    }

    /// The AdmissionReview with the response to the request of this uid.
    pub fn render(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": true});
        if !self.patch.is_empty() {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(Value::Array(self.patch.clone()).to_string()).into();
        }
        if !self.warnings.is_empty() {
            let warnings = self.warnings.iter().take(MOST_WARNINGS);
            response["warnings"] = warnings.map(|text| Value::from(one_line(&format!("informerd: {text}")))).collect();
        }
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
    }
}

fn one_line(text: &str) -> String {
    visible(text).take(LONGEST_WARNING).collect()
}

/// A text without what a terminal obeys.
pub(super) fn visible(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| if c.is_control() { ' ' } else { c })
}
