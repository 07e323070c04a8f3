//! The multiplexer of `Sync`: many watches on one stream, with flow control by credit. A watch is polled for a frame
//! only when it may have one and has credit. Among those, the watch that has sent the fewest bytes goes first. There is
//! no queue here: unsent events stay in the cache.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio_stream::Stream;
use tonic::Status;

use super::service::Objects;
use super::watch::TypedWatch;
use crate::grpc::call::{Caller, Error, Intake, Retiring, status};
use crate::grpc::messages::{Message, Messages, WatchMessage};
use crate::grpc::pb::v1::sync_request::Action;
use crate::grpc::pb::v1::watch_response::Frame;
use crate::grpc::pb::v1::{AddWatch, Credit, Goodbye, SyncRequest, goodbye};
use crate::lifecycle::ending::Ending;
use crate::lifecycle::woken::{WakeOne, Woken};
use crate::telemetry::gauge::Raised;

/// The requests of one stream.
pub(super) type Inbound = Pin<Box<dyn Stream<Item = Result<SyncRequest, Status>> + Send>>;

/// One stream with many watches.
pub(super) struct SyncStream {
    objects: Objects,
    caller: Caller,
    /// The account of the requests. A watch that opens takes that of its request along.
    intake: Option<Intake>,
    /// `None` once the client has closed its side of the stream.
    inbound: Option<Inbound>,
    watches: HashMap<u64, SyncWatch>,
    /// Watches that may have a frame and have credit. The watch that has sent the fewest bytes comes first.
    ready: BTreeSet<(u64, u64)>,
    /// The byte count of the watch that was served last. A new watch starts with it, so it has neither an advantage
    /// nor a disadvantage.
    clock: u64,
    woken: Arc<Woken>,
    /// The last frames of watches. They need no credit.
    last: VecDeque<Message>,
    drain: Pin<Box<dyn Future<Output = goodbye::Reason> + Send>>,
    over: bool,
    /// The last poll stopped early to let others run.
    is_paused: bool,
    _open: Raised,
}

/// A watch of the stream, and its credit.
struct SyncWatch {
    state: SyncWatchState,
    frames: u64,
    /// Negative after a frame that was larger than the remaining credit.
    bytes: i64,
    /// The bytes sent, plus the value that it started with.
    sent: u64,
    /// Whether it may have a frame but waits for credit.
    starved: bool,
    wake: Arc<WakeOne>,
    waker: Waker,
}

enum SyncWatchState {
    Opening(Pin<Box<dyn Future<Output = Result<TypedWatch, Status>> + Send>>),
    Open(Box<TypedWatch>),
}

const DEFAULT_FRAMES: u64 = 64;
const DEFAULT_BYTES: u64 = 4 << 20;
const MAX_WATCHES: usize = 4096;
/// What a watch that has paused counts as if it had sent it, in bytes.
const PAUSE: u64 = 32 << 10;
/// The most requests to handle before frames are sent again.
const MAX_REQUESTS: usize = 64;
/// The most last frames that wait for the client. At this limit no request is read until the client has read some of
/// them.
const MAX_LAST: usize = 256;

// === impl SyncStream ===

impl SyncStream {
    pub(super) fn new(objects: Objects, caller: Caller, inbound: Inbound, retiring: &Retiring) -> Self {
        let (ending, retired) = (Ending::new(&objects.drain, objects.drain_spread, Duration::ZERO), retiring.wait());
        Self {
            caller,
            intake: Intake::current(),
            inbound: Some(inbound),
            watches: HashMap::new(),
            ready: BTreeSet::new(),
            clock: 0,
            woken: Arc::default(),
            last: VecDeque::new(),
            drain: Box::pin(async move {
                tokio::select! {
                    () = ending.come() => goodbye::Reason::Draining,
                    () = retired => goodbye::Reason::ConnectionAge,
                }
            }),
            over: false,
            is_paused: false,
            _open: Raised::new(&objects.metrics.syncs_open),
            objects,
        }
    }

