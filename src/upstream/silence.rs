//! Finds out whether a stream that stands still has missed something.
//!
//! A watch that is open and says nothing is no fault: nothing may have happened. So a second watch is asked for what
//! comes after our revision, on another connection. The apiserver answers it with the next event at once, or with a
//! bookmark after a second or two. If it is silent, too, a digest is compared.
//!
//! The digest of a large collection costs the apiserver much. So it is only asked for if the silence itself is strange:
//! the apiserver is known to send bookmarks, or a watch of nothing, which must begin with a bookmark, says nothing
//! although a list is answered. The same list tells how many objects there are. If we have another number, no digest is
//! needed.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::proofs::{ACCEPT_WATCH, Asked, Progress, ProgressProbe, QUESTION_TIMEOUT, WATCH_SECONDS};
use super::reflector::Handle;
use crate::apiserver::UpstreamError;
use crate::apiserver::metadata::{MetadataEvent, MetadataStream};
use crate::apiserver::metrics::RequestVerb;
use crate::apiserver::reader::{Compression, get};
use crate::cache::{Order, WatchCache};
use crate::meta::{Origin, ResourceVersion};

/// What a check may cost.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// There is a reason to think that the stream has missed something. Otherwise it has only been silent for long, as
    /// that of an idle resource is, and nothing more is asked than a second watch if that speaks.
    pub is_suspected: bool,
    /// Whether the digest of a large collection may be read.
    pub may_read_all: bool,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing is missing, up to this revision. `bookmark`: another watch got a bookmark with it, which the stream was not
    /// known to have reached.
    All { rv: ResourceVersion, bookmark: bool },
    /// The stream did not deliver a change; why that is known.
    Missing(String),
    /// Watches of the large collection say nothing, and nothing is known to be missing. `compared`: a digest shows that,
    /// which should not be asked for again soon.
    Strange { compared: bool },
    /// The apiserver did not say.
    Nothing,
}

/// What two small requests show.
#[derive(Debug, Default)]
struct Around {
    /// How many objects the store has, if the apiserver says that.
    objects: Option<usize>,
    /// A list was answered, and a watch that must begin with a bookmark said nothing.
    is_mute: bool,
}

/// A kube-apiserver sends a bookmark about once a minute. After this long without anything, a stream is checked.
pub const SILENT: Duration = Duration::from_secs(75);
/// The stream may deliver a change this much later than others are told of it.
const LATER: Duration = Duration::from_secs(2);
/// The same after a second watch that was silent for its whole time.
const MUCH_LATER: Duration = Duration::from_secs(1);
/// A watch that has not ended this long after its time says nothing any more.
const OVER: Duration = Duration::from_millis(500);
/// When a watch of [`WATCH_SECONDS`] is over.
pub const OVERDUE: Duration = Duration::from_secs(WATCH_SECONDS).saturating_add(OVER);
/// A watch must begin this long after a list was answered.
const BEGINS: Duration = Duration::from_secs(2);
/// How long the refusal of a watch that begins with its state is remembered.
const REFUSED: Duration = Duration::from_secs(600);
const STEP: Duration = Duration::from_millis(50);
/// The digest of a larger collection costs the apiserver much.
const MOST: usize = 5000;

// === impl ProgressProbe ===

