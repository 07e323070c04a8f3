//! The claims of a JWT. No signature is checked here: a claim counts for something only where the apiserver has accepted the
//! token.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;

pub(super) fn claims<T: DeserializeOwned>(token: &str) -> Option<T> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// The present time by this machine's clock, in seconds since 1970, as claims have it.
pub(super) fn now() -> Option<f64> {
    Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}