    /// # Errors
    /// An error that ends the whole stream.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..MAX_REQUESTS {
            // The stream is polled again for each last frame.
            if self.last.len() >= MAX_LAST {
                return Ok(());
            }
            let Some(inbound) = &mut self.inbound else { return Ok(()) };
            match inbound.as_mut().poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.inbound = None,
                Poll::Ready(Some(request)) => {
                    self.request(request.map_err(status::understood)?)?;
                    if let Some(intake) = &self.intake {
                        // A watch has taken over what it keeps of the request.
                        intake.hand_over();
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn request(&mut self, request: SyncRequest) -> Result<(), Status> {
        let id = request.watch_id;
        match request.action {
            None => return Err(Error::invalid("a request on the stream has no action").into()),
            Some(Action::Add(_)) if self.watches.contains_key(&id) => {
                return Err(Error::invalid(format!("watch {id} is already open on this stream")).into());
            }
            Some(Action::Add(_)) if self.watches.len() >= MAX_WATCHES => {
                let full = Error::too_many(format!("{MAX_WATCHES} watches are open on this stream"));
                self.last.push_back(failed(id, &full.into()));
            }
            Some(Action::Add(add)) => self.add(id, add),
            // A watch that does not exist may already have ended.
            Some(Action::Remove(_)) => {
                if let Some(entry) = self.watches.remove(&id) {
                    self.ready.remove(&(entry.sent, id));
                    self.last.push_back(Message::Sync(id, entry.leave(goodbye::Reason::Removed)));
                }
            }
            Some(Action::Credit(credit)) => self.grant(id, &credit),
        }
        Ok(())
    }

    fn add(&mut self, id: u64, add: AddWatch) {
        let (objects, caller) = (self.objects.clone(), self.caller.clone());
        let credit = add.credit.unwrap_or(Credit { frames: DEFAULT_FRAMES, bytes: DEFAULT_BYTES });
        let request = add.watch.unwrap_or_default();
        let account = self.intake.as_ref().map(|intake| intake.of_message(&objects.ledger)).transpose();
        let account = match account {
            Ok(account) => account,
            Err(error) => return self.last.push_back(failed(id, &error.into())),
        };
        let opening = async move {
            let opening = objects.watch_for(&caller, request);
            match account {
                Some(account) => account.during(opening).await,
                None => opening.await,
            }
        };
        let wake = self.woken.one(id, false);
        let entry = SyncWatch {
            state: SyncWatchState::Opening(Box::pin(opening)),
            frames: credit.frames,
            bytes: i64::try_from(credit.bytes).unwrap_or(i64::MAX),
            sent: self.clock,
            starved: false,
            waker: Waker::from(Arc::clone(&wake)),
            wake,
        };
        self.ready.insert((entry.sent, id));
        self.watches.insert(id, entry);
    }

    fn grant(&mut self, id: u64, credit: &Credit) {
        let Some(entry) = self.watches.get_mut(&id) else { return };
        entry.frames = entry.frames.saturating_add(credit.frames);
        entry.bytes = entry.bytes.saturating_add_unsigned(credit.bytes);
        if entry.starved && entry.has_credit() {
            entry.starved = false;
            entry.sent = entry.sent.max(self.clock);
            self.ready.insert((entry.sent, id));
        }
    }

    /// Marks the watches that were woken: each may have a frame now.
    fn take_woken(&mut self) {
        loop {
            let Some(id) = self.woken.pop() else { return };
            let Some(entry) = self.watches.get_mut(&id) else { continue };
            entry.wake.begins();
            if self.ready.contains(&(entry.sent, id)) {
                continue;
            }
            if entry.has_credit() || matches!(entry.state, SyncWatchState::Opening(_)) {
                entry.sent = entry.sent.max(self.clock);
                self.ready.insert((entry.sent, id));
            } else {
                self.starve(id);
            }
        }
    }

    /// A watch may have a frame, but has no credit. That its permission was revoked is reported without credit, so it is
    /// polled for that, which also lets it be woken then.
    fn starve(&mut self, id: u64) {
        let Some(entry) = self.watches.get_mut(&id) else { return };
        entry.starved = true;
        if let SyncWatchState::Open(watch) = &mut entry.state
            && let Poll::Ready(error) = watch.poll_gone(&mut Context::from_waker(&entry.waker))
        {
            self.watches.remove(&id);
            self.last.push_back(failed(id, &error.into()));
        }
    }

    /// Returns a frame of the watch that has sent the fewest bytes, if any watch has a frame.
    fn next_frame(&mut self, of_stream: &mut Context<'_>) -> Option<Message> {
        while let Some((sent, id)) = self.ready.pop_first() {
            let Some(entry) = self.watches.get_mut(&id) else { continue };
            self.clock = self.clock.max(sent);
            let mut cx = Context::from_waker(&entry.waker);
            let polled = match &mut entry.state {
                SyncWatchState::Open(watch) => {
                    watch.poll_frame(&mut cx).map(|frame| frame.map(|frame| frame.map_err(Status::from)))
                }
                SyncWatchState::Opening(opening) => match opening.as_mut().poll(&mut cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Err(status)) => Poll::Ready(Some(Err(status))),
                    Poll::Ready(Ok(watch)) => {
                        entry.state = SyncWatchState::Open(Box::new(watch));
                        self.offer(id);
                        continue;
                    }
                },
            };
            match polled {
                // The others go on in the next turn, before it.
                Poll::Pending if entry.is_paused() => {
                    entry.sent += PAUSE;
                    self.is_paused = true;
                    of_stream.waker().wake_by_ref();
                    return None;
                }
                Poll::Pending => {}
                Poll::Ready(None) => drop(self.watches.remove(&id)),
                Poll::Ready(Some(Err(status))) => {
                    self.watches.remove(&id);
                    return Some(failed(id, &status));
                }
                Poll::Ready(Some(Ok(response))) => {
                    let message = Message::Sync(id, response);
                    let bytes = message.len() as u64;
                    entry.sent += bytes;
                    entry.frames = entry.frames.saturating_sub(1);
                    entry.bytes = entry.bytes.saturating_sub_unsigned(bytes);
                    if entry.is_paused() {
                        entry.sent += PAUSE;
                        self.is_paused = true;
                    }
                    self.offer(id);
                    return Some(message);
                }
            }
        }
        None
    }

    /// Queues a watch that may have a frame, if it has credit. Removes a watch that has ended.
    fn offer(&mut self, id: u64) {
        let Some(entry) = self.watches.get_mut(&id) else { return };
        if entry.is_over() {
            // The client has its goodbye, and may use the number again.
            self.watches.remove(&id);
            return;
        }
        if !entry.has_credit() {
            return self.starve(id);
        }
        entry.starved = false;
        self.ready.insert((entry.sent, id));
    }

    /// Ends the stream. Every watch gets a goodbye, with or without credit.
    fn leave(&mut self, reason: goodbye::Reason) {
        self.inbound = None;
        self.ready.clear();
        for (id, entry) in self.watches.drain().filter(|(_, entry)| !entry.is_over()) {
            self.last.push_back(Message::Sync(id, entry.leave(reason)));
        }
    }
}

impl Messages for SyncStream {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        self.is_paused = false;
        if self.over {
            return Poll::Ready(None);
        }
        self.woken.register(cx.waker());
        if self.inbound.is_some() || !self.watches.is_empty() {
            if let Poll::Ready(reason) = self.drain.as_mut().poll(cx) {
                self.leave(reason);
            } else if let Err(status) = self.poll_requests(cx) {
                self.over = true;
                return Poll::Ready(Some(Err(status)));
            }
        }
        self.take_woken();
        let next = self.last.pop_front().or_else(|| self.next_frame(cx));
        // A watch may have lost its permission meanwhile.
        if let Some(response) = next.or_else(|| self.last.pop_front()) {
            return Poll::Ready(Some(Ok(response)));
        }
        if self.inbound.is_none() && self.watches.is_empty() {
            self.over = true;
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }
}

fn last(goodbye: Goodbye) -> WatchMessage {
    WatchMessage::new(Bytes::new(), String::new(), Frame::Goodbye(goodbye).into())
}

fn failed(watch_id: u64, status: &Status) -> Message {
    let (error, retry_after) = status::failure(status);
    let goodbye = Goodbye { reason: goodbye::Reason::Failed.into(), retry_after, error: Some(error) };
    Message::Sync(watch_id, last(goodbye))
}

// === impl SyncWatch ===

impl SyncWatch {
    fn has_credit(&self) -> bool {
        self.frames > 0 && self.bytes > 0
    }

