//! An informer as client-go's reflector works, which checks what every stream promises.

use std::collections::BTreeMap;
use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::client::{Client, Watch, is_old, is_protobuf, key, rv};
use super::history::State;
use super::patience::SOON;

/// What an informer has seen. The state is the fold of its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub state: BTreeMap<String, u64>,
    uids: BTreeMap<String, String>,
    pub last: u64,
    pub events: usize,
    pub deleted: usize,
    /// Watches opened with the whole state.
    pub lists: usize,
    /// Watches resumed from a revision.
    pub resumes: usize,
    pub expired: usize,
    pub broken: usize,
    /// Every promise that was broken; empty at the end of a good test.
    pub complaints: Vec<String>,
}

pub(crate) struct Informer {
    pub seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// An object as a client was shown it.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub object: &'a Value,
    /// It is deleted or no longer selected, and this is its last state.
    pub is_gone: bool,
    /// Tests read only a part of protobuf.
    pub in_protobuf: bool,
}

/// Is told what an informer sees.
pub(crate) trait Observer: Send + Sync + 'static {
    /// A request begins; what this returns is given back with the state that it gets.
    fn begins(&self) -> u64 {
        0
    }
    /// The whole state, of a request that began there, or `None` for that of a stream at a bookmark.
    fn state(&self, _began: Option<u64>, _rv: u64, _state: &State) {}
    /// The state of an object that an event has shown; `None` after a deletion.
    fn event(&self, _key: &str, _rv: u64, _is: Option<u64>) {}
    /// Each object of a list or an event.
    fn object(&self, _shown: Shown<'_>) {}
}

impl Observer for () {}

/// What an informer watches, and how.
pub(crate) struct Watched {
    pub client: Client,
    pub path: String,
    /// More of the query, `&labelSelector=…`.
    pub selection: String,
    /// Lists with this client and this query first, and then watches. Otherwise its watches begin with the state.
    pub lists: Option<(Client, String)>,
}

impl Informer {
    /// Watches a collection; `selection` is more of the query, `&labelSelector=…`.
    pub(crate) fn start(client: Client, path: &str, selection: &str) -> Self {
        Self::observed(Watched { client, path: path.to_owned(), selection: selection.to_owned(), lists: None }, ())
    }

    pub(crate) fn observed(watched: Watched, observer: impl Observer) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = lifecycle::spawn("test-informer", run(watched, seen.clone(), observer));
        Self { seen, task }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    pub(crate) fn assert_content(&self) {
        let seen = self.seen();
        assert!(seen.complaints.is_empty(), "{:#?}", seen.complaints);
        assert!(!self.task.is_finished(), "the informer has died");
    }

