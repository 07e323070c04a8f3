//! A controller's work queue, whose keys come from informerd.

use std::collections::HashMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use crate::retry::Retry;
use crate::selection::selection;
use crate::server::LARGEST_MESSAGE;
use crate::v1::queue_client::QueueClient;
use crate::v1::work_request::Action;
use crate::v1::work_response::Frame;
use crate::{Client, Error, Key, Selected, v1};

/// A key with what is known of it.
#[derive(Clone, Debug)]
pub struct Item<T> {
    pub namespace: String,
    pub name: String,
    /// The latest state; `None` if there is no such object, or it is no longer selected.
    pub object: Option<T>,
    /// The last state of the object that had this name before, if its deletion has not been handled yet. Together with
    /// `object`: it was deleted and made anew.
    pub deleted: Option<T>,
    /// 1, and one more for each failure since the key last succeeded.
    pub attempt: u32,
}

const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a handler that succeeded wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key is done until its object changes.
    Done,
    /// It comes again after this time, at most a year.
    After(Duration),
}

/// A worker of a group. All workers of a group, in however many processes, share one queue: each key is in one handler's
/// hands at a time, and comes with the latest state of its object.
pub struct Queue<T> {
    client: Client,
    group: String,
    resource: String,
    selected: Selected,
    workers: u32,
    synced: Option<Box<dyn FnOnce() + Send>>,
    object: PhantomData<fn() -> T>,
}

// === impl Item ===

impl<T> Item<T> {
    /// `namespace/name`, or `name`.
    pub fn key(&self) -> String {
        shown(&self.namespace, &self.name)
    }
}

// === impl Queue ===

