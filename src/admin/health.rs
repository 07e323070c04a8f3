//! `/livez` and `/readyz`. With `?verbose` each check has its own line, as in the kube-apiserver.

use std::fmt::Write as _;

use informerd_status::Apiserver;

use crate::lifecycle::readiness::{PendingState, Registry};

/// The text of a health page, and whether all checks pass.
pub(super) struct Verdict {
    pub(super) good: bool,
    pub(super) text: String,
}

/// Whether the query asks for every check. As in the apiserver, only the parameter's name counts and not its value.
pub(super) fn is_verbose(query: &str) -> bool {
    query.split('&').any(|parameter| parameter.split('=').next() == Some("verbose"))
}

/// Always healthy: if the process did not run, nothing would answer.
pub(super) fn live(verbose: bool) -> Verdict {
    if verbose { lines("livez", true, [("ping", true)]) } else { Verdict::ok() }
}

/// Whether the apiserver answers is shown next to the verdict and does not change it. A daemon without its apiserver
/// still serves what it has cached, and no other replica could serve the rest.
pub(super) fn ready(readiness: &Registry, apiserver: &Apiserver, verbose: bool) -> Verdict {
    let checks = readiness.checks();
    let good = checks.iter().all(|check| check.pending.is_none());
    if verbose {
        let latches = checks.iter().map(|check| (check.name.as_str(), check.pending.is_none()));
        let reachable = ("apiserver-reachable", apiserver.reachable);
        return lines("readyz", good, [("ping", true)].into_iter().chain(latches).chain([reachable]));
    }
    if good {
        return Verdict::ok();
    }
    let mut text = String::from("not ready\n");
    for (name, state) in checks.iter().filter_map(|check| Some((&check.name, check.pending?))) {
        let state = match state {
            PendingState::Waiting => "pending",
            PendingState::Failed => "failed",
            PendingState::Withdrawn => "withdrawn",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {state}");
    }
    Verdict { good, text }
}

/// A verbose page: each check with its result, and the result of the page.
fn lines<'a>(page: &str, good: bool, all: impl IntoIterator<Item = (&'a str, bool)>) -> Verdict {
    let mut text = String::new();
    for (name, good) in all {
        let (sign, verdict) = if good { ('+', "ok") } else { ('-', "failed: reason withheld") };
        let _ = writeln!(text, "[{sign}]{name} {verdict}");
    }
    let _ = writeln!(text, "{page} check {}", if good { "passed" } else { "failed" });
    Verdict { good, text }
}

// === impl Verdict ===

impl Verdict {
    fn ok() -> Self {
        Self { good: true, text: "ok\n".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbose_is_a_parameter() {
        for (query, verbose) in
            [("", false), ("verbose", true), ("verbose=1", true), ("a=b&verbose=", true), ("verboser", false)]
        {
            assert_eq!(is_verbose(query), verbose, "{query}");
        }
    }

    #[test]
    fn every_check_has_a_line() {
        assert_eq!(live(true).text, "[+]ping ok\nlivez check passed\n");
        let registry = Registry::default();
        let (apiserver, pods) = (registry.latch("apiserver"), registry.latch("pods"));
        apiserver.release();
        let mut upstream = Apiserver { reachable: true, ..Apiserver::default() };
        let verdict = ready(&registry, &upstream, true);
        assert!(!verdict.good);
        assert_eq!(
            verdict.text,
            "[+]ping ok\n[+]apiserver ok\n[-]pods failed: reason withheld\n[+]apiserver-reachable ok\nreadyz check failed\n"
        );
        pods.release();
        upstream.reachable = false;
        let verdict = ready(&registry, &upstream, true);
        assert!(verdict.good, "a ready daemon stays ready without its apiserver");
        assert_eq!(
            verdict.text,
            "[+]ping ok\n[+]apiserver ok\n[+]pods ok\n[-]apiserver-reachable failed: reason withheld\nreadyz check passed\n"
        );
    }
}