impl ProgressProbe {
    /// Checks whether the stream that feeds `cache` has delivered everything. Takes a few seconds, and longer if it
    /// reads a large digest.
    pub async fn check_stream(&self, cache: &WatchCache, stream: &Handle, means: Means) -> Heard {
        let (from, asked) = (cache.resource_version(), Order::now());
        let (false, Some(ours)) = (from.is_zero(), cache.snapshot().map(|snapshot| snapshot.len())) else {
            return Heard::Nothing;
        };
        let (word, around) = self.first_words(from, stream, ours > MOST, means.is_suspected).await;
        match word {
            Ok(Some(MetadataEvent::Changed { metadata, .. })) => {
                // A server that ignores our revision sends all objects.
                let Ok(rv) = metadata.rv() else { return Heard::Nothing };
                if rv <= from || moves(cache, rv, LATER).await {
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
                let is_silent = stream.has_bookmarks_every(SILENT) && matches!(word, Ok(None));
                let other = around.objects.filter(|objects| *objects != ours);
                if let Some(objects) = other.filter(|_| !self.is_unruly()) {
                    return match moves(cache, from.next(), LATER).await {
                        true => Heard::Nothing,
                        false => {
                            Heard::Missing(format!("the store has {objects} objects, and the watch has shown {ours}"))
                        }
                    };
                }
                let is_strange = is_silent || around.is_mute || other.is_some();
                self.compared(cache, from, ours > MOST, is_strange, means).await
            }
        }
    }

    /// The first word of a second watch, and what else is asked about a large collection. If that is in a hurry and shows
    /// that watches say nothing at all, the end of the second watch is not waited for.
    async fn first_words(
        &self,
        from: ResourceVersion,
        stream: &Handle,
        is_large: bool,
        hurries: bool,
    ) -> (Result<Option<MetadataEvent>, UpstreamError>, Around) {
        let path = self.source.watch_path(from, WATCH_SECONDS);
        let mut word = pin!(self.word_of(&path, stream, OVERDUE));
        if !is_large {
            return (word.await, Around::default());
        }
        let mut around = pin!(async { timeout(OVERDUE, self.around(stream)).await.unwrap_or_default() });
        if !hurries {
            let word = word.await;
            return match word {
                Ok(None) => (word, around.await),
                word => (word, Around::default()),
            };
        }
        tokio::select! {
            around = &mut around => match around.is_mute {
                true => (Ok(None), around),
                false => (word.await, around),
            },
            word = &mut word => match word {
                Ok(Some(MetadataEvent::Changed { .. } | MetadataEvent::Bookmark(_))) => (word, Around::default()),
                word => (word, around.await),
            },
        }
    }

    async fn around(&self, stream: &Handle) -> Around {
        let Ok(objects) = self.count().await else { return Around::default() };
        let resource = &self.source.resource;
        // Many aggregated servers ignore what asks for the state.
        if resource.origin == Origin::Unknown || self.upstream.refuses_watch_list(&resource.gvr.group, REFUSED) {
            return Around { objects, is_mute: false };
        }
        let path = self.source.nothing().watch_list_path(WATCH_SECONDS);
        let is_mute = matches!(self.word_of(&path, stream, BEGINS).await, Ok(None));
        Around { objects, is_mute }
    }

    /// The first event or bookmark of a watch on another connection than the stream's. `None` if none comes in this
    /// time.
    async fn word_of(
        &self,
        path: &str,
        stream: &Handle,
        within: Duration,
    ) -> Result<Option<MetadataEvent>, UpstreamError> {
        let options = self.source.options(RequestVerb::Probe).header_timeout(QUESTION_TIMEOUT);
        let end = Instant::now() + within;
        let read = async {
            let options = options.off(stream.connection());
            let (_, chunks) = get(&self.upstream, path, ACCEPT_WATCH, Compression::Identity, &options).await?;
            match MetadataStream::new(chunks).next(|| end).await {
                Err(UpstreamError::Timeout { .. }) => Ok(None),
                word => word,
            }
        };
        timeout_at(end, read).await.unwrap_or(Ok(None))
    }

    /// The revisions of aggregated servers need not follow any rule.
    fn is_unruly(&self) -> bool {
        self.source.resource.origin == Origin::Unknown
    }

    /// Compares a digest of the collection, if that is a fair question.
    async fn compared(
        &self,
        cache: &WatchCache,
        from: ResourceVersion,
        is_large: bool,
        is_strange: bool,
        means: Means,
    ) -> Heard {
        if is_large && !is_strange || self.is_unruly() && !means.is_suspected {
            return Heard::Nothing;
        }
        if is_large && !means.may_read_all {
            return Heard::Strange { compared: false };
        }
        let Ok(digest) = self.whole(cache, Asked::now()).await else { return Heard::Nothing };
        let until = Instant::now() + MUCH_LATER;
        loop {
            if self.settled(cache, None, digest.rv).await.is_some() {
                return match is_large {
                    true => Heard::Strange { compared: true },
                    false => Heard::All { rv: digest.rv, bookmark: false },
                };
            }
            if cache.resource_version() != from {
                return Heard::Nothing;
            }
            if Instant::now() >= until {
                break;
            }
            sleep(STEP).await;
        }
        // A server that makes up revisions as it answers shows others each time.
        if self.is_unruly() {
            let again = self.whole(cache, Asked::now()).await;
            if !again.is_ok_and(|again| again.objects() == digest.objects()) || cache.resource_version() != from {
                return Heard::Nothing;
            }
        }
        Heard::Missing(format!("the store has other objects at resource version {} than after {from}", digest.rv))
    }
}

/// Whether the stream reaches the revision in this time.
async fn moves(cache: &WatchCache, rv: ResourceVersion, within: Duration) -> bool {
    let until = Instant::now() + within;
    while cache.resource_version() < rv {
        if Instant::now() >= until {
            return false;
        }
        sleep(STEP).await;
    }
    true
}
