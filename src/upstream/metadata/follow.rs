//! One collection followed for ever by its metadata, without a cache: for whoever only wants to know that something has
//! changed, and what. A watch that ends is resumed where it stopped.

use std::time::Duration;

use http::{StatusCode, Version};
use rand::Rng as _;
use tokio::time::{Instant, sleep};

use super::{ACCEPT_LIST, ACCEPT_OBJECT, Metadata, MetadataEvent, MetadataList, MetadataStream};
use crate::lifecycle::backoff::{Backoff, jittered};
use crate::meta::ResourceVersion;
use crate::upstream::client::{CallOptions, Upstream};
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::RequestVerb;
use crate::upstream::reader::{Compression, get, get_json};

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch that is alive has a bookmark each minute. One that is silent for longer is opened again where it stopped, which is
/// the smallest question that shows whether it missed something.
const SILENCE: Duration = Duration::from_secs(75);
/// The same where no PING finds a dead connection sooner.
const SILENCE_WITHOUT_PING: Duration = Duration::from_secs(20);
/// Until the watch is open again its changes are not heard of, and one attempt is one small request: with the jitter, no two are
/// more than 5 s apart.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LAST_BACKOFF: Duration = Duration::from_millis(3300);
const PAGE: u32 = 500;
/// Bytes of one page.
const MAX_PAGE: usize = 64 << 20;

/// What is followed.
#[derive(Clone, Debug)]
pub struct Collection {
    /// As in `/api/v1/serviceaccounts`.
    pub path: &'static str,
    /// The name in the counters.
    pub resource: &'static str,
    /// The value of the query's `fieldSelector`, escaped. Empty selects everything.
    pub field_selector: String,
    /// Whether a restart lists the objects. Without, it asks for the revision alone.
    pub listed: bool,
    /// How often a collection that may not be watched is tried again.
    pub refused: Duration,
}

/// What is told of a collection.
#[derive(Debug)]
pub enum Seen<'a> {
    /// What happened before is not known; what happens from now on is. The objects, if they are listed.
    Restarted(Vec<Metadata>),
    Change {
        deleted: bool,
        object: &'a Metadata,
    },
    /// The watch has ended. Nothing is known until the next restart, change or [`Seen::Live`].
    Lost,
    /// The watch is open again where it stopped.
    Live,
    /// The apiserver refuses to show the collection, or does not know it.
    Refused,
}

/// Follows a collection for ever.
pub async fn follow(upstream: Upstream, collection: Collection, mut seen: impl FnMut(Seen<'_>) + Send) {
    let resource = collection.resource;
    let mut from: Option<ResourceVersion> = None;
    let mut backoff = Backoff::between(FIRST_BACKOFF, LAST_BACKOFF);
    let mut told = false;
    let mut recoveries = upstream.recoveries();
    loop {
        let started = Instant::now();
        recoveries.mark_unchanged();
        let round = round(&upstream, &collection, &mut from, &mut seen, &mut backoff).await;
        // However it ended, and however long the next one takes to open: until then nothing is told.
        seen(Seen::Lost);
        let pause = match round {
            Ok(()) if started.elapsed() >= FIRST_BACKOFF => continue,
            // A server that ends streams at once must not be asked in a circle.
            Ok(()) => backoff.next(None),
            Err(error) => {
                tracing::debug!(resource, %error, "watch of metadata broken");
                match error.code() {
                    Some(410) => {
                        from = None;
                        jittered(FIRST_BACKOFF)
                    }
                    Some(code @ (403 | 404)) => {
                        if code == StatusCode::FORBIDDEN && !std::mem::replace(&mut told, true) {
                            tracing::warn!(resource, "not allowed to watch: what changes there is noticed late");
                        }
                        from = None;
                        seen(Seen::Refused);
                        jittered(collection.refused)
                    }
                    _ => backoff.next(error.retry_after()),
                }
            }
        };
        // The apiserver answers again, or there are new credentials: nothing is waited for any longer.
        tokio::select! {
            () = sleep(pause) => {}
            _ = recoveries.changed() => {}
        }
    }
}

/// From a start or a resumption to the stream's end, or to its silence.
async fn round(
    upstream: &Upstream,
    collection: &Collection,
    from: &mut Option<ResourceVersion>,
    seen: &mut (impl FnMut(Seen<'_>) + Send),
    backoff: &mut Backoff,
) -> Result<(), UpstreamError> {
    let (start, restarted) = match *from {
        Some(start) => (start, None),
        None => {
            let (start, objects) = list(upstream, collection).await?;
            (*from.insert(start), Some(objects))
        }
    };
    let seconds = rand::rng().random_range(300..600);
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&resourceVersion={start}&timeoutSeconds={seconds}{}",
        collection.path,
        selection(collection)
    );
    let options = CallOptions::new(RequestVerb::Watch, collection.resource).header_timeout(HEAD_TIMEOUT);
    let opened = get(upstream, &path, ACCEPT_OBJECT, Compression::Identity, &options).await;
    // What was listed is known, whatever becomes of the watch.
    let live = restarted.map_or(Seen::Live, Seen::Restarted);
    let (head, chunks) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            if matches!(live, Seen::Restarted(_)) {
                *from = None;
            }
            return Err(error);
        }
    };
    let silence = if head.version() == Version::HTTP_2 { SILENCE } else { SILENCE_WITHOUT_PING };
    backoff.reset();
    seen(live);
    let mut stream = MetadataStream::new(chunks);
    loop {
        let event = match stream.next(Instant::now() + silence).await {
            Ok(Some(event)) => event,
            // What is silent has ended, as far as anybody can tell.
            Ok(None) | Err(UpstreamError::Timeout { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        match event {
            MetadataEvent::Changed { deleted, metadata } => {
                *from = Some(metadata.rv()?);
                seen(Seen::Change { deleted, object: &metadata });
            }
            MetadataEvent::Bookmark(rv) => *from = Some(rv),
            MetadataEvent::Error(status) => return Err(UpstreamError::Status(status)),
        }
    }
}

/// The collection's present revision, and its objects if they are wanted.
async fn list(upstream: &Upstream, collection: &Collection) -> Result<(ResourceVersion, Vec<Metadata>), UpstreamError> {
    let (verb, limit) = if collection.listed { (RequestVerb::List, PAGE) } else { (RequestVerb::Probe, 1) };
    let options = CallOptions::new(verb, collection.resource).header_timeout(HEAD_TIMEOUT);
    let mut objects = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("{}?limit={limit}{}{token}", collection.path, selection(collection));
        let (_, page): (_, MetadataList) = get_json(upstream, &path, ACCEPT_LIST, &options, MAX_PAGE).await?;
        let rv = page.rv()?;
        if !collection.listed {
            return Ok((rv, objects));
        }
        token = format!("&continue={}", page.continue_token());
        let is_last = page.continue_token().is_empty();
        objects.extend(page.into_items());
        if is_last {
            return Ok((rv, objects));
        }
    }
}

fn selection(collection: &Collection) -> String {
    match collection.field_selector.as_str() {
        "" => String::new(),
        selector => format!("&fieldSelector={selector}"),
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
