//! The load on the apiservers: how often the daemon asks for the whole state of a resource, and for how many reasons. A
//! reader that comes back is no reason, and neither is an attempt that has failed, as long as nothing makes it fail.
//!
//! Each reason is counted once for each informer that the resource may have. The numbers are upper bounds of what one fault
//! can do, so they do not depend on how fast the machine is: only time on the paused clock gives further ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, HeaderName, USER_AGENT};
use informerd_sim::{RequestRecord, Verb};

use super::chaos::{MEMORY, POISON};
use super::world::{RESOURCES, Resource, Run};

#[derive(Default)]
pub(super) struct Load {
    /// How many requests of each apiserver were looked at.
    seen: [AtomicU64; 2],
    /// Lists and watches that begin with the state, by resource.
    asked: [AtomicU64; RESOURCES.len()],
    reasons: [AtomicU64; RESOURCES.len()],
    /// The largest part of what was allowed that was asked for, in percent.
    pub share: AtomicU64,
}

/// The informers that a resource may have: those of the built-in one hold JSON or protobuf.
const INFORMERS: [u64; RESOURCES.len()] = [2, 1];
/// Lists that have other reasons, as in [`super::chaos::cuts`].
const OTHERS: u64 = 4;
/// A state that was given up is read again after 30 s or more, and so is one that fails for long. In seconds.
const AGAIN: u64 = 20;
/// An apiserver remembers thousands of requests, more than come meanwhile.
const LOOKS: Duration = Duration::from_secs(5);

pub(super) async fn looks(run: Arc<Run>) {
    while run.goes_on() {
        run.load.look(&run);
        tokio::time::sleep(LOOKS).await;
    }
}

impl Load {
    /// An informer of these resources may ask for the state so many times more.
    pub(super) fn allow(&self, of: &[Resource], times: u64) {
        for resource in of {
            self.reasons[resource.number].fetch_add(times, Ordering::SeqCst);
        }
    }

    /// What this fault allows: of the resource that it is of, and of the other one.
    pub(super) fn strikes(&self, kind: usize, resource: Resource, verb: Verb, times: u32) {
        let (times, reads_states) = (u64::from(times), matches!(verb, Verb::Watch | Verb::List));
        let (here, there) = match kind {
            // A state that is being read when its connection breaks is read again; the request may be sent twice.
            0 => (2, 2),
            // Each of these answers may be one that has the state, and another attempt follows.
            1 | 3 if reads_states => (times + 1, 0),
            // Each makes a revision too old; watches of everything may be told so once.
            4 => (times + 1, 1),
            // One that is too old, or a request that takes too long, and pages of a list that expire.
            5 | 11 => (2, 2),
            // Both: connections break, and revisions may be lost.
            6 => (3, 3),
            // The informer of the definition stops when it changes, when it goes, and when it is there again.
            8 => return self.allow(&RESOURCES[1..], 4),
            // Three answers that cannot be decoded, and the first attempt after them.
            POISON => (4, 0),
            // Revisions that go back, and what is no event.
            10 => (times + 1, 0),
            // Where a second watch stands still, too, there is a list; and answers that are lost are asked for again.
            13 => (times + 4, 4),
            // Connections break, and what comes is behind what others know.
            14 => (4, 4),
            15 => (4, 0),
            // A state that does not end is listed.
            16 | 17 => (times, 0),
            // Caches give up what they hold.
            MEMORY => (2, 2),
            _ => (1, 0),
        };
        RESOURCES.iter().for_each(|of| self.allow(&[*of], if *of == resource { here } else { there }));
    }

    fn look(&self, run: &Run) {
        for (server, seen) in [&run.server, &run.second].into_iter().zip(&self.seen) {
            let all = server.counts().all_requests();
            let new = usize::try_from(all - seen.swap(all, Ordering::SeqCst)).unwrap();
            let requests = if new > 0 { server.requests() } else { Vec::new() };
            for request in requests.iter().rev().take(new) {
                if let Some(resource) = RESOURCES.iter().find(|of| asks_for_all(request, of)) {
                    self.asked[resource.number].fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// What was asked for without a reason.
    pub(super) fn judge(&self, run: &Run, lasted: Duration) -> Vec<String> {
        self.look(run);
        let mut wrong = Vec::new();
        for Resource { number, plural, .. } in RESOURCES {
            let [asked, reasons] = [&self.asked, &self.reasons].map(|of| of[number].load(Ordering::SeqCst));
            let allowed = INFORMERS[number] * (reasons + OTHERS + lasted.as_secs() / AGAIN);
            self.share.fetch_max(100 * asked / allowed, Ordering::SeqCst);
            if asked > allowed {
                let why = format!("{reasons} reasons in {lasted:?} allow {allowed}");
                wrong.push(format!("the daemon has listed all {plural} {asked} times, and {why}"));
            }
        }
        wrong
    }
}

/// Whether this is the daemon's own request for the whole state. What it forwards has the agent of its client, or none; its
/// questions are about metadata or about one object.
fn asks_for_all(request: &RequestRecord, resource: &Resource) -> bool {
    let header = |name: HeaderName| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (path, query) = request.target.split_once('?').unwrap_or((request.target.as_str(), ""));
    let has = |parameter: &str| query.split('&').any(|one| one.starts_with(parameter));
    let is_of_one = has("fieldSelector=") || query.split('&').any(|one| one == "limit=1");
    let is_own = request.method == "GET" && header(USER_AGENT).starts_with("informerd/");
    let begins = if has("watch=") { has("sendInitialEvents=true") } else { !has("continue=") };
    is_own && path == resource.path() && begins && !is_of_one && !header(ACCEPT).contains("PartialObjectMetadata")
}
