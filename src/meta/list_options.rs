//! `metav1.ListOptions`: decoded from the query, defaulted and validated as the apiserver does it.

use super::{ContinueToken, Query, ResourceVersion, Status, StatusCause, errors, strconv};

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

/// The options of a list or watch as the request wrote them; selectors are not parsed here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub watch: bool,
    pub allow_watch_bookmarks: bool,
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or empty, once validated.
    pub resource_version_match: String,
    /// Seconds; 0 stands for the server's default, a negative value for a deadline already past.
    pub timeout_seconds: Option<i64>,
    /// Zero and below: no limit.
    pub limit: i64,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
    /// Behind an alpha gate of the apiserver (KEP-5866), which ignores it while the gate is off.
    pub shard_selector: String,
}

/// Which state of the collection a list asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRevision {
    /// resourceVersion unset: the most recent state.
    MostRecent,
    /// resourceVersion `0`: any state; the limit is ignored.
    Any,
    /// A state at this revision or later.
    NotOlderThan(ResourceVersion),
    /// The state at this revision, which the answer repeats as its own.
    Exact(ResourceVersion),
    /// The next page; a negative revision in the token means the most recent state.
    Continue(ContinueToken),
    /// Valid, but spelled so that the apiserver's branches disagree (`00`), or a token that starts at a key instead
    /// of after one: only the apiserver itself can answer.
    Unusual,
}

// === impl ListOptions ===

impl ListOptions {
    /// Decodes the raw query string of a list or watch. Unknown parameters are ignored, the first value of a
    /// repeated one counts.
    ///
    /// # Errors
    /// 400 with the text of the first number that does not parse. The apiserver reports these before it parses the
    /// selectors (label, then field), and all of them before [`Self::validate`].
    pub fn decode(query: &str) -> Result<Self, Box<Status>> {
        let query = Query::parse(query);
        let text = |name| query.text(name).unwrap_or_default().into_owned();
        let int = |name| query.bytes(name).map(strconv::parse_int).transpose().map_err(bad_request);
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

    /// The options of a get, which knows only `resourceVersion` and looks at nothing else, not even to refuse it.
    pub fn decode_get(query: &str) -> Self {
        let resource_version = Query::parse(query).text("resourceVersion").unwrap_or_default().into_owned();
        Self { resource_version, ..Self::default() }
    }

    /// A watch that asks for the state (resourceVersion unset or `0`) gets it as initial events, and the bookmark that
    /// ends them if it takes bookmarks (KEP-3157). To be applied before [`Self::validate`].
    pub fn set_defaults(&mut self) {
        let from_state = matches!(self.resource_version.as_str(), "" | "0");
        if self.watch && from_state && self.send_initial_events.is_none() && self.resource_version_match.is_empty() {
            self.send_initial_events = Some(true);
            self.resource_version_match = NOT_OLDER_THAN.into();
        }
    }

    /// Checks the combination of options by the rules of a watch if `watch` is set, else of a list.
    ///
    /// # Errors
    /// 422 with one cause per broken rule.
    pub fn validate(&self) -> Result<(), Box<Status>> {
        let mut causes = Vec::new();
        if self.watch {
            self.validate_watch(&mut causes);
        } else {
            self.validate_list(&mut causes);
        }
        if causes.is_empty() { Ok(()) } else { Err(Box::new(errors::invalid_list_options(causes))) }
    }

    /// The revision of a get or the start of a watch; zero if unset.
    ///
    /// # Errors
    /// 500 without a reason: the apiserver passes on an error that is no Status.
    pub fn revision(&self) -> Result<ResourceVersion, Box<Status>> {
        parse_revision(&self.resource_version).map_err(|error| Box::new(Status::failure(500, "", error)))
    }

    /// Which state a list of a collection asks for, by the rules of the storage. Of a list that can be of one object
    /// only (name and namespace known) the storage does not look at the token: what is said of it here does not apply.
    ///
    /// # Errors
    /// 400 for a token or a revision that does not parse, or both together; the token's error comes first.
    pub fn list_revision(&self) -> Result<ListRevision, Box<Status>> {
        let rv = self.resource_version.as_str();
        if !self.continue_token.is_empty() {
            let (token, after_a_key) = ContinueToken::decode_start(&self.continue_token)
                .map_err(|error| bad_request(format!("invalid continue token: {error}")))?;
            if !matches!(rv, "" | "0") {
                return Err(bad_request("specifying resource version is not allowed when using continue"));
            }
            return Ok(if after_a_key { ListRevision::Continue(token) } else { ListRevision::Unusual });
        }
        let revision = parse_revision(rv).map_err(|error| bad_request(format!("invalid resource version: {error}")))?;
        Ok(match (rv, self.resource_version_match.as_str()) {
            ("", _) => ListRevision::MostRecent,
            ("0", _) => ListRevision::Any,
            _ if revision.is_zero() => ListRevision::Unusual,
            (_, EXACT) => ListRevision::Exact(revision),
            (_, "") if self.limit > 0 => ListRevision::Exact(revision),
            _ => ListRevision::NotOlderThan(revision),
        })
    }

    fn validate_list(&self, causes: &mut Vec<StatusCause>) {
        let rv_match = self.resource_version_match.as_str();
        if !rv_match.is_empty() {
            if self.resource_version.is_empty() {
                causes.push(match_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.continue_token.is_empty() {
                causes.push(match_forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(rv_match, EXACT | NOT_OLDER_THAN) {
                causes.push(match_not_supported(rv_match, r#""Exact", "NotOlderThan", """#));
            }
            if rv_match == EXACT && self.resource_version == "0" {
                causes.push(match_forbidden(r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#));
            }
        }
        if self.send_initial_events.is_some() {
            causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
    }

    fn validate_watch(&self, causes: &mut Vec<StatusCause>) {
        let rv_match = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && rv_match != NOT_OLDER_THAN {
            causes.push(match_forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !rv_match.is_empty() {
            if self.send_initial_events.is_none() {
                causes.push(match_forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if rv_match != NOT_OLDER_THAN {
                causes.push(match_not_supported(rv_match, r#""NotOlderThan""#));
            }
            if !self.continue_token.is_empty() {
                causes.push(match_forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
    }
}

/// `""` and `"0"` are zero; leading zeros are allowed, a sign is not.
fn parse_revision(text: &str) -> Result<ResourceVersion, String> {
    if text.is_empty() {
        return Ok(ResourceVersion::ZERO);
    }
    strconv::parse_uint(text.as_bytes())
        .map(ResourceVersion)
        .map_err(|error| format!("resourceVersion: Invalid value: {}: {error}", strconv::quote(text.as_bytes())))
}

fn bad_request(message: impl Into<String>) -> Box<Status> {
    Box::new(errors::bad_request(message))
}

fn match_forbidden(detail: &str) -> StatusCause {
    forbidden("resourceVersionMatch", detail)
}

fn forbidden(field: &str, detail: &str) -> StatusCause {
    StatusCause { reason: "FieldValueForbidden".into(), message: format!("Forbidden: {detail}"), field: field.into() }
}

fn match_not_supported(value: &str, supported: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueNotSupported".into(),
        message: format!("Unsupported value: {}: supported values: {supported}", strconv::json_quote(value)),
        field: "resourceVersionMatch".into(),
    }
}

#[cfg(test)]
#[path = "list_options_tests.rs"]
mod tests;
