//! The query of a read, decoded as in the apiserver. Options that cannot be combined are not refused.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::write::bad_request;
use crate::types::{Status, StatusDetails};

#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub label_selector: String,
    pub field_selector: String,
    pub watch: bool,
    pub bookmarks: bool,
    pub rv: String,
    pub rv_match: String,
    pub timeout: Option<i64>,
    pub limit: i64,
    pub continue_token: String,
    pub initial_events: Option<bool>,
    pub include_object: String,
}

// === impl Options ===

impl Options {
    pub(super) fn decode(query: &str) -> Result<Self, Box<Status>> {
        let pairs = pairs(query);
        let first = |name: &str| pairs.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
        let text = |name: &str| first(name).unwrap_or_default().to_owned();
        let flag = |name: &str| first(name).map(|value| !matches!(value.to_lowercase().as_str(), "0" | "false"));
        let number = |name: &str| {
            let bad = |value| bad_request(&format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"));
            first(name).map(|value| value.parse::<i64>().map_err(|_| bad(value))).transpose()
        };
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            watch: flag("watch").unwrap_or(false),
            bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            rv: text("resourceVersion"),
            rv_match: text("resourceVersionMatch"),
            timeout: number("timeoutSeconds")?,
            limit: number("limit")?.unwrap_or(0),
            continue_token: text("continue"),
            initial_events: flag("sendInitialEvents"),
            include_object: text("includeObject"),
        })
    }

    /// A watch without a start revision gets the state first.
    pub(super) fn set_defaults(&mut self) {
        if self.initial_events.is_none() && self.rv_match.is_empty() && self.watch && matches!(&*self.rv, "" | "0") {
            self.initial_events = Some(true);
            self.rv_match = "NotOlderThan".into();
        }
    }

    /// `""` and `"0"` are both zero. The error is a message: a list sends it with 400, all other requests with 500.
    pub(super) fn revision(&self) -> Result<u64, String> {
        if self.rv.is_empty() {
            return Ok(0);
        }
        let digits = self.rv.bytes().all(|b| b.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        let parsed = if digits { self.rv.parse().ok() } else { None };
        parsed.ok_or_else(|| {
            format!("resourceVersion: Invalid value: {0:?}: strconv.ParseUint: parsing {0:?}: {why}", self.rv)
        })
    }
}

/// The response of a server that does not support initial events.
pub(super) fn watch_list_refused() -> Box<Status> {
    let text = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: {text}");
    let (group, kind) = ("meta.k8s.io".into(), "ListOptions".into());
    let details = StatusDetails { group, kind, ..Default::default() };
    Box::new(Status::failure(422, "Invalid", message).with_details(details))
}

pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// A continue token: the revision of the list (-1: the most recent one) and the key after which to continue.
pub(super) fn encode_token(rv: i64, after: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"/{after}\u0000"}}"#))
}

pub(super) fn decode_token(token: &str) -> Result<(i64, String), Box<Status>> {
    let decoded = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let parts = decoded.as_ref().and_then(|value| Some((value["rv"].as_i64()?, value["start"].as_str()?)));
    let (rv, start) = parts.ok_or_else(|| bad_request("invalid continue token: continue key is not valid"))?;
    Ok((rv, start.trim_start_matches('/').trim_end_matches('\0').to_owned()))
}
