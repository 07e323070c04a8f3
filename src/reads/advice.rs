//! Explains why a read is forwarded and what can be done about it, for the operators of the daemon.
//! docs/compatibility.md contains the same texts; `tests/rules/docs.rs` checks that they match.

use super::ForwardReason;

// === impl ForwardReason ===

impl ForwardReason {
    /// The property of the read, the resource or the cache that causes it.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Consistent => {
                "it asks for the newest state, which `consistentReads` leaves to the apiserver for such a read"
            }
            Self::OutsideWindow => "it asks for a revision that the window does not hold, or no longer",
            Self::Invalid => "its path, options or selectors are ones that the apiserver refuses",
            Self::Encoding => "no cache holds the form in which the client takes the answer",
            Self::NotReadable => "discovery does not know the resource, or it has no list and watch",
            Self::Excluded => {
                "the resource is not cached: Secrets are excluded by default, others by a rule in `resources`"
            }
            Self::OutOfScope => {
                "the rule of the resource caches less than it asks for, or the bound on informers is reached"
            }
            Self::Forbidden => "the daemon's own identity may not list and watch the resource",
            Self::Memory => "the memory of the caches has no room for the resource",
            Self::Seldom => {
                "the resource is read too seldom in this form (tables, protobuf), or only a small part of it is read, for an informer of its own"
            }
            Self::TableCells => "it is a table with cells that tell times in a way that is not known here",
            Self::Unversioned => "its API server sends a `resourceVersion` that is no number, or none",
            Self::NotSynced => "the informer of the resource has not got its first list yet",
            Self::NotFresh => "the cache could not be proved to be fresh enough in time",
            Self::Unsupported => {
                "it uses what informerd does not evaluate: impersonation of a trusted client, an upgrade, or an unusual parameter"
            }
            Self::Unauthorized => "only the apiserver can tell whether the client may read it",
        }
    }

    /// What to change so that such reads are served.
    pub fn change(self) -> &'static str {
        match self {
            Self::Consistent => {
                "set `consistentReads` for its verb to `bounded` or `probe`, or have the client send `resourceVersion=0`"
            }
            Self::OutsideWindow => {
                "raise `window.minAge`, `window.maxEvents` or `window.maxBytes`; have clients page faster"
            }
            Self::Invalid => "correct the request; the apiserver's answer says what is wrong",
            Self::Encoding => "have the client accept `application/json`, and set `protobuf` to `serve` or `json`",
            Self::NotReadable => "nothing, unless the resource is misspelt or its API server is away",
            Self::Excluded => {
                "name the resource in `resources` without `exclude`, such as `{resource: secrets}`, if its objects may be in memory here"
            }
            Self::OutOfScope => {
                "widen `namespaces`, `fieldSelector` or `labelSelector` of the rule, or raise `limits.maxInformers`"
            }
            Self::Forbidden => "grant the identity `list` and `watch`; `informerd check` tells what it may do",
            Self::Memory => "raise the memory limit or `limits.memory`, or cache less of the resource",
            Self::Seldom => "nothing: read again and again, it is served",
            Self::TableCells => "nothing; the log says which column it is",
            Self::Unversioned => "nothing; it is tried again after ten minutes",
            Self::NotSynced => "pin the resource in `resources`, or raise `notSynced.wait`; the log tells what fails",
            Self::NotFresh => "raise `consistentReads.timeout`; look for an apiserver or a stream that lags",
            Self::Unsupported => "have the client leave it out, where it can",
            Self::Unauthorized => {
                "have the client show a token on a delegated listener; see that the daemon may create reviews"
            }
        }
    }
}
