//! One worker's stream: keys out, answers in.

use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::super::Streamed;
use super::super::access::Right;
use super::super::convert;
use super::super::pb::v1;
use super::super::pb::v1::work_request::Action;
use super::super::pb::v1::work_response::Frame;
use super::super::retiring::Retiring;
use super::super::status::{self, Error};
use super::group::QueueKey;
use super::groups::Member;
use super::request;
use crate::lifecycle;
use crate::workqueue::{Deleted, Handed, Outcome, Why};

/// A frame takes no further key beyond this size.
const FRAME: usize = 256 << 10;
/// Keys of one frame.
const KEYS: usize = 128;
/// Frames that wait for the transport: what is in them is in the worker's hands already.
const WAITING: usize = 1;
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

struct Session {
    member: Member,
    /// To all that the group selects.
    right: Right,
    /// The deletions that this worker was shown and has not answered for.
    shown: HashMap<QueueKey, Deleted>,
    retiring: Retiring,
}

/// What comes next of a session.
enum Turn {
    Request(Action),
    Keys(Handed<QueueKey>),
    Sent,
    Synced,
    /// The worker is gone, or has said all it wanted.
    Left,
    /// The connection is to end.
    Retired,
    /// Nothing more will be handed out.
    Drained,
    Over(Error),
    /// The worker may not see any more what the group selects.
    Gone(Error),
}

/// Serves one worker until either side ends.
pub(super) fn start(
    member: Member,
    right: Right,
    requests: Streaming<v1::WorkRequest>,
    retiring: Retiring,
) -> Streamed<v1::WorkResponse> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let session = Session { member, right, shown: HashMap::new(), retiring };
    lifecycle::spawn("queue worker", session.run(requests, sender));
    Box::pin(ReceiverStream::new(receiver))
}

// === impl Session ===

impl Session {
    async fn run(
        mut self,
        mut requests: Streaming<v1::WorkRequest>,
        sender: mpsc::Sender<Result<v1::WorkResponse, Status>>,
    ) {
        let mut synced = self.member.group.synced.subscribe();
        let mut end = self.member.group.end.subscribe();
        let drain = self.member.drain.clone();
        let workers = u32::try_from(*self.member.group.workers.borrow()).unwrap_or(u32::MAX);
        let mut outgoing = Some(Frame::Joined(v1::Joined { workers }));
        let mut told_synced = false;
        let mut retired = self.retiring.wait();
        let mut reason = v1::goodbye::Reason::Draining;
        loop {
            // Answers are read while a frame waits for the transport: a worker that writes before it reads is not stuck.
            let turn = tokio::select! {
                biased;
                over = over(&mut end) => Turn::Over(over),
                gone = poll_fn(|cx| self.right.poll_gone(cx)) => Turn::Gone(gone),
                () = sender.closed() => Turn::Left,
                () = drain.forced() => Turn::Over(Error::draining()),
                () = &mut retired, if reason == v1::goodbye::Reason::Draining => Turn::Retired,
                request = requests.message() => match request {
                    Ok(Some(v1::WorkRequest { action: Some(action) })) => Turn::Request(action),
                    Ok(Some(v1::WorkRequest { action: None })) => {
                        Turn::Over(Error::invalid("the request has no action that this version knows"))
                    }
                    Ok(None) | Err(_) => Turn::Left,
                },
                permit = sender.reserve(), if outgoing.is_some() => match (permit, outgoing.take()) {
                    (Ok(permit), Some(frame)) => {
                        permit.send(Ok(v1::WorkResponse { frame: Some(frame) }));
                        Turn::Sent
                    }
                    _ => Turn::Left,
                },
                _ = synced.wait_for(|synced| *synced), if !told_synced && outgoing.is_none() => Turn::Synced,
                handed = self.member.worker.next(), if outgoing.is_none() => match handed {
                    Some(handed) => Turn::Keys(handed),
                    None => Turn::Drained,
                },
            };
            match turn {
                Turn::Request(action) => {
                    if let Err(error) = self.act(action) {
                        return fail(&sender, error).await;
                    }
                }
                Turn::Keys(first) => outgoing = self.items(first),
                Turn::Synced => {
                    told_synced = true;
                    outgoing = Some(Frame::Synced(v1::Synced {}));
                }
                Turn::Sent => {}
                Turn::Retired => {
                    reason = v1::goodbye::Reason::ConnectionAge;
                    self.member.worker.retire();
                }
                Turn::Left => return,
                Turn::Drained => {
                    let goodbye = v1::Goodbye {
                        reason: reason.into(),
                        retry_after: (reason == v1::goodbye::Reason::Draining)
                            .then(|| status::duration(Duration::from_secs(1))),
                        error: None,
                    };
                    // A worker that does not read is cut at the drain's deadline.
                    sender.send(Ok(v1::WorkResponse { frame: Some(Frame::Goodbye(goodbye)) })).await.ok();
                    return;
                }
                Turn::Over(error) => return fail(&sender, error).await,
                Turn::Gone(error) => {
                    // Whether it hears of it or not, its keys are somebody else's now.
                    drop(self);
                    return fail(&sender, error).await;
                }
            }
        }
    }