    /// Until it has exactly this state.
    pub(crate) async fn reaches(&self, what: &str, state: impl Fn() -> BTreeMap<String, u64>) {
        let bound = tokio::time::Instant::now() + SOON;
        while self.seen.lock().state != state() {
            if tokio::time::Instant::now() > bound {
                let (seen, state) = (self.seen(), state());
                let wrong: Vec<_> = state.iter().filter(|(key, rv)| seen.state.get(*key) != Some(rv)).collect();
                let ghosts: Vec<_> = seen.state.keys().filter(|key| !state.contains_key(*key)).collect();
                panic!("{what}: missing or old {wrong:?}, ghosts {ghosts:?}, last {} lists {}", seen.last, seen.lists);
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        self.assert_content();
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// Beyond this, an informer gives up what says nothing. Over HTTP/1.1 nobody finds out that the server of a stream that is
/// forwarded is dead.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(120);

async fn patient<T, E>(what: impl Future<Output = Result<T, E>>) -> Option<T> {
    tokio::time::timeout(SILENCE, what).await.ok()?.ok()
}

async fn run(watched: Watched, seen: Arc<Mutex<Seen>>, observer: impl Observer) {
    let mut from: Option<u64> = None;
    loop {
        let began = observer.begins();
        if from.is_none() {
            seen.lock().lists += 1;
        } else {
            seen.lock().resumes += 1;
        }
        if let (None, Some((client, query))) = (from, &watched.lists) {
            let answer = patient(client.try_get(&format!("{}?{query}{}", watched.path, watched.selection))).await;
            let list = answer.filter(|answer| answer.status.is_success() && !answer.is_old());
            let list = list.and_then(|answer| Some((answer.value()?, is_protobuf(&answer.headers))));
            if let Some((list, in_protobuf)) = list {
                let items = list["items"].as_array().into_iter().flatten().filter(|item| !is_poison(item));
                items.clone().for_each(|object| observer.object(Shown { object, is_gone: false, in_protobuf }));
                let (state, at) = (items.map(|item| (key(item), (rv(item), uid(item)))).collect(), rv(&list));
                let state = seen.lock().replace(state, at, false);
                observer.state(Some(began), at, &state);
                from = Some(at);
            }
        } else {
            let query = from.map_or_else(
                || "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
                |rv| format!("resourceVersion={rv}"),
            );
            let Watched { client, path, selection, .. } = &watched;
            let url = format!("{path}?watch=true&allowWatchBookmarks=true&{query}{selection}");
            match patient(client.try_watch(&url)).await {
                Some(watch) if watch.status.is_success() => {
                    from = follow(watch.until_the_end(), from, began, &seen, &observer).await;
                }
                // As client-go does, it lists again where the revision is too old.
                Some(watch) => {
                    if watch.status == http::StatusCode::GONE {
                        seen.lock().expired += 1;
                        from = None;
                    }
                    tokio::time::sleep(10 * PAUSE).await;
                }
                None => {
                    seen.lock().broken += 1;
                    tokio::time::sleep(10 * PAUSE).await;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Follows a stream to its end. Returns from where to go on, or `None` if the state is not complete.
async fn follow(
    mut watch: Watch,
    from: Option<u64>,
    began: u64,
    seen: &Mutex<Seen>,
    observer: &impl Observer,
) -> Option<u64> {
    let mut initial = from.is_none().then(BTreeMap::<String, (u64, String)>::new);
    // What is forwarded is the apiserver's own, with its mistakes.
    let (is_served, is_old) = (!watch.is_forwarded(), is_old(&watch.headers));
    let in_protobuf = is_protobuf(&watch.headers);
    let mut last = from.unwrap_or(0);
    loop {
        let event = match patient(watch.next()).await {
            Some(Some(event)) => event,
            Some(None) => break,
            None => {
                seen.lock().broken += 1;
                break;
            }
        };
        let mut seen = seen.lock();
        let object = &event["object"];
        match event["type"].as_str().unwrap_or_default() {
            "ERROR" => {
                // Other errors leave the revision as it is, as in client-go.
                if object["code"] == 410 {
                    seen.expired += 1;
                    return None;
                }
                break;
            }
            "BOOKMARK" => {
                let at = rv(object);
                let marked = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
                match initial.take() {
                    Some(state) if marked => {
                        let state = seen.replace(state, at, false);
                        observer.state((!is_old).then_some(began), at, &state);
                    }
                    Some(_) if !is_served => return None,
                    Some(state) => {
                        seen.complaints.push(format!("a bookmark before the end of the initial events: {event}"));
                        initial = Some(state);
                    }
                    None if at < last => seen.complaints.push(format!("bookmark {at} after {last}")),
                    None => observer.state(None, at, &seen.state),
                }
                last = last.max(at);
                seen.last = seen.last.max(at);
            }
            _ if is_poison(object) => {}
            "" => return None,
            kind => {
                seen.events += 1;
                observer.object(Shown { object, is_gone: kind == "DELETED", in_protobuf });
                if let Some(state) = &mut initial {
                    if kind != "ADDED" || state.insert(key(object), (rv(object), uid(object))).is_some() {
                        // The apiserver may leave out the end.
                        if !is_served {
                            return None;
                        }
                        seen.complaints.push(format!("no initial event: {event}"));
                    }
                    continue;
                }
                let (key, at) = (key(object), rv(object));
                if !is_served && at <= last {
                    return None;
                }
                if at <= last {
                    seen.complaints.push(format!("{kind} {key} at {at} after {last}"));
                }
                last = at;
                // After a relist, the apiserver may go on inside the gap, where it tells of what nobody was shown before.
                match (is_served, kind, seen.state.contains_key(&key)) {
                    (false, "DELETED", false) => continue,
                    (false, "ADDED", true) => seen.apply("MODIFIED", &key, uid(object), at),
                    (false, "MODIFIED", false) => seen.apply("ADDED", &key, uid(object), at),
                    _ => seen.apply(kind, &key, uid(object), at),
                }
                observer.event(&key, at, (kind != "DELETED").then_some(at));
            }
        }
    }
    // A state that is not complete counts for nothing.
    initial.is_none().then_some(last)
}

/// Objects that only simulated apiservers have, and that cannot be decoded.
pub(crate) fn is_poison(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("poison"))
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

impl Seen {
    /// The state is another one, which is returned. Of a merged watch, objects may have been newer than the revision of the state.
    pub(crate) fn replace(&mut self, state: BTreeMap<String, (u64, String)>, at: u64, merged: bool) -> State {
        if at < self.last {
            self.complaints.push(format!("a state of {at} after one of {}", self.last));
        }
        for (key, (rv, _)) in &state {
            if self.state.get(key).is_some_and(|before| before > rv && (!merged || *before <= at)) {
                self.complaints.push(format!("{key} went back to {rv}"));
            }
        }
        self.uids = state.iter().map(|(key, (_, uid))| (key.clone(), uid.clone())).collect();
        self.state = state.into_iter().map(|(key, (rv, _))| (key, rv)).collect();
        self.last = at;
        self.state.clone()
    }

    pub(crate) fn apply(&mut self, kind: &str, key: &str, uid: String, at: u64) {
        let held = self.state.contains_key(key);
        if held == (kind == "ADDED") {
            self.complaints.push(format!("{kind} of {key} at {at}, which is {}held", if held { "" } else { "not " }));
        }
        if held && self.uids.get(key) != Some(&uid) {
            self.complaints.push(format!("{kind} of {key} at {at} is another object"));
        }
        if kind == "DELETED" {
            self.state.remove(key);
            self.uids.remove(key);
            self.deleted += 1;
        } else {
            self.uids.insert(key.to_owned(), uid);
            self.state.insert(key.to_owned(), at);
        }
        self.last = at;
    }

    /// A change that may have come before, with those before it, to who goes on with a merged watch.
    pub(crate) fn apply_again(&mut self, kind: &str, key: &str, uid: String, at: u64) {
        self.state.remove(key);
        self.uids.remove(key);
        if kind != "DELETED" {
            self.apply("ADDED", key, uid, at);
        }
    }
}
