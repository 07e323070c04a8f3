//! The reflector: mirrors one resource of the apiserver into a watch cache, with a single list and watch, no matter how
//! many readers the cache has.

mod config;
mod end;
mod follow;
mod given_up;
mod handle;
mod learn;
mod load;
mod machine;
mod restore;
mod steps;
pub(in crate::upstream) mod stream;
mod trouble;

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod given_up_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod scripted_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use super::source::ListerWatcher;
pub use config::{LoadSaved, ReflectorConfig};
pub use end::ReflectorEnd;
pub use handle::{Handle, Position, ReflectorStatus, Silence};

use self::end::Undecodable;
use self::handle::STUCK;
use self::load::{Load, Sample};
use self::machine::{Failure, Haste, Machine, Outcome, State, Then};
use self::stream::{EventStream, read_page};
use super::proofs::{Asked, Progress, questions};
use crate::apiserver::client::{ConnectionId, RequestVerb, Upstream, UpstreamError};
use crate::apiserver::retries::Queue;
use crate::cache::{ReplaceError, Restoration, Writer};
use crate::codec::Form;
use crate::codec::json::WatchFrame;
use crate::meta::{Encoding, EventType, Object, ObjectKey, Origin, ResourceVersion};

/// The reflector of one resource, which feeds its cache. When the reflector ends, so does its writer, and the cache is
/// no longer ready.
pub struct Reflector {
    upstream: Upstream,
    lister: ListerWatcher,
    writer: Writer,
    config: ReflectorConfig,
    machine: Machine,
    handle: Handle,
    form: Option<Form>,
    /// Whether the items of lists have their type. `None` until a list with items has shown it.
    typed_items: Option<bool>,
    stream: Option<EventStream>,
    /// The connection of a watch that said nothing. The next watch is opened on another one.
    avoided: Option<ConnectionId>,
    /// How many objects there were when the form was learned.
    expected: Option<usize>,
    /// The next state is read by a list.
    by_list: bool,
    claims: mpsc::Receiver<Progress>,
    recoveries: watch::Receiver<u64>,
    found: watch::Receiver<u64>,
    /// When an apiserver that was found last ended a wait.
    found_at: Option<Instant>,
    /// The retry queue of all reflectors that wait for the same server.
    queue: Arc<Queue>,
    /// The apiserver has refused it, and it has not followed a stream since.
    refused: bool,
    claim_sender: mpsc::Sender<Progress>,
    /// A sample of the state that did not fit into memory.
    sample: Option<Sample>,
    undecodable: Undecodable,
    /// Reads a saved state, before the first state is read from the apiserver.
    load: Option<LoadSaved>,
    /// A saved state that the apiserver has not confirmed yet.
    saved: Option<Restoration>,
}

/// Number of objects in one page of a list for somebody who would have listed. Most collections are one page.
const LARGE_PAGE: u32 = 5000;

/// Capacity of the claims channel. Senders wait for a free place.
const CLAIMS: usize = 8;

// === impl Reflector ===

impl Reflector {
    pub fn new(upstream: Upstream, lister: ListerWatcher, writer: Writer, config: ReflectorConfig) -> Self {
        let now = Instant::now();
        let paged = is_listed(&upstream, &lister, &config);
        let (claim_sender, claims) = mpsc::channel(CLAIMS);
        let (recoveries, found) = (upstream.recoveries(), upstream.found());
        let queue = upstream.retries().queue(&lister.resource);
        Self {
            machine: Machine::new(paged, config.backoff, config.room, now),
            handle: Handle::new(now),
            upstream,
            lister,
            writer,
            config,
            form: None,
            typed_items: None,
            stream: None,
            avoided: None,
            expected: None,
            by_list: false,
            claims,
            recoveries,
            found,
            found_at: None,
            queue,
            refused: false,
            claim_sender,
            sample: None,
            undecodable: Undecodable::default(),
            load: None,
            saved: None,
        }
    }

