//! `metav1.Status`, written in the apiserver's member order.

use serde::{Deserialize, Serialize};

/// An API error (or success) in the apiserver's wording. It is serialized as compact JSON, in the apiserver's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(default)]
    pub metadata: StatusMetadata,
    #[serde(default)]
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    #[serde(default)]
    pub code: u16,
}

/// The ListMeta of a Status. Only an expired continue token sets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusMetadata {
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// For errors about a resource: its plural name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

// === impl Status ===

impl Status {
    /// A failure with a code, a reason of `metav1.StatusReason` ("" to omit it) and a message.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            metadata: StatusMetadata::default(),
            status: "Failure".into(),
            message: message.into(),
            reason: reason.into(),
            details: None,
            code,
        }
    }

    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// Sets `details.retryAfterSeconds`. The HTTP server also sends it as `Retry-After`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn retry_after_seconds(&self) -> u32 {
        self.details.as_ref().map_or(0, |details| details.retry_after_seconds)
    }

    /// Compact JSON with `kind` and `apiVersion` first, without a trailing newline. HTML characters and line
    /// separators are escaped as in Go. They can occur only inside strings.
    pub fn to_json(&self) -> String {
        let mut body = serde_json::to_string(self).unwrap_or_else(|_| "{}".into());
        for (plain, escaped) in
            [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")]
        {
            if body.contains(plain) {
                body = body.replace(plain, escaped);
            }
        }
        format!(r#"{{"kind":"Status","apiVersion":"v1",{}"#, body.strip_prefix('{').unwrap_or("}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn escapes_what_go_escapes() {
        let status = Status::failure(400, "BadRequest", "<nil>: a&b\u{2028}é");
        assert!(status.to_json().contains(r#""message":"\u003cnil\u003e: a\u0026b\u2028é""#), "{}", status.to_json());
        assert_eq!(serde_json::from_str::<Status>(&status.to_json()).unwrap(), status);
    }
}
