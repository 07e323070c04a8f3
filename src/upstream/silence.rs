//! Finds out whether a stream that stands still has missed something.
//!
//! A watch that is open and says nothing is no fault: nothing may have happened. So a second watch is asked for what
//! comes after our revision, on another connection. The apiserver answers it with the next event at once, or with a
//! bookmark after a second or two. If it is silent, too, a digest is compared. One of a large collection is only asked
//! for if the silence itself is strange, because the apiserver is known to send bookmarks.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::error::UpstreamError;
use super::metadata::{MetadataEvent, MetadataStream};
use super::metrics::RequestVerb;
use super::progress::{ACCEPT_WATCH, HEAD_TIMEOUT, Progress, ProgressProbe, WATCH_SECONDS};
use super::reader::{Compression, get};
use super::reflector::Handle;
use crate::cache::{Order, WatchCache};
use crate::meta::{Origin, ResourceVersion};

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing is missing, up to this revision. `bookmark`: another watch got a bookmark with it, which the stream was not
    /// known to have reached.
    All { rv: ResourceVersion, bookmark: bool },
    /// The stream did not deliver a change; why that is known.
    Missing(String),
    /// Nothing is missing, as the digest of a large collection shows, which should not be asked for again soon.
    Same,
    /// The apiserver did not say.
    Nothing,
}

/// A kube-apiserver sends a bookmark about once a minute. After this long without anything, a stream is checked.
pub const SILENT: Duration = Duration::from_secs(75);
/// The stream may deliver a change this much later than others are told of it.
const LATER: Duration = Duration::from_secs(2);
/// The same after a second watch that was silent for its whole time.
const MUCH_LATER: Duration = Duration::from_secs(1);
/// A watch that has not ended this long after its time says nothing any more.
const OVER: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(50);
/// The digest of a larger collection costs the apiserver much.
const MOST: usize = 5000;

// === impl ProgressProbe ===

impl ProgressProbe {
    /// Checks whether the stream that feeds `cache` has delivered everything. Takes about ten
    /// seconds, and longer if it reads a large digest.
    pub async fn check_stream(&self, cache: &WatchCache, stream: &Handle) -> Heard {
        let (from, asked) = (cache.resource_version(), Order::now());
        if from.is_zero() {
            return Heard::Nothing;
        }
        match self.first_word(from, stream).await {
            Ok(Some(MetadataEvent::Changed { metadata, .. })) => {
                // A server that ignores our revision sends all objects.
                let Ok(rv) = metadata.rv() else { return Heard::Nothing };
                if rv <= from || arrives(cache, rv).await {
                    return Heard::Nothing;
                }
                Heard::Missing(format!("another watch was told of a change at resource version {rv}, after {from}"))
            }
            Ok(Some(MetadataEvent::Bookmark(to))) if to >= from => {
                self.got_bookmark();
                self.claim(Progress { from, to, asked });
                Heard::All { rv: to, bookmark: to > from }
            }
            word => {
                // Events have no bookmarks, but more than a few thousand are hardly ever quiet.
                let has_words = stream.has_bookmarks_every(SILENT) || self.source.resource.gvr.is_events();
                self.compared(cache, from, has_words && matches!(word, Ok(None))).await
            }
        }
    }

    /// The first event after `from`, or the first bookmark, of a watch on another connection than the stream's. `None`
    /// if it ends without one.
    async fn first_word(&self, from: ResourceVersion, stream: &Handle) -> Result<Option<MetadataEvent>, UpstreamError> {
        let path = self.source.watch_path(from, WATCH_SECONDS);
        let options = self.source.options(RequestVerb::Probe).header_timeout(HEAD_TIMEOUT);
        let end = Instant::now() + Duration::from_secs(WATCH_SECONDS) + OVER;
        let read = async {
            let options = options.off(stream.connection());
            let (_, chunks) = get(&self.upstream, &path, ACCEPT_WATCH, Compression::Identity, &options).await?;
            match MetadataStream::new(chunks).next(|| end).await {
                Err(UpstreamError::Timeout { .. }) => Ok(None),
                word => word,
            }
        };
        timeout_at(end, read).await.unwrap_or(Ok(None))
    }

    /// Compares a digest of the collection, if that is a fair question. `is_strange`: the second watch should have said
    /// something.
    async fn compared(&self, cache: &WatchCache, from: ResourceVersion, is_strange: bool) -> Heard {
        let is_small = cache.snapshot().is_some_and(|snapshot| snapshot.len() <= MOST);
        // The revisions of aggregated servers need not follow any rule.
        if self.source.resource.origin == Origin::Unknown || !is_small && !is_strange {
            return Heard::Nothing;
        }
        let Ok(digest) = self.whole(cache, Instant::now()).await else { return Heard::Nothing };
        let until = Instant::now() + MUCH_LATER;
        loop {
            if self.settled(cache, None, digest.rv).await.is_some() {
                return if is_small { Heard::All { rv: digest.rv, bookmark: false } } else { Heard::Same };
            }
            if cache.resource_version() != from {
                return Heard::Nothing;
            }
            if Instant::now() >= until {
                let rv = digest.rv;
                return Heard::Missing(format!(
                    "the store has other objects at resource version {rv} than after {from}"
                ));
            }
            sleep(STEP).await;
        }
    }
}

/// Whether the stream reaches the revision soon.
async fn arrives(cache: &WatchCache, rv: ResourceVersion) -> bool {
    let until = Instant::now() + LATER;
    while cache.resource_version() < rv {
        if Instant::now() >= until {
            return false;
        }
        sleep(STEP).await;
    }
    true
}
