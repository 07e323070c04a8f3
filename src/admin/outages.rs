//! When the apiserver was unreachable over the last hour, for the plots.

use std::collections::VecDeque;

use informerd_status::Apiserver;
use serde::Serialize;

/// The most that are kept. The oldest are dropped.
const MOST: usize = 100;
/// Outages that ended earlier than this are dropped, in seconds.
const LONGEST: u64 = 3600;
/// Times are whole seconds, so a time that did not change may differ by one.
const ROUNDING: u64 = 1;

/// A time in which no request got an answer, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Outage {
    from: u64,
    /// `None` while it lasts.
    until: Option<u64>,
}

/// The outages of the last hour, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages {
    kept: VecDeque<Outage>,
    /// When the apiserver was last seen to answer.
    answered: Option<u64>,
}

// === impl Outages ===

impl Outages {
    /// Takes note of the current state, which tells when it began.
    pub(super) fn note(&mut self, now: u64, apiserver: &Apiserver) {
        let since = now.saturating_sub(apiserver.since_seconds);
        let open = self.kept.back_mut().filter(|outage| outage.until.is_none());
        match open {
            Some(open) if apiserver.reachable => open.until = Some(since.max(open.from)),
            Some(_) => {}
            None if apiserver.is_unreachable() => self.keep(Outage { from: since, until: None }),
            None => {
                // An outage has begun and ended between two looks.
                if let Some(answered) = self.answered.filter(|answered| since > answered + ROUNDING) {
                    self.keep(Outage { from: answered, until: Some(since) });
                }
            }
        }
        if apiserver.reachable {
            self.answered = Some(now);
        }
        let is_old = |outage: &Outage| outage.until.is_some_and(|until| until + LONGEST < now);
        while self.kept.front().is_some_and(is_old) {
            self.kept.pop_front();
        }
    }

    pub(super) fn all(&self) -> Vec<Outage> {
        self.kept.iter().copied().collect()
    }

    fn keep(&mut self, outage: Outage) {
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        self.kept.push_back(outage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(since_seconds: u64) -> Apiserver {
        Apiserver { reachable: true, since_seconds, ..Apiserver::default() }
    }

    fn silent(since_seconds: u64) -> Apiserver {
        Apiserver { since_seconds, last_error: "refused".into(), ..Apiserver::default() }
    }

    #[test]
    fn an_outage_has_the_times_that_the_states_tell() {
        let mut outages = Outages::default();
        // Before the first request nothing is known.
        outages.note(1000, &Apiserver::default());
        outages.note(1005, &answers(2));
        outages.note(1010, &answers(8));
        assert_eq!(outages.all(), []);
        outages.note(1015, &silent(3));
        outages.note(1020, &silent(8));
        assert_eq!(outages.all(), [Outage { from: 1012, until: None }]);
        assert_eq!(serde_json::to_string(&outages.all()).unwrap(), r#"[{"from":1012,"until":null}]"#);
        outages.note(1025, &answers(1));
        let first = Outage { from: 1012, until: Some(1024) };
        assert_eq!(outages.all(), [first]);
        // One that nobody saw: the apiserver answers, but not for as long as before.
        outages.note(1030, &answers(2));
        assert_eq!(outages.all(), [first, Outage { from: 1025, until: Some(1028) }]);
        outages.note(1028 + LONGEST, &answers(LONGEST));
        assert_eq!(outages.all().len(), 1);
        outages.note(1029 + LONGEST, &answers(LONGEST + 1));
        assert_eq!(outages.all(), []);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut outages = Outages::default();
        for at in 0..200 {
            outages.note(2000 + 2 * at, &silent(0));
            outages.note(2001 + 2 * at, &answers(0));
        }
        assert_eq!(outages.all().len(), MOST);
        assert_eq!(outages.all().last(), Some(&Outage { from: 2398, until: Some(2399) }));
    }
}
