//! Answers while the apiserver does not answer: an earlier answer with its age, always marked as stale.

use std::time::Duration;

use http::HeaderValue;
use http::header::{HeaderMap, WARNING};

use super::ForwardError;

/// 110 is the code for a stale answer in RFC 7234 (section 5.5.1). 299 is the only code whose text kubectl prints.
const CODES: [u16; 2] = [110, 299];

// === impl ForwardError ===

impl ForwardError {
    /// Whether the apiserver gave no answer. Then neither the apiserver nor the daemon has refused anything.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. } | Self::Timeout { .. })
    }
}

/// Adds the `Warning` headers to an answer that was current this long ago.
pub(crate) fn warn(headers: &mut HeaderMap, age: Duration) {
    for code in CODES {
        let text = format!(
            "{code} - \"informerd: the kube-apiserver does not answer, this is what it said {} s ago\"",
            age.as_secs()
        );
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_refusal() {
        let at = || "https://10.0.0.1:6443".to_owned();
        for (error, silent) in [
            (ForwardError::Unreachable { authority: at(), error: String::new() }, true),
            (ForwardError::Broken { authority: at(), error: String::new() }, true),
            (ForwardError::Timeout { authority: at() }, true),
            (ForwardError::Busy { authority: at() }, false),
            (ForwardError::Memory { authority: at() }, false),
            (ForwardError::NoCredentials, false),
            (ForwardError::NotLent("a write"), false),
            (ForwardError::BadRequest("no path"), false),
        ] {
            assert_eq!(error.is_silence(), silent, "{error}");
        }
    }

    #[test]
    fn both_warnings_tell_the_age() {
        let mut headers = HeaderMap::new();
        warn(&mut headers, Duration::from_millis(42_900));
        let said: Vec<_> = headers.get_all(WARNING).iter().map(|value| value.to_str().unwrap()).collect();
        let text = "\"informerd: the kube-apiserver does not answer, this is what it said 42 s ago\"";
        assert_eq!(said, [format!("110 - {text}"), format!("299 - {text}")]);
    }
}