    /// What a worker says of a key.
    fn act(&mut self, action: Action) -> Result<(), Error> {
        match action {
            Action::Join(_) => Err(Error::invalid("this worker has joined already")),
            Action::Done(item) => self.answer(&self.member.group.key(Some(&item))?, Outcome::Done),
            Action::Retry(item) => self.answer(&self.member.group.key(Some(&item))?, Outcome::Retry),
            Action::AddAfter(v1::AddAfter { item, delay }) => {
                let key = self.member.group.key(item.as_ref())?;
                let delay = convert::span(delay.as_ref(), "delay")?.unwrap_or_default();
                if delay > LONGEST_DELAY {
                    return Err(Error::invalid("a key is queued at most a year ahead"));
                }
                if self.member.worker.holds(&key) {
                    self.answer(&key, Outcome::After(delay))?;
                } else if self.member.group.is_selected(&key) {
                    // Only what is there: so the queue is no longer than its objects and deletions.
                    self.member.group.queue.add_after(&key, delay, Why::AFTER);
                }
                Ok(())
            }
            Action::Forget(item) => {
                let key = self.member.group.key(Some(&item))?;
                self.member.worker.forget(&key).map_err(|error| Error::invalid(error.to_string()))
            }
            Action::Resync(v1::Resync {}) => {
                self.member.group.resync();
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
        if let (Outcome::Done, Some(shown)) = (outcome, &shown) {
            // Before the key goes to somebody else.
            self.member.group.handled(key, shown);
        }
        self.member.worker.answer(key, outcome).map_err(|error| Error::invalid(error.to_string()))
    }

    /// A frame of this key and of what else there is at once.
    fn items(&mut self, first: Handed<QueueKey>) -> Option<Frame> {
        let mut items = Vec::new();
        let mut size = 0;
        let mut next = Some(first);
        while let Some(handed) = next {
            match self.member.group.item(&handed) {
                Some((item, deleted)) => {
                    size += item.encoded_len();
                    items.push(item);
                    if let Some(deleted) = deleted {
                        self.shown.insert(handed.key, deleted);
                    }
                }
                // Its deletion was handled while it waited for another attempt.
                None => self.answer(&handed.key, Outcome::Done).unwrap_or_default(),
            }
            next = (size < FRAME && items.len() < KEYS).then(|| self.member.worker.try_next()).flatten();
        }
        (!items.is_empty()).then_some(Frame::Items(v1::Items { items }))
    }
}

/// Waits until the group is over, and says why.
async fn over(end: &mut tokio::sync::watch::Receiver<Option<Error>>) -> Error {
    match end.wait_for(Option::is_some).await {
        Ok(error) => error.clone().unwrap_or_else(Error::draining),
        Err(_) => Error::draining(),
    }
}

/// The last word; whoever does not read it learns it from the end of the stream.
async fn fail(sender: &mpsc::Sender<Result<v1::WorkResponse, Status>>, error: Error) {
    sender.send(Err(error.into())).await.ok();
}
