//! The revision of the store, read once for all resources that are kept in it.
//!
//! A store has one revision, which counts the writes to all of its resources. So the revision that the apiserver
//! returns for one resource holds for all others in the same store. All resources are in the same store, unless
//! `--etcd-servers-overrides` gives some of them a store of their own. From version 1.33 on, the readiness checks of a
//! kube-apiserver show whether it has such stores. If it has, or does not say, each resource is asked about separately.
//!
//! Only built-in resources share a store here: an aggregated apiserver has its own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::odds::Movement;
use super::single_flight::{Asked, SingleFlight};
use crate::apiserver::client::{CallOptions, Upstream};
use crate::apiserver::metrics::RequestVerb;
use crate::apiserver::reader::{get_json, get_text};
use crate::apiserver::{Cause, UpstreamError};
use crate::lifecycle;
use crate::meta::ResourceVersion;

/// How long an answer is valid, and the age at which it is renewed while readers come.
const VALID: Duration = Duration::from_secs(120);
const RENEW: Duration = Duration::from_secs(60);
/// Pause after a question that was not answered.
const AGAIN: Duration = Duration::from_secs(10);
/// Pause after the apiserver said that there are several stores, or its revisions showed it.
const LATER: Duration = Duration::from_secs(600);
/// Timeout for the head of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const MAX_ANSWER: usize = 64 << 10;
/// The first minor version of Kubernetes whose readiness checks show other stores (kubernetes/kubernetes#129438).
const TELLS: u32 = 33;

/// The apiserver's answer about the store's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub rv: ResourceVersion,
    /// When the question began.
    pub asked: Asked,
}

/// The store of the built-in resources, if there is only one.
pub struct SharedStore {
    upstream: Upstream,
    /// The questions about any resource.
    pub(super) revisions: SingleFlight<ResourceVersion>,
    state: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    /// Until then it is known that all built-in resources are kept in one store.
    only_until: Option<Instant>,
    /// When to ask that again.
    ask_at: Instant,
    asking: bool,
    /// How often revisions have shown that there are several stores.
    refuted: u64,
    /// The newest answer, by the time of its question.
    word: Option<Word>,
    /// The highest revision, and when it was received.
    highest: Option<(ResourceVersion, Instant)>,
    movement: Movement,
}

#[derive(Deserialize)]
struct Version {
    major: String,
    minor: String,
}

// === impl SharedStore ===

impl SharedStore {
    pub fn new(upstream: Upstream) -> Self {
        Self { upstream, revisions: SingleFlight::default(), state: Mutex::new(StoreState::new(Instant::now())) }
    }

    /// Whether all built-in resources are known to be kept in one store. If this is unknown, or about to expire, the
    /// apiserver is asked in the background.
    pub(super) fn is_only(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        if !state.asking && now >= state.ask_at {
            state.asking = true;
            lifecycle::spawn("store", self.clone().learn(state.refuted));
        }
        state.only_until.is_some_and(|until| now < until)
    }

    async fn learn(self: Arc<Self>, refuted: u64) {
        let only = self.ask().await;
        let mut state = self.state.lock();
        state.asking = false;
        if state.refuted != refuted {
            return;
        }
        let now = Instant::now();
        match only {
            Ok(true) => (state.only_until, state.ask_at) = (Some(now + VALID), now + RENEW),
            Ok(false) => (state.only_until, state.ask_at) = (None, now + LATER),
            Err(error) => {
                tracing::debug!(%error, "the apiserver does not say how many stores it has");
                state.ask_at = now + AGAIN;
            }
        }
    }

    async fn ask(&self) -> Result<bool, UpstreamError> {
        let options = CallOptions::new(RequestVerb::Discovery, "").header_timeout(PATIENCE);
        let (_, version): (_, Version) =
            get_json(&self.upstream, "/version", "application/json", &options, MAX_ANSWER).await?;
        if !version.tells() {
            return Ok(false);
        }
        let checks = get_text(&self.upstream, "/readyz?verbose", &options, MAX_ANSWER).await?;
        let checks = std::str::from_utf8(&checks).map_err(|error| UpstreamError::Decode(Cause::new(error)))?;
        Ok(is_only(checks))
    }

    /// Records the answer about one resource.
    pub(super) fn heard(&self, word: Word) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.highest.is_some_and(|(rv, heard)| word.asked.at > heard && word.rv < rv) {
            return state.refute(now);
        }
        if state.highest.is_none_or(|(rv, _)| word.rv > rv) {
            state.highest = Some((word.rv, now));
        }
        if state.word.is_none_or(|last| last.asked < word.asked) {
            state.word = Some(word);
        }
        state.movement.heard(word.rv, word.asked.at);
    }

    /// Records that a revision of one resource was older than a revision of another resource that was seen before. So
    /// there are several stores, or the only one was set back.
    pub(super) fn is_refuted(&self) {
        self.state.lock().refute(Instant::now());
    }

    /// The newest answer about any resource.
    pub(crate) fn last_word(&self) -> Option<Word> {
        self.state.lock().word
    }

    /// The probability that the store is still at `proved`.
    pub(super) fn stillness(&self, proved: ResourceVersion, now: Instant) -> f32 {
        self.state.lock().movement.stillness(proved, now)
    }

    #[cfg(test)]
    pub(crate) fn known(upstream: Upstream) -> Arc<Self> {
        let store = Self::new(upstream);
        let far = Instant::now() + Duration::from_secs(86_400);
        {
            let mut state = store.state.lock();
            (state.only_until, state.ask_at) = (Some(far), far);
        }
        Arc::new(store)
    }
}

