//! Reads discovery: all of it, or the documents of one group.

use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures_util::stream::{StreamExt as _, iter};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::changed::Changed;
use super::index::Index;
use super::parse::{Document, LegacyGroup, LegacyVersion, VersionRead};
use super::reading::{Part, Refreshing};
use super::{ACCEPT, AFTER_FAILURE, Discovery, Inner, MAX_DOCUMENT, PACE, PARALLEL, PATIENCE};
use crate::client::{CallOptions, RequestVerb, UpstreamError};
use crate::error::Cause;
use crate::reader::{HEAD_TIMEOUT, get_json};
use informerd_lifecycle as lifecycle;

/// What is being read. Puts changes back when it is dropped: the read of what has changed has failed, or its caller has gone
/// away.
struct Unread<'a> {
    part: Part,
    changes: Option<Changed>,
    inner: &'a Inner,
}

/// Lets others share a running read, until it is dropped.
struct Sharing {
    discovery: Discovery,
    part: Part,
}

const PLAIN: &str = "application/json";

// === impl Discovery ===

impl Discovery {
    /// If the server does not answer, the earlier answers stay valid.
    pub(super) async fn read_if(&self, part: &Part, has_changed: impl Fn(&Changed) -> bool) {
        // A read that is already running may have begun before the change. In that case another one follows.
        for _ in 0..2 {
            let has_changed = has_changed(&self.inner.changed.lock());
            if has_changed {
                self.refresh_shared(part.clone()).await;
            }
        }
    }

    /// Reads together with all callers that want it now, and waits until that is done. Returns `None` if it takes too
    /// long; the read then continues in the background.
    pub(super) async fn refresh_shared(&self, part: Part) -> Option<Result<(), UpstreamError>> {
        let (running, done) = match self.inner.shared.lock().entry(part.clone()) {
            Entry::Occupied(running) => (running.get().clone(), None),
            Entry::Vacant(entry) => {
                let (done, result) = watch::channel(None);
                (entry.insert(Refreshing { started: Instant::now(), result }).clone(), Some(done))
            }
        };
        // A runtime that ends drops the task at once, and the task takes the lock then.
        if let Some(done) = done {
            self.start_refresh(part, done);
        }
        let Refreshing { started, mut result } = running;
        let waited = timeout_at(started + PATIENCE, result.wait_for(Option::is_some)).await;
        waited.ok()?.ok()?.clone()
    }

    fn start_refresh(&self, part: Part, done: watch::Sender<Option<Result<(), UpstreamError>>>) {
        let sharing = Sharing { discovery: self.clone(), part };
        lifecycle::spawn("discovery", async move {
            let refreshed = match &sharing.part {
                Part::All => sharing.discovery.refresh().await,
                Part::Group(group) => sharing.discovery.refresh_group(group).await,
            };
            // Before the result is published: a later caller must not share a read that succeeded.
            let failed = refreshed.is_err().then_some(sharing);
            done.send_replace(Some(refreshed));
            if failed.is_some() {
                sleep(AFTER_FAILURE).await;
            }
            drop(failed);
        });
    }

    /// Reads all of discovery again, unless another caller did so while this one waited, or nothing has changed since a
    /// read a moment ago.
    ///
    /// # Errors
    /// The apiserver does not answer; earlier answers stay valid.
    pub async fn refresh(&self) -> Result<(), UpstreamError> {
        let inner = &self.inner;
        let asked = Instant::now();
        let mut last = inner.refresh.lock().await;
        let has_changed = inner.changed.lock().is_all();
        if let Some(at) = *last {
            if !has_changed && (at >= asked || at.elapsed() < inner.config.min_refresh) {
                return Ok(());
            }
            sleep(PACE.min(inner.config.min_refresh).saturating_sub(at.elapsed())).await;
        }
        // Before the read, so that what changes during the read is read again.
        let mut unread = Unread::take(inner, Part::All);
        let everything = unread.changes.as_ref().is_some_and(Changed::is_all);
        let asked = Instant::now();
        let all = self.read().await?;
        let named: HashSet<_> = all.iter().map(|version| Arc::clone(&version.group)).collect();
        let is_defined = |group: &str| inner.definitions.lock().name_group(group);
        let is_hidden = |group: &str| !everything && !named.contains(group) && is_defined(group);
        self.store(None, |last| Index::read(all, asked, last, is_hidden));
        if let Some(changes) = &mut unread.changes {
            changes.keep(is_hidden);
        }
        drop(unread);
        inner.hidden.lock().clear();
        *last = Some(Instant::now());
        Ok(())
    }

