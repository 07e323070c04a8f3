//! Faults to inject: what goes wrong, for whom, how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use super::counts::Verb;
use super::net::{Connections, Order};
use super::registry::Kind;
use super::store::Store;

/// What goes wrong. The first group concerns a request before it is answered, the second bodies and streams.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answered with this code and the Status that goes with it; `retry_after` in seconds.
    Answer { code: u16, retry_after: Option<u32> },
    /// Answered late.
    Delay(Duration),
    /// A watch that asks for initial events gets the 422 of a server without them.
    RefuseWatchList,
    /// The connection is reset instead of an answer.
    Reset,

    /// Half of the next watch event, or of a list or object, and then this ending.
    Cut(Cut),
    /// Each piece of a list's body comes this much later.
    SlowBody(Duration),
    /// An ERROR 410 in the place of the next watch event.
    Expire,
    /// An ERROR with this code in the place of the next watch event.
    ErrorEvent(u16),
    /// The next watch event is not JSON.
    Garbage,
    /// The next watch event comes twice.
    Duplicate,
    /// The event before is sent once more after the next watch event: a resourceVersion that goes back.
    Replay,
    /// A bookmark is left out, the one that ends the initial events aside.
    NoBookmark,
    /// The bookmark that ends the initial events is left out.
    NoInitialEnd,
    /// From its next event on, the watch says nothing more; its connection is well.
    Stall,
    /// Watch events come this long after they happened, for as long as the fault stands. Lists are current.
    Lag(Duration),
}

/// How a body ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Properly, as if that were all.
    End,
    /// The connection is closed.
    Fin,
    /// The connection is reset.
    Rst,
}

/// An effect with whom it concerns and how often.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    resource: Option<String>,
    verb: Option<Verb>,
    skip: u32,
    remaining: Option<u32>,
}

/// Names an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The handle that breaks a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    rules: Mutex<Vec<Rule>>,
    /// Spares the lock of `rules` on every event while there are none.
    any: AtomicBool,
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

/// Something that happens to open watches now.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    pub resource: Option<String>,
    pub expire: bool,
}

// === impl Fault ===

impl Fault {
    /// Once.
    pub fn once(effect: Effect) -> Self {
        Self::times(1, effect)
    }

    pub fn times(times: u32, effect: Effect) -> Self {
        Self { effect, resource: None, verb: None, skip: 0, remaining: Some(times) }
    }

    /// Until it is cleared.
    pub fn always(effect: Effect) -> Self {
        Self { effect, resource: None, verb: None, skip: 0, remaining: None }
    }

    /// An HTTP status, once.
    pub fn status(code: u16) -> Self {
        Self::once(Effect::Answer { code, retry_after: None })
    }

    /// Only for a resource: `pods`, `deployments` or `deployments.apps`.
    #[must_use]
    pub fn on(mut self, resource: &str) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only for requests of a verb. A probe counts as [`Verb::Probe`], not as a list.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Lets the first `n` occasions pass unharmed.
    #[must_use]
    pub fn after(mut self, n: u32) -> Self {
        self.skip = n;
        self
    }

    /// A request's occasion is any; an event's or a body's is one the effect can harm.
    fn concerns(&self, verb: Verb, kind: Option<&Kind>) -> bool {
        self.verb.is_none_or(|of| of == verb)
            && self.resource.as_deref().is_none_or(|name| kind.is_some_and(|kind| kind.is(name)))
    }
}

// === impl Faults ===

