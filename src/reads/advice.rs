//! Explains why a read is forwarded and what can be done about it, for the operators of the daemon.
//! docs/compatibility.md contains the same texts; `tests/rules/docs.rs` checks that they match.

use super::ForwardReason;

// === impl ForwardReason ===

impl ForwardReason {
    /// The property of the read, the resource or the cache that causes it.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Consistent => {
                "it asks for the newest state, and `consistentReads` leaves such a read to the apiserver"
            }
            Self::OutsideWindow => "it asks for a revision that is not, or no longer, in the window",
            Self::Invalid => "the apiserver refuses its path, options or selectors",
            Self::Encoding => "no cache holds a form that the client accepts",
            Self::NotReadable => "discovery does not know the resource, or it has no list and watch",
            Self::Aggregated => {
                "an aggregated API server serves the resource, or may do so because the APIServices cannot be read: its answers may depend on who asks"
            }
            Self::Excluded => {
                "the resource is not cached: Secrets are excluded by default, others by a rule in `resources`"
            }
            Self::OutOfScope => "the rule of the resource caches less than it asks for",
            Self::TooManyInformers => "as many informers run as `limits.maxInformers` allows",
            Self::Forbidden => "the daemon's own identity may not list and watch the resource",
            Self::Memory => "the resource does not fit into the memory of the caches",
            Self::Undecodable => "an object of the resource cannot be decoded, so it is not cached for now",
            Self::Seldom => {
                "the resource is rarely read in this form (tables, protobuf), or only a small part of it is read, or following it has cost more than its reads, so it has no informer yet"
            }
            Self::TableCells => "it is a table, and informerd does not know the format of a time in it",
            Self::Unversioned => "its API server sends no `resourceVersion`, or one that is not a number",
            Self::NotSynced => {
                "the informer of the resource has not received its first list yet, or the server of the resource is not known"
            }
            Self::NotFresh => "the cache was not proved to be fresh enough in time",
            Self::Unsupported => {
                "it uses what informerd does not evaluate: impersonation on an unauthenticated listener, an upgrade, or an unusual parameter"
            }
            Self::Unauthorized => "only the apiserver can decide whether the client may read it",
        }
    }

    /// What to change so that such reads are served.
    pub fn change(self) -> &'static str {
        match self {
            Self::Consistent => {
                "set `consistentReads` to `bounded` or `probe`, or have the client send `resourceVersion=0`"
            }
            Self::OutsideWindow => {
                "raise `window.maxBytes` if the window is shorter than 75 s; have clients page faster"
            }
            Self::Invalid => "correct the request; the apiserver's answer says what is wrong",
            Self::Encoding => "have the client accept `application/json`, and set `protobuf` to `serve` or `json`",
            Self::NotReadable => "no action needed, unless the resource is misspelt or its API server is unavailable",
            Self::Aggregated => {
                "if all clients get the same answers from it, name its group in `authorization.sharedAggregatedGroups`; grant the identity `list` and `watch` on `apiservices.apiregistration.k8s.io`"
            }
            Self::Excluded => {
                "name the resource in `resources` without `exclude`, such as `{resource: secrets}`, if its objects may be in memory here"
            }
            Self::OutOfScope => "widen `namespaces`, `fieldSelector` or `labelSelector` of the rule",
            Self::TooManyInformers => "raise `limits.maxInformers`, or the memory limit from which it is derived",
            Self::Forbidden => "grant the identity `list` and `watch`; `informerd check` shows its rights",
            Self::Memory => "raise the memory limit or `limits.memory`, or cache less of the resource",
            Self::Undecodable => {
                "no action needed; informerd tries again after 30 s to 15 min. The log and `informerd status` name the object: please report it"
            }
            Self::Seldom => "no action needed; it is cached after repeated reads",
            Self::TableCells => "no action possible; the log names the column",
            Self::Unversioned => "no action needed; informerd tries again after two minutes",
            Self::NotSynced => "pin the resource in `resources`, or raise `notSynced.wait`; the log says what fails",
            Self::NotFresh => "check whether the apiserver or a watch lags",
            Self::Unsupported => "have the client omit it, if possible",
            Self::Unauthorized => {
                "have the client send a token on an authenticating listener; make sure that the daemon may create reviews"
            }
        }
    }
}
