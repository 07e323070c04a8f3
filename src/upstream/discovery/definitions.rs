//! Follows the definitions of resources, so that what depends on them can be looked at again.

use std::collections::HashMap;
use std::time::Duration;

use rand::Rng as _;
use tokio::time::{Instant, sleep};

use super::Discovery;
use crate::lifecycle::drain::DrainWatch;
use crate::meta::ResourceVersion;
use crate::upstream::backoff::{Backoff, BackoffConfig};
use crate::upstream::client::{CallOptions, RequestVerb, UpstreamError};
use crate::upstream::metadata::{ACCEPT_LIST, ACCEPT_OBJECT, Metadata, MetadataEvent, MetadataList, MetadataStream};
use crate::upstream::reader::{Compression, HEAD_TIMEOUT, get, get_json};

/// One of the two kinds of definitions.
struct Kind {
    path: &'static str,
    resource: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        resource: "customresourcedefinitions.apiextensions.k8s.io",
    },
    Kind { path: "/apis/apiregistration.k8s.io/v1/apiservices", resource: "apiservices.apiregistration.k8s.io" },
];

/// What is remembered of a definition: a change of its spec moves the generation, one of its status does not.
type Known = HashMap<String, (String, i64)>;

const MAX_PAGE: usize = 64 << 20;

/// Beyond a stream's own end, before it counts as dead.
const GRACE: Duration = Duration::from_secs(15);

/// Between two attempts to follow one of the two kinds.
const LONGEST: Duration = Duration::from_secs(5);

impl Discovery {
    /// Follows CustomResourceDefinitions and APIServices until the drain is forced. Where they may not be watched,
    /// discovery is taken for stale after [`super::DiscoveryConfig::max_age`].
    pub async fn watch_definitions(self, drain: DrainWatch) {
        let [crds, services] = &KINDS;
        tokio::select! {
            () = self.follow(crds) => {}
            () = self.follow(services) => {}
            () = drain.forced() => {}
        }
    }

    /// Never ends.
    async fn follow(&self, kind: &Kind) {
        let mut known: Option<Known> = None;
        let mut rv: Option<ResourceVersion> = None;
        let mut backoff = Backoff::new(BackoffConfig { max: LONGEST, ..BackoffConfig::default() });
        let mut recoveries = self.inner.upstream.recoveries();
        loop {
            let started = Instant::now();
            recoveries.mark_unchanged();
            let result = match rv {
                None => self.list(kind, &mut known).await.map(|listed| rv = Some(listed)),
                Some(from) => self.stream(kind, from, &mut rv, known.get_or_insert_default()).await,
            };
            backoff.healthy_for(started.elapsed());
            let Err(error) = result else { continue };
            tracing::debug!(resource = kind.resource, %error, "cannot follow definitions");
            // The apiserver answers again, or there are new credentials: nothing is waited for any longer.
            match error.code() {
                Some(410) => rv = None,
                Some(401 | 403 | 404) => {
                    tokio::select! {
                        () = sleep(self.inner.config.max_age) => {}
                        _ = recoveries.changed() => {}
                    }
                    self.mark_stale();
                    rv = None;
                    continue;
                }
                _ => {}
            }
            tokio::select! {
                () = sleep(backoff.next(error.retry_after())) => {}
                _ = recoveries.changed() => {}
            }
        }
    }

    async fn list(&self, kind: &Kind, known: &mut Option<Known>) -> Result<ResourceVersion, UpstreamError> {
        let options = CallOptions::new(RequestVerb::List, kind.resource).header_timeout(HEAD_TIMEOUT);
        let mut listed = Known::new();
        let mut token = String::new();
        let rv = loop {
            let path = format!("{}?limit=500{token}", kind.path);
            let (_, page): (_, MetadataList) =
                get_json(&self.inner.upstream, &path, ACCEPT_LIST, &options, MAX_PAGE).await?;
            let rv = page.rv()?;
            token = match page.continue_token() {
                "" => String::new(),
                next => format!("&continue={next}"),
            };
            listed.extend(page.into_items().map(|item| (item.name, (item.uid, item.generation))));
            if token.is_empty() {
                break rv;
            }
        };
        if known.as_ref().is_some_and(|known| *known != listed) {
            self.definition_changed();
        }
        *known = Some(listed);
        Ok(rv)
    }

    /// Follows one stream to its end; `rv` is how far it came.
    async fn stream(
        &self,
        kind: &Kind,
        from: ResourceVersion,
        rv: &mut Option<ResourceVersion>,
        known: &mut Known,
    ) -> Result<(), UpstreamError> {
        let seconds = rand::rng().random_range(300..600);
        let path = format!(
            "{}?allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}&watch=true",
            kind.path
        );
        let deadline = Instant::now() + Duration::from_secs(seconds) + GRACE;
        let options = CallOptions::new(RequestVerb::Watch, kind.resource).header_timeout(HEAD_TIMEOUT);
        let (_, chunks) = get(&self.inner.upstream, &path, ACCEPT_OBJECT, Compression::Identity, &options).await?;
        let mut stream = MetadataStream::new(chunks);
        let mut moved = false;
        while let Some(event) = stream.next(deadline).await? {
            moved = true;
            match event {
                MetadataEvent::Changed { deleted, metadata } => {
                    *rv = Some(metadata.rv()?);
                    self.take(deleted, metadata, known);
                }
                MetadataEvent::Bookmark(at) => *rv = Some(at),
                MetadataEvent::Error(status) => return Err(UpstreamError::Status(status)),
            }
        }
        // A server that ends streams at once must not be asked in a circle.
        if !moved && deadline.saturating_duration_since(Instant::now()) > GRACE + Duration::from_secs(30) {
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    fn take(&self, deleted: bool, metadata: Metadata, known: &mut Known) {
        let state = (metadata.uid, metadata.generation);
        let same = known.get(&metadata.name) == Some(&state);
        if deleted {
            known.remove(&metadata.name);
        } else {
            known.insert(metadata.name.clone(), state);
        }
        if deleted || !same {
            self.definition_changed();
        } else {
            // A new definition is served once its status says so, which is no change of its generation.
            self.mark_stale();
        }
    }
}
