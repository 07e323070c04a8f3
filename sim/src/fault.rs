//! Faults to inject: what fails, for which requests, and how often.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use super::counts::Verb;
use super::net::{Connections, Order};
use super::registry::Kind;
use super::store::Store;

/// What fails. The first group affects a request before its response, the second one bodies and streams.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The response is this code with the matching Status. `retry_after` is in seconds.
    Answer { code: u16, retry_after: Option<u32> },
    /// The response is delayed.
    Delay(Duration),
    /// A watch with initial events gets the 422 of a server without support for them.
    RefuseWatchList,
    /// The connection is reset instead of a response.
    Reset,

    /// Half of the next watch event, list or object is sent, and then the body ends like this.
    Cut(Cut),
    /// Each part of a list's body is delayed by this time.
    SlowBody(Duration),
    /// An ERROR 410 replaces the next watch event.
    Expire,
    /// An ERROR with this code replaces the next watch event.
    ErrorEvent(u16),
    /// The next watch event is not JSON.
    Garbage,
    /// The next watch event is sent twice.
    Duplicate,
    /// After the next watch event, the event before it is sent again, so the resourceVersion goes back.
    Replay,
    /// A bookmark is omitted, except the one that ends the initial events.
    NoBookmark,
    /// The bookmark that ends the initial events is omitted.
    NoInitialEnd,
    /// From its next event on, the watch sends nothing. Its connection stays healthy.
    Stall,
    /// Watch events are delayed by this time after the change, while the fault is active. Lists are current.
    Lag(Duration),
}

/// How a body ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Normally, as if it were complete.
    End,
    /// The connection is closed.
    Fin,
    /// The connection is reset.
    Rst,
}

/// An effect, the requests that it affects, and how often.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    resource: Option<String>,
    verb: Option<Verb>,
    remaining: Option<u32>,
}

/// Identifies an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The handle to inject faults into a server. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    rules: Mutex<Vec<Rule>>,
    changed: watch::Sender<u64>,
    interrupts: broadcast::Sender<Interrupt>,
    pub connections: Arc<Connections>,
    store: Arc<Store>,
}

#[derive(Debug)]
struct Rule {
    id: FaultId,
    fault: Fault,
    hits: u64,
}

/// An interruption of open watches.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    pub resource: Option<String>,
    pub expire: bool,
}

// === impl Fault ===

impl Fault {
    /// A fault that occurs once.
    pub fn once(effect: Effect) -> Self {
        Self::times(1, effect)
    }

    pub fn times(times: u32, effect: Effect) -> Self {
        Self { effect, resource: None, verb: None, remaining: Some(times) }
    }

    /// A fault that occurs until it is cleared.
    pub fn always(effect: Effect) -> Self {
        Self { effect, resource: None, verb: None, remaining: None }
    }

    /// An HTTP status, once.
    pub fn status(code: u16) -> Self {
        Self::once(Effect::Answer { code, retry_after: None })
    }

    /// Limits the fault to a resource: `pods`, `deployments` or `deployments.apps`.
    #[must_use]
    pub fn on(mut self, resource: &str) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Limits the fault to requests of a verb. A probe counts as [`Verb::Probe`], not as a list.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// For a request, every request is an occasion. For an event or a body, only one that the effect can change is an
    /// occasion.
    fn concerns(&self, verb: Verb, kind: Option<&Kind>) -> bool {
        self.remaining != Some(0)
            && self.verb.is_none_or(|of| of == verb)
            && self.resource.as_deref().is_none_or(|name| kind.is_some_and(|kind| kind.is(name)))
    }
}

// === impl Faults ===

impl Faults {
    pub(super) fn new(store: Arc<Store>) -> Self {
        let (changed, _) = watch::channel(0);
        // Interrupts are rare. A watch that falls behind by more than 64 just continues.
        let (interrupts, _) = broadcast::channel(64);
        let shared = Shared { rules: Mutex::default(), changed, interrupts, connections: Arc::default(), store };
        Self { shared: Arc::new(shared) }
    }

