//! Header lines, apart by line breaks, and a certificate.

use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue};
use informerd::auth::{bearer_token, certificate_user};

pub fn check(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for (n, line) in data.split(|byte| *byte == b'\n').take(8).enumerate() {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(if n % 2 == 0 { AUTHORIZATION } else { SEC_WEBSOCKET_PROTOCOL }, value);
        }
    }
    let first = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    if let Some(token) = bearer_token(&headers) {
        assert!(!token.is_empty());
        if first.trim().to_ascii_lowercase().starts_with("bearer ") && first.contains(&*token) {
            assert!(!token.contains(' '), "{token:?} of {first:?}");
        }
    }
    if let Ok(user) = certificate_user(data) {
        assert!(!user.username.is_empty());
        assert!(user.groups.iter().any(|group| group.starts_with("system:")));
    }
}
