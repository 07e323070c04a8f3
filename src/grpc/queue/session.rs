//! The stream of one worker: it sends keys and receives results.

use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use futures_util::stream;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::super::Streamed;
use super::super::call::{Error, Intake, Retiring, Right, SMALL, room, status, understood};
use super::super::pb::v1;
use super::super::pb::v1::work_request::Action;
use super::super::pb::v1::work_response::Frame;
use super::group::QueueKey;
use super::groups::Member;
use super::request;
use crate::lifecycle;
use crate::memory::{Ledger, Reservation};
use crate::workqueue::{Handed, Outcome};

/// No key is added to a frame of this size or more, in bytes. If memory is not plentiful, the limit is [`LITTLE`].
const FRAME: usize = 256 << 10;
/// Every worker has memory for two frames of this size: one that waits for the transport, and one in the transport.
const LITTLE: usize = SMALL / 2;
/// The most keys of one frame.
const KEYS: usize = 128;
/// The most frames that wait for the transport. Their keys already count as held by the worker.
const WAITING: usize = 1;
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

struct Session {
    member: Member,
    /// The permission for everything that the group selects.
    right: Right,
    /// The numbers of the deletions that were sent to this worker and that it has not answered yet.
    shown: HashMap<QueueKey, u64>,
    retiring: Retiring,
    ledger: Ledger,
    /// The account of the worker's requests.
    intake: Option<Intake>,
    _place: Reservation,
}

/// A frame for the worker, and its reservation if the frame is large.
#[derive(Default)]
struct Outgoing {
    frame: Option<Frame>,
    room: Option<Reservation>,
}

type Sender = mpsc::Sender<(Result<v1::WorkResponse, Status>, Option<Reservation>)>;

/// The memory in bytes that is reserved for each worker while it is connected.
pub(super) const PLACE: usize = 2 * LITTLE;

/// Serves one worker until either side ends. `place` is a reservation of [`PLACE`] bytes.
pub(super) fn start(
    member: Member,
    right: Right,
    requests: Streaming<v1::WorkRequest>,
    retiring: Retiring,
    ledger: Ledger,
    place: Reservation,
) -> Streamed<v1::WorkResponse> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let intake = Intake::current();
    if let Some(intake) = &intake {
        // The request to join is dropped: the group has an account of its selections.
        intake.hand_over();
    }
    let session = Session { member, right, shown: HashMap::new(), retiring, ledger, intake, _place: place };
    lifecycle::spawn("queue worker", session.run(requests, sender));
    Box::pin(stream::unfold((receiver, None), |(mut receiver, before)| async move {
        // The stream is polled again only after the frame before was sent, so its reservation can be released.
        drop::<Option<Reservation>>(before);
        let (response, room) = receiver.recv().await?;
        Some((response, (receiver, room)))
    }))
}

// === impl Session ===

impl Session {
    async fn run(mut self, mut requests: Streaming<v1::WorkRequest>, sender: Sender) {
        match self.serve(&mut requests, &sender).await {
            Ok(None) => {}
            // A worker that does not read it is disconnected at the drain's deadline.
            Ok(Some(goodbye)) => {
                let response = v1::WorkResponse { frame: Some(Frame::Goodbye(goodbye)) };
                sender.send((Ok(response), None)).await.ok();
            }
            Err(status) => {
                // What the worker holds is released first, even if it never reads the error. It still sees the end of the
                // stream.
                drop(self);
                sender.send((Err(status), None)).await.ok();
            }
        }
    }

    /// Returns the goodbye, or `None` if the worker has disconnected or has closed its side of the stream.
    ///
    /// # Errors
    /// The group has ended, a request is wrong, or the permission for what the group selects was revoked.
    async fn serve(
        &mut self,
        requests: &mut Streaming<v1::WorkRequest>,
        sender: &Sender,
    ) -> Result<Option<v1::Goodbye>, Status> {
        let mut synced = self.member.group.synced.subscribe();
        let mut end = self.member.group.end.subscribe();
        let drain = self.member.drain.clone();
        let workers = u32::try_from(*self.member.group.workers.borrow()).unwrap_or(u32::MAX);
        let mut outgoing = Outgoing::from(Frame::Joined(v1::Joined { workers }));
        let mut told_synced = false;
        let mut retired = self.retiring.wait();
        let mut reason = v1::goodbye::Reason::Draining;
        loop {
            // The task that drains the group may not have run yet.
            if drain.is_draining() {
                self.member.group.queue.drain();
            }
            // Keep reading results while a frame waits for the transport. Otherwise a worker that writes before it
            // reads would block.
            tokio::select! {
                biased;
                over = over(&mut end) => return Err(over.into()),
                gone = poll_fn(|cx| self.right.poll_gone(cx)) => return Err(gone.into()),
                () = sender.closed() => return Ok(None),
                () = drain.forced() => return Err(Error::draining().into()),
                () = &mut retired, if reason == v1::goodbye::Reason::Draining => {
                    reason = v1::goodbye::Reason::ConnectionAge;
                    self.member.worker.retire();
                }
                request = requests.message() => match request.map_err(understood)? {
                    Some(v1::WorkRequest { action: Some(action) }) => self.act(action)?,
                    Some(v1::WorkRequest { action: None }) => {
                        return Err(Error::invalid("the request has no action that this version knows").into());
                    }
                    None => return Ok(None),
                },
                permit = sender.reserve(), if outgoing.frame.is_some() => {
                    let Ok(permit) = permit else { return Ok(None) };
                    let Outgoing { frame, room } = std::mem::take(&mut outgoing);
                    permit.send((Ok(v1::WorkResponse { frame }), room));
                }
                // Take keys only after the transport has taken the frame before.
                permit = sender.reserve(), if outgoing.frame.is_none() && sender.capacity() == 0 => {
                    let Ok(_) = permit else { return Ok(None) };
                }
                _ = synced.wait_for(|synced| *synced), if !told_synced && outgoing.frame.is_none() => {
                    told_synced = true;
                    outgoing = Frame::Synced(v1::Synced {}).into();
                }
                handed = self.member.worker.next(), if outgoing.frame.is_none() && sender.capacity() > 0 => {
                    let Some(handed) = handed else {
                        let is_draining = reason == v1::goodbye::Reason::Draining;
                        let retry_after = is_draining.then(|| status::duration(Duration::from_secs(1)));
                        return Ok(Some(v1::Goodbye { reason: reason.into(), retry_after, error: None }));
                    };
                    outgoing = self.items(handed)?;
                }
            }
        }
    }