// === impl StoreState ===

impl StoreState {
    fn new(ask_at: Instant) -> Self {
        let movement = Movement::default();
        Self { only_until: None, ask_at, asking: false, refuted: 0, word: None, highest: None, movement }
    }

    fn refute(&mut self, now: Instant) {
        tracing::warn!(
            "the store's revision went back, or there are several stores: asking for each resource separately"
        );
        *self = Self { asking: self.asking, refuted: self.refuted + 1, ..Self::new(now + LATER) };
    }
}

// === impl Version ===

impl Version {
    /// Whether this version shows other stores. Some providers write the minor version as `33+`.
    fn tells(&self) -> bool {
        let minor: String = self.minor.chars().take_while(char::is_ascii_digit).collect();
        self.major == "1" && minor.parse().is_ok_and(|minor: u32| minor >= TELLS)
    }
}

/// Whether these checks are those of an apiserver with one store. Each line has the form `[+]name ok`.
fn is_only(checks: &str) -> bool {
    let names = || checks.lines().filter_map(|line| line.strip_prefix("[+]")?.split(' ').next());
    names().any(|name| name == "etcd") && !names().any(|name| name.starts_with("etcd-override"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::{FakeServer, answer, padded};

    const CHECKS: &str = "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\nreadyz check passed\n";

    #[test]
    fn checks_tell_of_other_stores() {
        assert!(is_only(CHECKS));
        assert!(!is_only("ok"), "not a kube-apiserver, or one that was not asked verbosely");
        assert!(!is_only("[+]ping ok\n[+]log ok\nreadyz check passed\n"));
        assert!(!is_only(&CHECKS.replace("readyz", "[+]etcd-override-0 ok\n[+]etcd-override-readiness-0 ok\nreadyz")));
        for (major, minor, tells) in [
            ("1", "32", false),
            ("1", "33", true),
            ("1", "33+", true),
            ("1", "100", true),
            ("2", "0", false),
            ("", "", false),
        ] {
            assert_eq!(Version { major: major.to_owned(), minor: minor.to_owned() }.tells(), tells, "{major}.{minor}");
        }
    }

    async fn store(code: u16, minor: &'static str, checks: &'static str) -> (FakeServer, Arc<SharedStore>) {
        let server = FakeServer::plain(move |request, _| {
            std::future::ready(match request.uri().path() {
                "/version" => answer(200, format!(r#"{{"major":"1","minor":"{minor}"}}"#)),
                _ => answer(code, checks),
            })
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        (server, Arc::new(SharedStore::new(upstream)))
    }

    /// Whether the store is known to be the only one, after the apiserver has answered.
    async fn learnt(store: &Arc<SharedStore>) -> bool {
        store.is_only();
        while store.state.lock().asking {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.is_only()
    }

    #[tokio::test]
    async fn an_apiserver_that_says_so_has_one_store() {
        let (server, only) = store(200, "36", CHECKS).await;
        assert!(!only.is_only(), "nothing is known yet");
        assert!(learnt(&only).await);
        assert!(learnt(&only).await);
        assert_eq!(server.requests().len(), 2, "it is asked once a minute");
        let long = |bytes| -> &'static str { padded(CHECKS, bytes).leak() };
        let (_server, only) = store(200, "36", long(MAX_ANSWER)).await;
        assert!(learnt(&only).await);
        for (code, minor, checks) in [
            (200, "36", long(MAX_ANSWER + 1)),
            (200, "32", CHECKS),
            (200, "36", "ok"),
            (200, "36", "[+]etcd ok\n[+]etcd-override-0 ok\n"),
            (403, "36", CHECKS),
            (500, "36", CHECKS),
        ] {
            let (_server, several) = store(code, minor, checks).await;
            assert!(!learnt(&several).await, "{code} {minor} {checks}");
        }
    }

    #[tokio::test]
    async fn a_contradiction_ends_it() {
        let word = |rv| Word { rv: ResourceVersion(rv), asked: Asked::now() };
        let (_server, only) = store(200, "36", CHECKS).await;
        assert!(learnt(&only).await);
        let early = word(8);
        only.heard(word(10));
        only.heard(word(10));
        only.heard(early);
        assert!(only.is_only(), "that was asked before");
        tokio::time::sleep(Duration::from_millis(1)).await;
        only.heard(word(9));
        assert!(!learnt(&only).await);
        assert_eq!(only.last_word(), None);
    }
}
