//! An informer as client-go's reflector works, which checks what every stream promises.

use std::collections::BTreeMap;
use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::client::{Client, key, rv};
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

impl Informer {
    /// Watches a collection; `selection` is more of the query, `&labelSelector=…`.
    pub(crate) fn start(client: Client, path: &str, selection: &str) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (path, selection) = (path.to_owned(), selection.to_owned());
        let task = lifecycle::spawn("test-informer", run(client, path, selection, seen.clone()));
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

async fn run(client: Client, path: String, selection: String, seen: Arc<Mutex<Seen>>) {
    let mut from: Option<u64> = None;
    loop {
        let query = match from {
            None => {
                seen.lock().lists += 1;
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()
            }
            Some(rv) => {
                seen.lock().resumes += 1;
                format!("resourceVersion={rv}")
            }
        };
        let url = format!("{path}?watch=true&allowWatchBookmarks=true&{query}{selection}");
        let mut watch = client.watch(&url).await.until_the_end();
        if !watch.status.is_success() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        }
        let mut initial = from.is_none().then(BTreeMap::<String, (u64, String)>::new);
        let mut last = from.unwrap_or(0);
        loop {
            let event = match watch.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(_) => {
                    seen.lock().broken += 1;
                    break;
                }
            };
            let mut seen = seen.lock();
            let object = &event["object"];
            match event["type"].as_str().unwrap() {
                "ERROR" => {
                    seen.expired += 1;
                    from = None;
                    break;
                }
                "BOOKMARK" => {
                    let at = rv(object);
                    let marked = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
                    match initial.take() {
                        Some(state) if marked => seen.replace(state, at),
                        Some(state) => {
                            seen.complaints.push(format!("a bookmark before the end of the initial events: {event}"));
                            initial = Some(state);
                        }
                        None if at < last => seen.complaints.push(format!("bookmark {at} after {last}")),
                        None => {}
                    }
                    last = last.max(at);
                    seen.last = seen.last.max(at);
                    from = initial.is_none().then_some(last);
                }
                kind => {
                    seen.events += 1;
                    if let Some(state) = &mut initial {
                        if kind != "ADDED" || state.insert(key(object), (rv(object), uid(object))).is_some() {
                            seen.complaints.push(format!("no initial event: {event}"));
                        }
                        continue;
                    }
                    let at = rv(object);
                    if at <= last {
                        seen.complaints.push(format!("{kind} {} at {at} after {last}", key(object)));
                    }
                    last = at;
                    seen.apply(kind, object, at);
                    from = Some(last);
                }
            }
        }
        if initial.is_some() {
            // The state was not complete: it counts for nothing.
            from = None;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

impl Seen {
    fn replace(&mut self, state: BTreeMap<String, (u64, String)>, at: u64) {
        if at < self.last {
            self.complaints.push(format!("a state of {at} after one of {}", self.last));
        }
        for (key, (rv, _)) in &state {
            if self.state.get(key).is_some_and(|before| before > rv) {
                self.complaints.push(format!("{key} went back to {rv}"));
            }
        }
        self.uids = state.iter().map(|(key, (_, uid))| (key.clone(), uid.clone())).collect();
        self.state = state.into_iter().map(|(key, (rv, _))| (key, rv)).collect();
        self.last = at;
    }

    fn apply(&mut self, kind: &str, object: &Value, at: u64) {
        let key = key(object);
        let held = self.state.contains_key(&key);
        if held == (kind == "ADDED") {
            self.complaints.push(format!("{kind} of {key} at {at}, which is {}held", if held { "" } else { "not " }));
        }
        if held && self.uids.get(&key) != Some(&uid(object)) {
            self.complaints.push(format!("{kind} of {key} at {at} is another object"));
        }
        if kind == "DELETED" {
            self.state.remove(&key);
            self.uids.remove(&key);
            self.deleted += 1;
        } else {
            self.uids.insert(key.clone(), uid(object));
            self.state.insert(key, at);
        }
        self.last = at;
    }
}
