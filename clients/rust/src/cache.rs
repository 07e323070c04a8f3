//! The objects of a selection, kept as an informer keeps them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::de::DeserializeOwned;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio_stream::StreamExt;

use crate::{Client, Error, Event, Key, Selected};

/// The objects of a selection: each of them once, decoded. Clones are the same cache.
#[derive(Debug)]
pub struct Cache<T> {
    objects: Objects<T>,
    state: Receiver<State>,
}

/// Fills a [`Cache`] while it runs.
#[derive(Debug)]
pub struct Feed<T> {
    client: Client,
    resource: String,
    selected: Selected,
    objects: Objects<T>,
    state: Sender<State>,
}

/// By `namespace/name`.
type Objects<T> = Arc<RwLock<HashMap<String, Arc<T>>>>;

#[derive(Clone, Debug)]
enum State {
    Filling,
    Synced,
    Ended(String),
}

impl Client {
    /// A cache, which is empty until its feed runs.
    #[must_use]
    pub fn cache<T>(&self, resource: &str, selected: Selected) -> (Cache<T>, Feed<T>) {
        let (state, receiver) = watch::channel(State::Filling);
        let objects = Objects::default();
        let cache = Cache { objects: objects.clone(), state: receiver };
        (cache, Feed { client: self.clone(), resource: resource.to_owned(), selected, objects, state })
    }
}

// === impl Cache ===

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), state: self.state.clone() }
    }
}

impl<T> Cache<T> {
    /// Waits until everything is there that was selected at first.
    ///
    /// # Errors
    /// The feed has ended before.
    pub async fn synced(&self) -> Result<(), Error> {
        let mut state = self.state.clone();
        let ended = match state.wait_for(|state| !matches!(state, State::Filling)).await.as_deref() {
            Ok(State::Ended(error)) => error.clone(),
            Ok(State::Synced | State::Filling) => return Ok(()),
            Err(_) => "its feed was dropped".to_owned(),
        };
        Err(Error::NotSynced(ended))
    }

    /// The namespace is empty for types without namespaces.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned(), ..Key::default() };
        self.read(|objects| objects.get(&key.to_string()).cloned())
    }

    /// All objects, in no order.
    #[must_use]
    pub fn values(&self) -> Vec<Arc<T>> {
        self.read(|objects| objects.values().cloned().collect())
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.read(HashMap::len)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read<R>(&self, look: impl FnOnce(&HashMap<String, Arc<T>>) -> R) -> R {
        look(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Feed ===

impl<T: DeserializeOwned + Send + Sync> Feed<T> {
    /// Keeps the cache until it is dropped, or ends with an error that trying again does not help against. The cache keeps
    /// what it has then.
    ///
    /// After each change, and when the cache has synced, it calls `changed` with the event and with what the cache had
    /// before. While that is slow the cache falls behind, and nothing piles up.
    ///
    /// # Errors
    /// informerd refuses the watch for good, or an object is not of this type.
    pub async fn run(self, mut changed: impl FnMut(Event<Arc<T>>, Option<Arc<T>>)) -> Result<(), Error> {
        let mut events = self.client.watch::<T>(&self.resource, self.selected.clone());
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    let (event, old) = self.apply(event);
                    changed(event, old);
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let ended = State::Ended(error.to_string());
                    self.state.send_if_modified(|state| {
                        let early = matches!(state, State::Filling);
                        if early {
                            *state = ended;
                        }
                        early
                    });
                    return Err(error);
                }
            }
        }
    }

    fn apply(&self, event: Event<T>) -> (Event<Arc<T>>, Option<Arc<T>>) {
        let event = event.map(Arc::new);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let old = match &event {
            Event::Added(key, object) | Event::Modified(key, object) => objects.insert(key.to_string(), object.clone()),
            Event::Deleted(key, _) => objects.remove(&key.to_string()),
            Event::Synced => {
                self.state.send_replace(State::Synced);
                None
            }
        };
        (event, old)
    }
}