    /// Injects a fault. If several faults match an occasion, the oldest one applies.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut rules = self.shared.rules.lock();
        let mut id = FaultId(0);
        self.shared.changed.send_modify(|count| {
            *count += 1;
            id = FaultId(*count);
        });
        rules.push(Rule { id, fault, hits: 0 });
        id
    }

    /// How often a fault has occurred.
    pub fn hits(&self, id: FaultId) -> u64 {
        self.shared.rules.lock().iter().find(|rule| rule.id == id).map_or(0, |rule| rule.hits)
    }

    /// Ends one fault. Its number of hits can still be read.
    pub fn remove(&self, id: FaultId) {
        for rule in self.shared.rules.lock().iter_mut().filter(|rule| rule.id == id) {
            rule.fault.remaining = Some(0);
        }
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.shared.rules.lock().clear();
        self.shared.connections.blackhole(false);
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Ends the open watches cleanly, for one resource or for all.
    pub fn end_watches(&self, resource: Option<&str>) {
        let _ = self.shared.interrupts.send(Interrupt { resource: resource.map(Into::into), expire: false });
    }

    /// Sends an ERROR 410 to the open watches now.
    pub fn expire_watches(&self, resource: Option<&str>) {
        let _ = self.shared.interrupts.send(Interrupt { resource: resource.map(Into::into), expire: true });
    }

    /// Resets every connection.
    pub fn reset_connections(&self) {
        self.shared.connections.order(Order::Rst);
    }

    /// Closes every connection, even in the middle of a response.
    pub fn close_connections(&self) {
        self.shared.connections.order(Order::Fin);
    }

    /// Sends HTTP/2 GOAWAY (for HTTP/1: closes after the response). Open streams continue.
    pub fn go_away(&self) {
        self.shared.connections.order(Order::GoAway);
    }

    /// The open connections stay open, but nothing more is sent on them and received data is discarded, as if the
    /// server's machine had disappeared. New connections work normally.
    pub fn half_open(&self) {
        self.shared.connections.silence();
    }

    /// Like [`Self::half_open`], for the open connections and for every new one while it is on. These connections
    /// stay silent afterwards.
    pub fn blackhole(&self, on: bool) {
        self.shared.connections.blackhole(on);
        if on {
            self.shared.connections.silence();
        }
    }

    /// Drops the whole history: watches from earlier revisions get 410, and continue tokens expire. Open watches are
    /// not affected unless they are behind.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    /// Goes back to the state of the store at an earlier revision, including the revision counter, and resets every
    /// connection, like an etcd that was restored from a backup. Later writes reuse revisions that clients have seen
    /// with other contents.
    pub fn rewind(&self, revision: u64) {
        self.shared.store.rewind(revision);
        self.reset_connections();
    }

    /// The first matching fault whose effect `wanted` accepts. It counts as a hit.
    pub(super) fn take(&self, verb: Verb, kind: Option<&Kind>, wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        let mut rules = self.shared.rules.lock();
        let rule = rules.iter_mut().find(|rule| rule.fault.concerns(verb, kind) && wanted(&rule.fault.effect))?;
        if let Some(remaining) = &mut rule.fault.remaining {
            *remaining -= 1;
        }
        rule.hits += 1;
        Some(rule.fault.effect.clone())
    }

    /// The current delay of watch events of a resource.
    pub(super) fn lag(&self, kind: &Kind) -> Duration {
        let rules = self.shared.rules.lock();
        let lag = rules.iter().find_map(|rule| match rule.fault.effect {
            Effect::Lag(lag) if rule.fault.concerns(Verb::Watch, Some(kind)) => Some(lag),
            _ => None,
        });
        lag.unwrap_or_default()
    }

    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    pub(super) fn interrupts(&self) -> broadcast::Receiver<Interrupt> {
        self.shared.interrupts.subscribe()
    }
}