impl<T: DeserializeOwned + Send + 'static> Queue<T> {
    /// All workers of a group must name the same resource and selection.
    #[must_use]
    pub fn new(client: &Client, group: &str, resource: &str, selected: Selected) -> Self {
        Self {
            client: client.clone(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            selected,
            workers: 1,
            synced: None,
            object: PhantomData,
        }
    }

    /// How many handlers run at once, as tasks. The default is one.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Called once, when every object that was there has been put into the queue, though perhaps not been handled. The first
    /// keys come before.
    #[must_use]
    pub fn synced(mut self, synced: impl FnOnce() + Send + 'static) -> Self {
        self.synced = Some(Box::new(synced));
        self
    }

    /// Works until it is dropped, or ends with an error that trying again does not help against.
    ///
    /// The handler brings the cluster from the state that is to the state that should be. When it fails, the key comes again
    /// after a back-off that grows. When informerd has given its key to another worker, and when this future is dropped, a
    /// handler is dropped where it waits.
    ///
    /// # Errors
    /// informerd refuses the queue for good.
    pub async fn run<H, F, E>(mut self, handle: H) -> Result<(), Error>
    where
        H: Fn(Item<T>) -> F,
        F: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display,
    {
        let selection = selection(&self.resource, std::mem::take(&mut self.selected))?;
        let what = format!("queue {} of {}", self.group, self.resource);
        let join = v1::JoinGroup { group: self.group.clone(), selections: vec![selection], capacity: self.workers };
        let mut retry = Retry::new(self.client.clone(), what);
        loop {
            retry.begins();
            let mut handlers = Handlers { running: JoinSet::new(), keys: HashMap::new(), what: retry.what.clone() };
            let ended = self.work(join.clone(), &retry, &mut handlers, &handle).await;
            // Before others come, so that there are never more than the capacity.
            handlers.running.shutdown().await;
            let wait = match ended {
                Ok(asked) => retry.after_goodbye(asked),
                Err(status) => retry.after_error(&status)?,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// One stream: while it lives, this is a worker of its group. When it ends, what was in hand goes to the others.
    async fn work<H, F, E>(
        &mut self,
        join: v1::JoinGroup,
        retry: &Retry,
        handlers: &mut Handlers,
        handle: &H,
    ) -> Result<Duration, Status>
    where
        H: Fn(Item<T>) -> F,
        F: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display,
    {
        // There is one answer for each key in hand.
        let (answers, requests) = mpsc::channel(join.capacity as usize);
        let mut request = Request::new(tokio_stream::StreamExt::chain(
            tokio_stream::once(v1::WorkRequest { action: Some(Action::Join(join)) }),
            ReceiverStream::new(requests),
        ));
        self.client.server().authorize(request.metadata_mut())?;
        let channel = self.client.server().channel().map_err(|error| Status::unknown(error.to_string()))?;
        let mut stub = QueueClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
        let mut stream = stub.work(request).await?.into_inner();
        loop {
            let response = tokio::select! {
                response = stream.message() => response?,
                Some(ended) = handlers.running.join_next_with_id() => {
                    if let Some(action) = handlers.answer(ended) {
                        answers.send(v1::WorkRequest { action: Some(action) }).await.ok(); // The stream tells why it failed.
                    }
                    continue;
                }
            };
            let Some(response) = response else { return Ok(Duration::ZERO) };
            retry.alive();
            match response.frame {
                Some(Frame::Items(items)) => items.items.into_iter().for_each(|item| handlers.start(item, handle)),
                Some(Frame::Synced(_)) => self.synced.take().into_iter().for_each(|synced| synced()),
                Some(Frame::Goodbye(goodbye)) => {
                    return Ok(goodbye.retry_after.and_then(|wait| wait.try_into().ok()).unwrap_or_default());
                }
                Some(Frame::Joined(_)) | None => {}
            }
        }
    }
}

/// The handlers that run, never more than the capacity. They end with the stream.
struct Handlers {
    running: JoinSet<Result<Outcome, String>>,
    /// The key of each, with the number of its attempt.
    keys: HashMap<Id, (v1::ItemRef, u32)>,
    what: String,
}

// === impl Handlers ===

impl Handlers {
    fn start<T, H, F, E>(&mut self, item: v1::Item, handle: &H)
    where
        T: DeserializeOwned,
        H: Fn(Item<T>) -> F,
        F: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display,
    {
        let Some(key) = item.r#ref.clone() else { return };
        let attempt = item.attempt;
        let task = match parsed(item, &key) {
            Ok(item) => {
                let handled = handle(item);
                self.running.spawn(async { handled.await.map_err(|error| error.to_string()) })
            }
            Err(error) => self.running.spawn(async move { Err(error.to_string()) }),
        };
        self.keys.insert(task.id(), (key, attempt));
    }

    fn answer(&mut self, ended: Result<(Id, Result<Outcome, String>), JoinError>) -> Option<Action> {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => (error.id(), Err(error.to_string())), // It has panicked.
        };
        let (key, attempt) = self.keys.remove(&id)?;
        Some(match outcome {
            Ok(Outcome::Done) => Action::Done(key),
            Ok(Outcome::After(delay)) => {
                let delay = delay.min(LONGEST_DELAY).try_into().unwrap_or_default();
                Action::AddAfter(v1::AddAfter { item: Some(key), delay: Some(delay) })
            }
            Err(error) => {
                let shown = shown(&key.namespace, &key.name);
                tracing::error!("{}: {shown} failed at attempt {attempt}, and comes again: {error}", self.what);
                Action::Retry(key)
            }
        })
    }
}

fn parsed<T: DeserializeOwned>(item: v1::Item, key: &v1::ItemRef) -> Result<Item<T>, serde_json::Error> {
    let parse = |object: v1::Object| serde_json::from_slice(&object.object);
    Ok(Item {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        object: item.object.map(parse).transpose()?,
        deleted: item.deleted.map(parse).transpose()?,
        attempt: item.attempt,
    })
}

fn shown(namespace: &str, name: &str) -> String {
    Key { namespace: namespace.to_owned(), name: name.to_owned(), ..Key::default() }.to_string()
}
