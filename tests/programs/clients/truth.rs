//! What happens at the server, as it tells it itself.

#![allow(clippy::expect_used, clippy::panic, reason = "a test without its server is over")]

use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::ledger::{Change, Kind, Ledger, State};
use crate::support::client::{Client, key, rv};
use crate::support::history::state;
use crate::support::metrics::sum;
use crate::support::until;

/// The server's own watch of a selection, from a list on.
pub(crate) struct Truth {
    direct: Client,
    path: String,
    initial: State,
    events: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

/// Open watches of a resource, as kube-apiserver counts them.
pub(crate) async fn open_watches(direct: &Client, resource: &str) -> i64 {
    let metrics = direct.get("/metrics").await;
    assert_eq!(metrics.status, 200, "{}", metrics.text());
    let labels = [r#"verb="WATCH""#, &format!("resource=\"{resource}\"")];
    sum(&metrics.text(), "apiserver_longrunning_requests", &labels) as i64
}

// === impl Truth ===

impl Truth {
    /// Of a path with the beginning of its query.
    pub(crate) async fn start(direct: &Client, path: &str) -> Self {
        let list = direct.json(path).await;
        let watch = direct.watch(&format!("{path}watch=true&resourceVersion={}", rv(&list))).await;
        assert_eq!(watch.status, 200, "{path}");
        let (mut watch, events) = (watch.until_the_end(), Arc::<Mutex<Vec<_>>>::default());
        let into = Arc::clone(&events);
        let task = lifecycle::spawn("the server's own watch", async move {
            while let Ok(Some(event)) = watch.next().await {
                into.lock().push(event);
            }
        });
        Self { direct: direct.clone(), path: path.to_owned(), initial: state(&list), events, task }
    }

    /// The changes it tells so far, up to an error that ends it.
    fn ledger(&self) -> Ledger {
        let mut changes = Vec::new();
        for event in self.events.lock().iter() {
            let kind = match event["type"].as_str() {
                Some("ADDED") => Kind::Added,
                Some("MODIFIED") => Kind::Modified,
                Some("DELETED") => Kind::Deleted,
                Some("BOOKMARK") => continue,
                Some("ERROR") => break,
                _ => panic!("no event of a watch: {event}"),
            };
            changes.push(Change { rv: rv(&event["object"]), key: key(&event["object"]), kind });
        }
        Ledger { initial: self.initial.clone(), changes }
    }

    /// Waits until it has told all that the list shows.
    pub(crate) async fn complete(&self) -> Ledger {
        let mut ledger = Ledger::default();
        until(&format!("the server's own watch of {} is complete", self.path), async || {
            let list = self.direct.json(&self.path).await;
            ledger = self.ledger();
            ledger.last() == state(&list)
        })
        .await;
        assert!(ledger.changes.len() > 20, "hardly anything happened to {}", self.path);
        ledger
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.task.abort();
    }
}