    /// Reads its first state as a list, because it is started for somebody who would have listed. A list is compressed, and a
    /// watch-list of the same objects has several times its bytes.
    pub fn by_list(self, by_list: bool) -> Self {
        Self { by_list: by_list && self.lister.encoding != Encoding::Table, ..self }
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Where a [`super::proofs::ProgressProbe`] sends what it has proved.
    pub fn progress_sender(&self) -> mpsc::Sender<Progress> {
        self.claim_sender.clone()
    }

    /// The revision of the state, which may be a saved one that is not confirmed yet; zero if there is none.
    fn at(&self) -> ResourceVersion {
        self.saved.as_ref().map_or(self.writer.newest(), Restoration::rv)
    }

    fn advance(&mut self, outcome: Outcome) {
        let before = self.machine.state();
        self.machine.rv = self.at();
        if matches!(before, State::List | State::ListWhole) || outcome == Outcome::Opened {
            // If that has failed, the state is read as any other.
            self.by_list = false;
        }
        if before == State::WatchList && self.lister.resource.origin == Origin::BuiltIn {
            self.upstream.watch_list_was_marked(outcome == Outcome::Synced);
        } else if before != State::WatchList {
            self.machine.paged = self.by_list || is_listed(&self.upstream, &self.lister, &self.config);
        }
        self.machine.step(outcome, Instant::now());
        let lists = matches!(self.machine.state(), State::Wait { then: Then::List, .. });
        if lists && matches!(outcome, Outcome::Silent { .. }) {
            // No watch delivers what was missed after our revision, so it may lie before it.
            self.writer.lacks_after(ResourceVersion::ZERO);
        }
        if matches!(outcome, Outcome::Learned | Outcome::Synced | Outcome::Current(_) | Outcome::Opened) {
            self.handle.heard(Instant::now());
        }
        match self.machine.state() {
            State::Wait { haste, .. } => {
                self.refused |= haste == Haste::Answer;
                self.queue.trouble();
            }
            State::Follow if std::mem::take(&mut self.refused) => self.queue.answered(),
            _ => {}
        }
        let machine = &self.machine;
        if machine.state() != State::Follow {
            self.stream = None;
        }
        if machine.reads_anew() {
            self.saved = None;
        }
        if machine.paged && before == State::WatchList {
            self.upstream.watch_list_refused(&self.lister.resource.gvr.group);
        }
        tracing::debug!(resource = %self.lister.resource.gvr, from = before.as_str(), ?outcome, to = ?machine.state(), "reflector");
        let synced = !self.writer.resource_version().is_zero();
        if machine.state() == State::Follow && self.handle.status().failing.is_some() {
            tracing::info!(resource = %self.lister.resource.gvr, rv = %self.writer.resource_version(), "reflector follows again");
        }
        let (is_answered, paged) = (self.upstream.is_reachable(), machine.paged && !self.by_list);
        self.handle.reached(self.writer.resource_version());
        self.handle.update(|status| {
            if matches!(machine.state(), State::Wait { .. }) {
                // An apiserver that asks for patience would only get more requests if readers were forwarded.
                let counts = is_answered && status.failing != Some(429);
                status.failures = status.failures.saturating_add(counts.into());
            } else if synced {
                status.failures = 0;
            }
            status.state = machine.state().as_str();
            status.since = machine.since;
            status.retry_at = machine.retry_at();
            status.synced = synced;
            status.stuck = !synced && status.failures >= STUCK;
            (status.relists, status.restarts) = (machine.syncs.saturating_sub(1), machine.restarts);
            (status.rewinds, status.paged, status.silences) = (machine.rewinds, paged, machine.silences);
            if machine.state() == State::Follow {
                status.failing = None;
                (status.too_large, status.undecodable) = (false, false);
            }
        });
    }

    async fn watch_list(&mut self) -> Outcome {
        // By the next one, there may be more.
        let expected = self.expected.take();
        let timeout = self.watch_timeout();
        let path = self.lister.watch_list_path(timeout.as_secs());
        let options = self.lister.options(RequestVerb::WatchList);
        let asked = Asked::now();
        let mut stream =
            match EventStream::open(&self.upstream, &self.lister, &self.config, &path, timeout, options).await {
                Ok(stream) => stream,
                Err(error) => {
                    let failure = self.failed(&error);
                    // A server that does not know the parameters rejects the request as invalid.
                    return match error.code() {
                        Some(400 | 405 | 422 | 501) if error.is_refusal() => Outcome::Failed(Failure::Refused),
                        // An answer without a reason may come from a proxy before the server.
                        Some(400 | 405 | 422 | 501) => Outcome::Unfinished,
                        _ => failure,
                    };
                }
            };
        let mut objects: BTreeMap<ObjectKey, Arc<Object>> = BTreeMap::new();
        let mut load = Load::default();
        loop {
            let (idle, has_all) = self.silence(expected, objects.len());
            match stream.next(Instant::now() + idle).await {
                Ok(Some(WatchFrame::Event { kind, object, type_meta })) => {
                    if objects.is_empty() {
                        self.seen(&type_meta);
                    }
                    match kind {
                        EventType::Deleted => objects.remove(&object.key),
                        EventType::Added | EventType::Modified => match load.take(&self.writer, object) {
                            Ok(object) => objects.insert(object.key.clone(), object),
                            Err(full) => {
                                // Free the memory before anything else.
                                drop(std::mem::take(&mut objects));
                                return self.full(full, &load);
                            }
                        },
                    };
                }
                Ok(Some(WatchFrame::Bookmark { rv, initial_events_end: true, object, .. })) => {
                    self.writer.set_bookmark_template(object);
                    stream.last = rv;
                    self.lister.meter.listed(objects.len(), stream.sizes());
                    if !objects.is_empty() {
                        self.learn_items().await;
                    }
                    let outcome = self.replace(objects.into_values().collect(), rv, asked).await;
                    if outcome == Outcome::Synced {
                        self.stream = Some(stream);
                    }
                    return outcome;
                }
                Ok(Some(WatchFrame::Bookmark { .. })) => {}
                Ok(Some(WatchFrame::Error(status))) => return self.failed(&UpstreamError::Status(Box::new(status))),
                Ok(None) => {
                    self.note("the watch ended before the end of its initial events", 0);
                    return Outcome::Ended { heard: !objects.is_empty() };
                }
                Err(UpstreamError::Timeout { .. }) if has_all => {
                    self.note("the server does not mark the end of initial events: it is listed instead", 0);
                    return Outcome::Unmarked;
                }
                Err(error) => {
                    let unfinished = !objects.is_empty() || matches!(error, UpstreamError::Timeout { .. });
                    return match self.broken(&error) {
                        Outcome::Broken if unfinished => Outcome::Unfinished,
                        outcome => outcome,
                    };
                }
            }
        }
    }

    /// All pages show the revision of the first one: the continue token pins it.
    async fn list(&mut self, page_size: u32) -> Outcome {
        let options = self.lister.options(RequestVerb::List);
        let (mut objects, mut load, mut full) = (Vec::new(), Load::default(), None);
        let (mut token, mut pinned, asked) = (String::new(), None, Asked::now());
        loop {
            let mut first = None;
            let path = self.lister.list_path(page_size, &token);
            let page = read_page(&self.upstream, &self.lister, &self.config, &path, &options, |object, meta| {
                first.get_or_insert(meta);
                match load.take(&self.writer, object) {
                    Ok(object) => objects.push(object),
                    Err(error) => full = Some(error),
                }
                full.is_none()
            });
            let meta = match page.await {
                Ok(Some(meta)) if self.by_list && meta.rv.is_zero() => {
                    return self.unversioned("the list has no resource version");
                }
                Ok(Some(meta)) => meta,
                Ok(None) => {
                    drop(objects);
                    return full.map_or(Outcome::Failed(Failure::Other), |full| self.full(full, &load));
                }
                Err(error) if self.by_list && error.is_about_revisions() => {
                    return self.unversioned(&error.to_string());
                }
                Err(error) => return self.failed(&error),
            };
            // The continue token pins the revision. Pages of different states are no state.
            if *pinned.get_or_insert(meta.rv) != meta.rv {
                self.note("the pages of a list have different revisions", 0);
                return Outcome::Failed(Failure::Expired);
            }
            self.learned(&meta);
            if let Some(meta) = &first {
                self.seen(meta);
            }
            if meta.continue_token.is_empty() {
                return self.replace(objects, meta.rv, asked).await;
            }
            token = meta.continue_token;
        }
    }

    /// Takes a whole state. The question for it was sent after `asked`, and named no revision: the apiserver then first asks
    /// its store for the present one (a quorum read), whatever its own cache has, and answers with at least that.
    async fn replace(&mut self, objects: Vec<Arc<Object>>, rv: ResourceVersion, asked: Asked) -> Outcome {
        if rv.is_zero() {
            self.note("the whole state has no resource version", 0);
            return Outcome::Failed(Failure::Other);
        }
        // Whoever waits for the first state is woken by it, and must know then what it proves. Before it, there is nothing to serve.
        if !self.writer.is_ready() {
            self.handle.took((asked, rv));
        }
        match self.writer.replace(objects, rv).await {
            Ok(replaced) => {
                self.handle.took((asked, rv));
                tracing::debug!(resource = %self.lister.resource.gvr, %rv, ?replaced, "took a whole state");
                Outcome::Synced
            }
            Err(error) => {
                self.note(&error.to_string(), 0);
                match error {
                    ReplaceError::WentBack { .. } => Outcome::WentBack,
                    ReplaceError::Ahead { .. } => Outcome::Failed(Failure::Other),
                }
            }
        }
    }

    /// Reads the present revision of the store behind the apiserver: a list without a resourceVersion is consistent.
    async fn current(&mut self) -> Outcome {
        match questions::revision(&self.upstream, &self.lister).await {
            Ok((rv, _connection)) => {
                let ours = self.writer.newest();
                if rv < ours {
                    self.note(&format!("the apiserver is at resource version {rv}, behind ours, {ours}"), 0);
                }
                Outcome::Current(rv)
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn watch(&mut self) -> Outcome {
        let timeout = self.watch_timeout();
        let from = self.saved.as_ref().map_or_else(|| self.writer.certain(), Restoration::rv);
        let path = self.lister.watch_path(from, timeout.as_secs());
        let options = self.lister.options(RequestVerb::Watch).off(self.avoided);
        match EventStream::open(&self.upstream, &self.lister, &self.config, &path, timeout, options).await {
            Ok(mut stream) => {
                self.avoided = None;
                if let Err(outcome) = self.restore(&mut stream).await {
                    return outcome;
                }
                stream.last = from;
                self.stream = Some(stream);
                Outcome::Opened
            }
            Err(error) => self.failed(&error),
        }
    }
}

/// Whether whole states are read by lists instead of by watch-lists.
fn is_listed(upstream: &Upstream, lister: &ListerWatcher, config: &ReflectorConfig) -> bool {
    // A whole table costs the apiserver less than as many events of one row each, and is compressed. Many aggregated servers
    // ignore what asks for a watch-list, and readers would wait until that is certain.
    lister.encoding == Encoding::Table
        || lister.resource.origin == Origin::Unknown
        || upstream.refuses_watch_list(&lister.resource.gvr.group, config.refused_for)
}