    /// Reads one group again.
    async fn refresh_group(&self, group: &Arc<str>) -> Result<(), UpstreamError> {
        let inner = &self.inner;
        let last = inner.index.load().as_ref().and_then(|index| index.group(group)).map(|group| group.asked);
        if let Some(last) = last {
            sleep(PACE.min(inner.config.min_refresh).saturating_sub(last.elapsed())).await;
        }
        let mut unread = Unread::take(inner, Part::Group(Arc::clone(group)));
        let asked = Instant::now();
        let versions = self.read_group(group).await?;
        let is_complete = versions.iter().all(|version| version.resources.is_some());
        self.store(Some(group), |last| last.unwrap_or(&Index::default()).with(group, versions, asked));
        if is_complete {
            unread.changes = None;
            return Ok(());
        }
        Err(UpstreamError::Decode(Cause::new("a group version whose server does not answer")))
    }

    fn store(&self, group: Option<&Arc<str>>, change: impl FnOnce(Option<&Index>) -> Index) {
        let _one = self.inner.storing.lock();
        let index = Arc::new(change(self.inner.index.load().as_deref()));
        self.inner.index.store(Some(Arc::clone(&index)));
        // Whoever finds an answer outdated must find the new index.
        self.inner.resolutions.compare(group.map(|group| &**group), |gvr| index.resource(gvr));
    }

    async fn read(&self) -> Result<Vec<VersionRead>, UpstreamError> {
        let mut all = Vec::new();
        let mut legacy = Vec::new();
        for root in ["/api", "/apis"] {
            let mut document: Document = self.get(root, ACCEPT).await?;
            if document.is_aggregated() {
                document.keep(root == "/api");
                all.extend(document.group_versions());
            } else {
                legacy.extend(document.named_versions());
            }
        }
        all.extend(self.read_versions(legacy).await);
        Ok(all)
    }

    /// Empty if there is no such group.
    async fn read_group(&self, group: &str) -> Result<Vec<VersionRead>, UpstreamError> {
        match self.get::<LegacyGroup>(&format!("/apis/{group}"), PLAIN).await {
            Ok(document) => {
                let versions = document.versions().filter(|(named, _)| **named == *group).collect();
                Ok(self.read_versions(versions).await)
            }
            Err(error) if error.code() == Some(404) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// In the order of discovery: the first version of a group is the preferred one.
    async fn read_versions(&self, versions: Vec<(Arc<str>, Arc<str>)>) -> Vec<VersionRead> {
        let read = |(group, version): (Arc<str>, Arc<str>)| async move {
            let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
            let resources = match self.get::<LegacyVersion>(&path, PLAIN).await {
                Ok(list) => Some(list.resources(&group, &version)),
                Err(error) if error.code() == Some(404) => Some(Vec::new()),
                // One aggregated server that is down must not hide the resources of all others.
                Err(error) => {
                    tracing::warn!(%path, %error, "cannot read discovery of a group version");
                    None
                }
            };
            let is_current = resources.is_some();
            VersionRead { group, version, resources, is_current }
        };
        iter(versions).map(read).buffered(PARALLEL).collect().await
    }

    pub(super) async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        accept: &'static str,
    ) -> Result<T, UpstreamError> {
        let options = CallOptions::new(RequestVerb::Discovery, "").header_timeout(HEAD_TIMEOUT);
        let (head, document) = get_json(&self.inner.upstream, path, accept, &options, MAX_DOCUMENT).await?;
        self.inner.upstream.warnings().learn_ours(head.headers());
        Ok(document)
    }
}

// === impl Sharing ===

impl Drop for Sharing {
    fn drop(&mut self) {
        self.discovery.inner.shared.lock().remove(&self.part);
    }
}

// === impl Unread ===

impl<'a> Unread<'a> {
    fn take(inner: &'a Inner, part: Part) -> Self {
        let mut changed = inner.changed.lock();
        let changes = match &part {
            Part::All => changed.take_all(),
            Part::Group(group) => changed.take(group),
        };
        inner.reading.lock().insert(part.clone(), changes.clone());
        Self { part, changes: Some(changes), inner }
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        let mut changed = self.inner.changed.lock();
        if let Some(changes) = self.changes.take() {
            changed.put_back(changes);
        }
        self.inner.reading.lock().remove(&self.part);
    }
}