    fn is_paused(&self) -> bool {
        matches!(&self.state, SyncWatchState::Open(watch) if watch.is_paused())
    }

    fn is_over(&self) -> bool {
        matches!(&self.state, SyncWatchState::Open(watch) if watch.is_over())
    }

    /// Its goodbye.
    fn leave(self, reason: goodbye::Reason) -> WatchMessage {
        match self.state {
            SyncWatchState::Open(watch) => watch.leave(reason),
            SyncWatchState::Opening(_) => last(Goodbye { reason: reason.into(), ..Goodbye::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::grpc::testing::{caller, objects_of};
    use crate::lifecycle::drain::DrainWatch;
    use crate::memory::{Ledger, Pressure};

    #[tokio::test]
    async fn a_stream_has_so_many_watches_and_is_not_read_while_its_client_does_not_read() {
        let (objects, _writer) = objects_of(Vec::new()).await;
        let add = |watch_id| Ok(SyncRequest { watch_id, action: Some(Action::Add(AddWatch::default())) });
        let without_end = Box::pin(futures_util::stream::iter((0..u64::MAX).map(add)));
        let mut stream = SyncStream::new(objects, caller(), without_end, &Retiring(DrainWatch::never()));
        for turn in 1..100 {
            stream.poll_requests(&mut Context::from_waker(Waker::noop())).unwrap();
            assert_eq!(stream.watches.len(), MAX_WATCHES.min(turn * MAX_REQUESTS));
        }
        assert_eq!(stream.last.len(), MAX_LAST, "the others are refused");
    }

    #[tokio::test]
    async fn a_request_is_counted_until_it_is_handled() {
        let (objects, _writer) = objects_of(Vec::new()).await;
        let ledger = Ledger::new(16 << 20, Pressure::default());
        let intake = Intake::new(&ledger, None, "/informerd.v1.Objects/Sync", false).unwrap();
        let before = ledger.used();
        let credit = SyncRequest { watch_id: 1, action: Some(Action::Credit(Credit { frames: 1, bytes: 1 })) };
        // The last of equal fields counts, but each costs as much as one.
        let message = credit.encode_to_vec().repeat(10_000);
        let inbound = Box::pin(futures_util::stream::iter([Ok(credit)]));
        let open = async { SyncStream::new(objects, caller(), inbound, &Retiring(DrainWatch::never())) };
        let mut stream = intake.clone().during(open).await;
        intake.decode(&message).unwrap();
        assert!(ledger.used() > before + (1 << 20), "{}", ledger.used());
        stream.poll_requests(&mut Context::from_waker(Waker::noop())).unwrap();
        assert_eq!(ledger.used(), before);
    }
}