impl Faults {
    pub(super) fn new(store: Arc<Store>) -> Self {
        let (changed, _) = watch::channel(0);
        // Interrupts are rare; a watch that misses some of 64 just lives on.
        let (interrupts, _) = broadcast::channel(64);
        let shared = Shared {
            rules: Mutex::default(),
            any: AtomicBool::new(false),
            changed,
            interrupts,
            connections: Arc::default(),
            store,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Injects a fault; of several that fit an occasion the oldest strikes.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut rules = self.shared.rules.lock();
        let mut id = FaultId(0);
        self.shared.changed.send_modify(|count| {
            *count += 1;
            id = FaultId(*count);
        });
        rules.push(Rule { id, fault, hits: 0 });
        self.shared.any.store(true, Ordering::Release);
        id
    }

    /// How often a fault has struck.
    pub fn hits(&self, id: FaultId) -> u64 {
        self.shared.rules.lock().iter().find(|rule| rule.id == id).map_or(0, |rule| rule.hits)
    }

    /// Ends one fault; its hits remain readable.
    pub fn remove(&self, id: FaultId) {
        for rule in self.shared.rules.lock().iter_mut().filter(|rule| rule.id == id) {
            rule.fault.remaining = Some(0);
        }
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.shared.rules.lock().clear();
        self.shared.any.store(false, Ordering::Release);
        self.shared.connections.blackhole(false);
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Ends the open watches cleanly, of one resource or of all.
    pub fn end_watches(&self, resource: Option<&str>) {
        let _ = self.shared.interrupts.send(Interrupt { resource: resource.map(Into::into), expire: false });
    }

    /// Sends the open watches an ERROR 410 now.
    pub fn expire_watches(&self, resource: Option<&str>) {
        let _ = self.shared.interrupts.send(Interrupt { resource: resource.map(Into::into), expire: true });
    }

    /// Resets every connection.
    pub fn reset_connections(&self) {
        self.shared.connections.order(Order::Rst);
    }

    /// Closes every connection, whatever it is in the middle of.
    pub fn close_connections(&self) {
        self.shared.connections.order(Order::Fin);
    }

    /// HTTP/2 GOAWAY (HTTP/1: close after the answer); open streams go on.
    pub fn go_away(&self) {
        self.shared.connections.order(Order::GoAway);
    }

    /// The open connections stay open, but nothing is sent on them any more and what arrives is swallowed, as when
    /// the machine behind them has vanished. New connections are well.
    pub fn half_open(&self) {
        self.shared.connections.silence();
    }

    /// [`Self::half_open`] for the open connections and every new one while it stands; those stay silent afterwards.
    pub fn blackhole(&self, on: bool) {
        self.shared.connections.blackhole(on);
        if on {
            self.shared.connections.silence();
        }
    }

    /// Drops all history: watches from earlier revisions get 410, continue tokens expire. Open watches are not
    /// concerned unless they are behind.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    /// Goes back to what the store held at an earlier revision, counter included, and resets every connection: an
    /// etcd restored from a backup. What is written next has revisions that clients have seen with other contents.
    pub fn rewind(&self, revision: u64) {
        self.shared.store.rewind(revision);
        self.reset_connections();
    }

    /// The first fault that fits and whose effect `wanted` accepts, counted as struck.
    pub(super) fn take(&self, verb: Verb, kind: Option<&Kind>, wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        if !self.shared.any.load(Ordering::Acquire) {
            return None;
        }
        let mut rules = self.shared.rules.lock();
        let fits = |rule: &&mut Rule| {
            rule.fault.remaining != Some(0) && rule.fault.concerns(verb, kind) && wanted(&rule.fault.effect)
        };
        for rule in rules.iter_mut().filter(fits) {
            if rule.fault.skip > 0 {
                rule.fault.skip -= 1;
                continue;
            }
            if let Some(remaining) = &mut rule.fault.remaining {
                *remaining -= 1;
            }
            rule.hits += 1;
            return Some(rule.fault.effect.clone());
        }
        None
    }

    /// How much watch events of a resource lag now.
    pub(super) fn lag(&self, kind: &Kind) -> Duration {
        if !self.shared.any.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let rules = self.shared.rules.lock();
        let lag =
            rules.iter().filter(|rule| rule.fault.remaining != Some(0)).find_map(|rule| match rule.fault.effect {
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
