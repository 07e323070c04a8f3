//! `metav1.ListOptions`: decoded from the query, defaulted and validated as in the apiserver.

use super::{ContinueToken, Invalid, Query, ResourceVersion, strconv};

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

/// The options of a list or watch as written in the request. Selectors are not parsed here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub watch: bool,
    pub allow_watch_bookmarks: bool,
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or empty, after validation.
    pub resource_version_match: String,
    /// In seconds. 0 means the server's default. A negative value means a deadline that has already passed.
    pub timeout_seconds: Option<i64>,
    /// Zero or negative: no limit.
    pub limit: i64,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
    /// Behind an alpha feature gate of the apiserver (KEP-5866). The apiserver ignores it while the gate is off.
    pub shard_selector: String,
}

/// The state of the collection that a list requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRevision {
    /// resourceVersion unset: the most recent state.
    MostRecent,
    /// resourceVersion `0`: any state; the limit is ignored.
    Any,
    /// A state at this revision or later.
    NotOlderThan(ResourceVersion),
    /// The state at this revision. The response has the same revision.
    Exact(ResourceVersion),
    /// The next page. A negative revision in the token means the most recent state.
    Continue(ContinueToken),
    /// Valid, but in a spelling that the apiserver's code paths interpret differently (`00`). Only the apiserver can
    /// answer it.
    Unusual,
}

// === impl ListOptions ===

impl ListOptions {
    /// Decodes the raw query string of a list or watch. Unknown parameters are ignored. If a parameter occurs more
    /// than once, its first value counts.
    ///
    /// # Errors
    /// A number cannot be parsed.
    pub fn decode(query: &str) -> Result<Self, Invalid> {
        let query = Query::parse(query);
        let text = |name| query.text(name).unwrap_or_default().into_owned();
        let int = |name| query.bytes(name).map(|text| strconv::parse_int(text).ok_or(Invalid)).transpose();
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            watch: query.bool("watch").unwrap_or(false),
            allow_watch_bookmarks: query.bool("allowWatchBookmarks").unwrap_or(false),
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            timeout_seconds: int("timeoutSeconds")?,
            limit: int("limit")?.unwrap_or(0),
            continue_token: text("continue"),
            send_initial_events: query.bool("sendInitialEvents"),
            shard_selector: text("shardSelector"),
        })
    }

    /// Decodes the options of a get. A get has only `resourceVersion`; all other parameters are ignored, even invalid
    /// ones.
    pub fn decode_get(query: &str) -> Self {
        let resource_version = Query::parse(query).text("resourceVersion").unwrap_or_default().into_owned();
        Self { resource_version, ..Self::default() }
    }

    /// Applies the defaults. A watch that requests the state (resourceVersion unset or `0`) gets it as initial
    /// events. They end with a bookmark if the watch allows bookmarks (KEP-3157). Call this before
    /// [`Self::validate`].
    pub fn set_defaults(&mut self) {
        let from_state = matches!(self.resource_version.as_str(), "" | "0");
        if self.watch && from_state && self.send_initial_events.is_none() && self.resource_version_match.is_empty() {
            self.send_initial_events = Some(true);
            self.resource_version_match = NOT_OLDER_THAN.into();
        }
    }

    /// Checks the combination of options: by the rules of a watch if `watch` is set, otherwise by those of a list.
    ///
    /// # Errors
    /// The apiserver answers with 422.
    pub fn validate(&self) -> Result<(), Invalid> {
        let is_valid = if self.watch { self.is_valid_watch() } else { self.is_valid_list() };
        if is_valid { Ok(()) } else { Err(Invalid) }
    }

    /// The state that a list of a collection requests, by the rules of the storage. For a list of a single object
    /// (name and namespace known) the storage ignores the continue token, so the token rules here do not apply to it.
    ///
    /// # Errors
    /// A token or a revision cannot be parsed, or both are present.
    pub fn list_revision(&self) -> Result<ListRevision, Invalid> {
        let rv = self.resource_version.as_str();
        if !self.continue_token.is_empty() {
            let token = ContinueToken::decode(&self.continue_token)?;
            return if matches!(rv, "" | "0") { Ok(ListRevision::Continue(token)) } else { Err(Invalid) };
        }
        // Leading zeros are allowed. A sign is not.
        let revision = if rv.is_empty() { 0 } else { strconv::parse_uint(rv).ok_or(Invalid)? };
        let revision = ResourceVersion(revision);
        Ok(match (rv, self.resource_version_match.as_str()) {
            ("", _) => ListRevision::MostRecent,
            ("0", _) => ListRevision::Any,
            _ if revision.is_zero() => ListRevision::Unusual,
            (_, EXACT) => ListRevision::Exact(revision),
            (_, "") if self.limit > 0 => ListRevision::Exact(revision),
            _ => ListRevision::NotOlderThan(revision),
        })
    }

    fn is_valid_list(&self) -> bool {
        let matches = match self.resource_version_match.as_str() {
            "" => true,
            EXACT => !matches!(self.resource_version.as_str(), "" | "0"),
            NOT_OLDER_THAN => !self.resource_version.is_empty(),
            _ => false,
        };
        let one_state = self.resource_version_match.is_empty() || self.continue_token.is_empty();
        matches && one_state && self.send_initial_events.is_none()
    }

    fn is_valid_watch(&self) -> bool {
        match (self.resource_version_match.as_str(), self.send_initial_events) {
            ("", None) => true,
            (NOT_OLDER_THAN, Some(_)) => self.continue_token.is_empty(),
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "list_options_tests.rs"]
mod tests;
