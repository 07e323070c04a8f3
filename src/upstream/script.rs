//! A scripted collection for tests. It answers the questions about it without a network, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::codec::json::{ListMeta, Style};
use crate::meta::{ObjectKey, ResourceVersion};

/// Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    rv: u64,
    objects: Vec<(ObjectKey, ResourceVersion)>,
    takes: Duration,
    asked: Vec<String>,
}

// === impl Script ===

impl Script {
    /// Sets the store's revision and its objects: namespace, name, revision.
    pub(crate) fn store(&self, rv: u64, objects: &[(&str, &str, u64)]) {
        let key = |&(namespace, name, rv): &(&str, &str, u64)| (ObjectKey::new(namespace, name), ResourceVersion(rv));
        let mut state = self.0.lock();
        (state.rv, state.objects) = (rv, objects.iter().map(key).collect());
    }

    /// Sets how long a question takes.
    pub(crate) fn takes(&self, takes: Duration) {
        self.0.lock().takes = takes;
    }

    /// Returns the questions since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().asked)
    }

    /// Answers a question. A label selector selects the objects whose names begin with `selected`.
    pub(super) async fn answer(
        &self,
        path: &str,
        limit: u32,
        mut take: impl FnMut(ObjectKey, ResourceVersion),
    ) -> ListMeta {
        let (rv, objects, takes) = {
            let mut state = self.0.lock();
            state.asked.push(path.to_owned());
            (state.rv, state.objects.clone(), state.takes)
        };
        let namespace = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
        let is_asked_for = |key: &ObjectKey| {
            namespace.is_none_or(|(namespace, _)| key.namespace() == namespace)
                && (!path.contains("labelSelector=") || key.name().starts_with("selected"))
        };
        let asked_for: Vec<_> = objects.into_iter().filter(|(key, _)| is_asked_for(key)).collect();
        // A sleep of no time takes a millisecond.
        if !takes.is_zero() {
            sleep(takes).await;
        }
        let more = asked_for.len() > limit as usize;
        asked_for.into_iter().take(limit as usize).for_each(|(key, rv)| take(key, rv));
        ListMeta {
            rv: ResourceVersion(rv),
            continue_token: if more { "more".to_owned() } else { String::new() },
            remaining_item_count: None,
            list_kind: "".into(),
            api_version: "".into(),
            style: Style::Stripped,
            typed_items: None,
            columns: None,
        }
    }
}