    /// Handles a worker's request.
    fn act(&mut self, action: Action) -> Result<(), Error> {
        if let Some(intake) = &self.intake {
            // Nothing of it is kept.
            intake.hand_over();
        }
        match action {
            Action::Join(_) => Err(Error::invalid("this worker has joined already")),
            Action::Done(item) => self.answer(&self.member.group.key(Some(&item))?, Outcome::Done),
            Action::Retry(item) => self.answer(&self.member.group.key(Some(&item))?, Outcome::Retry),
            Action::AddAfter(v1::AddAfter { item, delay }) => {
                let key = self.member.group.key(item.as_ref())?;
                // A delay out of range concerns one key. An error would end the stream with all keys of the worker.
                let delay = delay.and_then(|delay| Duration::try_from(delay).ok()).unwrap_or_default();
                let delay = delay.min(LONGEST_DELAY);
                if self.member.worker.holds(&key) {
                    self.answer(&key, Outcome::After(delay))?;
                } else {
                    self.member.group.add_after(&key, delay);
                }
                Ok(())
            }
            Action::Forget(item) => {
                let key = self.member.group.key(Some(&item))?;
                self.member.worker.forget(&key).map_err(|error| Error::invalid(error.to_string()))
            }
            Action::Resync(v1::Resync {}) => {
                self.member.group.resync.notify_one();
                Ok(())
            }
            Action::Capacity(v1::Capacity { keys }) => {
                self.member.worker.set_credit(request::capacity(keys)?);
                Ok(())
            }
        }
    }

    fn answer(&mut self, key: &QueueKey, outcome: Outcome) -> Result<(), Error> {
        let shown = self.shown.remove(key);
        if let (Outcome::Done, Some(deletion)) = (outcome, shown) {
            // Do this before another worker can get the key.
            self.member.group.handled(key, deletion);
        }
        self.member.worker.answer(key, outcome).map_err(|error| Error::invalid(error.to_string()))
    }

    /// Builds a frame with this key and the other keys that are available now.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: there is not enough memory for an unusually large object.
    fn items(&mut self, first: Handed<QueueKey>) -> Result<Outgoing, Error> {
        let mut items = Vec::new();
        let (mut size, mut room) = (0, None);
        let mut next = Some(first);
        while let Some(handed) = next {
            match self.member.group.item(&handed) {
                Ok(Some((item, deleted))) => {
                    size += item.encoded_len();
                    items.push(item);
                    if let Some(deleted) = deleted {
                        self.shown.insert(handed.key, deleted);
                    }
                }
                // Its deletion was handled while the key waited for a retry.
                Ok(None) => self.answer(&handed.key, Outcome::Done).unwrap_or_default(),
                // The other keys go on. It counts as a retry.
                Err(damaged) => {
                    tracing::warn!(key = ?handed.key, %damaged, "an object of a queue cannot be sent, trying again");
                    self.answer(&handed.key, Outcome::Retry).unwrap_or_default();
                }
            }
            if size >= LITTLE && room.is_none() {
                room = self.ledger.spare(FRAME).ok();
            }
            let most = if room.is_some() { FRAME } else { LITTLE };
            next = (size < most && items.len() < KEYS).then(|| self.member.worker.try_next()).flatten();
        }
        let frame = (!items.is_empty()).then_some(Frame::Items(v1::Items { items }));
        if size > room.as_ref().map_or(LITTLE, Reservation::bytes) + LITTLE {
            drop(room.take());
            room = Some(room::reserve(&self.ledger, size)?);
        }
        Ok(Outgoing { frame, room })
    }
}

// === impl Outgoing ===

impl From<Frame> for Outgoing {
    fn from(frame: Frame) -> Self {
        Self { frame: Some(frame), room: None }
    }
}

/// Waits until the group has ended and returns the reason.
async fn over(end: &mut tokio::sync::watch::Receiver<Option<Error>>) -> Error {
    match end.wait_for(Option::is_some).await {
        Ok(error) => error.clone().unwrap_or_else(Error::draining),
        Err(_) => Error::draining(),
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
