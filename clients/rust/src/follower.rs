//! What one consumer knows, without a wire.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tonic::{Code, Status};

use crate::v1::event::Type;
use crate::v1::watch_request::Start;
use crate::v1::watch_response::Frame;
use crate::{Error, retry, v1};

/// What tells objects apart. It is shown as `namespace/name`, or `name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Empty for types without namespaces.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// What has become of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<T> {
    Added(Key, T),
    Modified(Key, T),
    /// With its last state, which is not known of an object that was deleted while the watch was interrupted.
    Deleted(Key, Option<T>),
    /// Comes once, when all objects that were there at first have been told.
    Synced,
}

type Name = (String, String);

pub(crate) struct Follower {
    what: String,
    selection: v1::Selection,
    /// Uid and revision of each object, as they were told last.
    held: HashMap<Name, (String, String)>,
    synced: bool,
    /// What the snapshot had so far; `None` when none is under way.
    snapshot: Option<HashSet<Name>>,
    /// After the last frame.
    token: Bytes,
    /// What the last goodbye asks for.
    pub(crate) wait: Duration,
}

// === impl Key ===

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

// === impl Event ===

impl<T> Event<T> {
    /// The key of the object; `None` of [`Event::Synced`].
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Added(key, _) | Self::Modified(key, _) | Self::Deleted(key, _) => Some(key),
            Self::Synced => None,
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Event<U> {
        match self {
            Self::Added(key, object) => Event::Added(key, change(object)),
            Self::Modified(key, object) => Event::Modified(key, change(object)),
            Self::Deleted(key, object) => Event::Deleted(key, object.map(change)),
            Self::Synced => Event::Synced,
        }
    }
}

/// `ADDED namespace/name`, or `SYNCED`.
impl<T> fmt::Display for Event<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(key, _) => write!(f, "ADDED {key}"),
            Self::Modified(key, _) => write!(f, "MODIFIED {key}"),
            Self::Deleted(key, _) => write!(f, "DELETED {key}"),
            Self::Synced => f.write_str("SYNCED"),
        }
    }
}

// === impl Follower ===

impl Follower {
    pub(crate) fn new(what: String, selection: v1::Selection) -> Self {
        Self {
            what,
            selection,
            held: HashMap::new(),
            synced: false,
            snapshot: None,
            token: Bytes::new(),
            wait: Duration::ZERO,
        }
    }

    pub(crate) fn request(&mut self) -> v1::WatchRequest {
        self.wait = Duration::ZERO;
        let start = (!self.token.is_empty()).then(|| Start::ResumeToken(self.token.clone()));
        v1::WatchRequest { selection: Some(self.selection.clone()), start, ..Default::default() }
    }

    /// Gives up the token if the error may be of the token, such as one of another cluster. A request that is wrong
    /// without one is wrong for good.
    pub(crate) fn forgets(&mut self, status: &Status) -> bool {
        let of_token = matches!(status.code(), Code::InvalidArgument | Code::OutOfRange);
        let forgets = of_token && !self.token.is_empty() && retry::reason(status).is_some();
        if forgets {
            self.token = Bytes::new();
        }
        forgets
    }

    /// What a frame tells.
    pub(crate) fn frame<T: DeserializeOwned>(&mut self, response: v1::WatchResponse) -> Result<Vec<Event<T>>, Error> {
        let mut told = Vec::new();
        match response.frame {
            Some(Frame::Started(started)) if !started.resumed => self.snapshot = Some(HashSet::new()),
            Some(Frame::Reset(_)) => self.snapshot = Some(HashSet::new()),
            Some(Frame::Events(events)) => {
                for event in events.events {
                    self.event(event, &mut told)?;
                }
            }
            Some(Frame::SnapshotEnd(_)) => self.complete(&mut told),
            Some(Frame::Goodbye(goodbye)) => {
                self.wait = goodbye.retry_after.and_then(|wait| wait.try_into().ok()).unwrap_or_default();
            }
            Some(Frame::Started(_) | Frame::Bookmark(_)) | None => {}
        }
        self.token = response.resume_token;
        Ok(told)
    }

    /// What the consumer knows already is not told again: over a reconnect a frame may come twice, and a snapshot has
    /// everything.
    fn event<T: DeserializeOwned>(&mut self, event: v1::Event, told: &mut Vec<Event<T>>) -> Result<(), Error> {
        let kind = event.r#type();
        let v1::Key { namespace, name, uid, resource_version } = event.key.unwrap_or_default();
        let key = Key { namespace, name, uid, resource_version };
        let name = (key.namespace.clone(), key.name.clone());
        let parsed = || {
            let parsed = serde_json::from_slice(&event.object);
            parsed.map_err(|source| Error::Decode { what: self.what.clone(), key: key.to_string(), source })
        };
        if kind == Type::Deleted {
            if self.held.contains_key(&name) {
                let object = parsed()?;
                self.held.remove(&name);
                told.push(Event::Deleted(key, Some(object)));
            }
            return Ok(());
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.insert(name.clone());
        }
        let held = self.held.get(&name);
        if held.is_some_and(|(uid, rv)| *uid == key.uid && *rv == key.resource_version) {
            return Ok(());
        }
        let object = parsed()?;
        let now = (key.uid.clone(), key.resource_version.clone());
        match self.held.insert(name, now) {
            Some((uid, _)) if uid == key.uid => told.push(Event::Modified(key, object)),
            // It was deleted and made anew while nobody looked.
            Some((uid, resource_version)) => {
                told.push(Event::Deleted(Key { uid, resource_version, ..key.clone() }, None));
                told.push(Event::Added(key, object));
            }
            None => told.push(Event::Added(key, object)),
        }
        Ok(())
    }

    /// The snapshot is complete: what it had not is gone.
    fn complete<T>(&mut self, told: &mut Vec<Event<T>>) {
        if let Some(snapshot) = self.snapshot.take() {
            for ((namespace, name), (uid, resource_version)) in self.held.extract_if(|name, _| !snapshot.contains(name))
            {
                told.push(Event::Deleted(Key { namespace, name, uid, resource_version }, None));
            }
        }
        if !self.synced {
            self.synced = true;
            told.push(Event::Synced);
        }
    }
}
