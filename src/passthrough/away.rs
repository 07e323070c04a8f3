//! What is said while the apiserver does not answer: what it said before, with its age, and never as if it were new.

use std::time::Duration;

use http::HeaderValue;
use http::header::{HeaderMap, WARNING};

use super::ForwardError;

/// A stale answer, as RFC 7234 numbers it (section 5.5.1), and the only number whose text kubectl prints.
const CODES: [u16; 2] = [110, 299];

// === impl ForwardError ===

impl ForwardError {
    /// Whether the apiserver did not answer. It has refused nothing then, and neither has the daemon.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. } | Self::Timeout { .. })
    }
}

/// Adds the `Warning` headers of an answer that was true this long ago.
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
