//! Follows one collection by its metadata, without a cache. Callers use it when they only need to know that something
//! has changed, and what. A watch that ends is resumed from where it stopped, unless that is where it cannot go on.

use std::borrow::Cow;
use std::time::Duration;

use http::{StatusCode, Version};
use rand::Rng as _;
use tokio::time::{Instant, sleep};

use super::{
    ACCEPT_LIST, ACCEPT_OBJECT, CONDITIONS, DEPTH, DEPTH_OF_ITEMS, Metadata, MetadataEvent, MetadataList,
    MetadataStream,
};
use crate::client::{CallOptions, Upstream};
use crate::error::UpstreamError;
use crate::metrics::RequestVerb;
use crate::reader::{Compression, get, get_outline};
use informerd_lifecycle::backoff::{Backoff, jittered};
use informerd_meta::ResourceVersion;

/// Timeout for the head of an answer that the apiserver can send at once.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// A live watch delivers a bookmark every minute. A watch that is silent for longer than this is reopened from where it
/// stopped. That is the smallest request that shows whether it missed something.
const SILENCE: Duration = Duration::from_secs(75);
/// The same limit for connections where no PING finds a dead peer sooner.
const SILENCE_WITHOUT_PING: Duration = Duration::from_secs(20);
/// No changes are received until the watch is open again, and one attempt is only one small request. With jitter, two
/// attempts are at most 5 s apart.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LAST_BACKOFF: Duration = Duration::from_millis(3300);
/// A watch that ends so shortly before its time is over may have been measured from later than it began.
const EARLY: Duration = Duration::from_secs(2);
/// What breaks a watch within this time after its opening, before anything has come, may do so again and again.
const SHORTLY: Duration = Duration::from_secs(5);
const ACCEPT_WHOLE: &str = "application/json";
const PAGE: u32 = 500;
/// The most bytes that are kept of one page. The page itself may have any size.
const MAX_PAGE: usize = 8 << 20;

/// The collection to follow.
#[derive(Clone, Debug)]
pub struct Collection {
    /// As in `/api/v1/serviceaccounts`.
    pub path: Cow<'static, str>,
    /// The name of the resource in the counters.
    pub resource: &'static str,
    /// The value of the query's `fieldSelector`, escaped. Empty selects everything.
    pub field_selector: String,
    /// Whether a restart lists the objects. If not, it only asks for the revision.
    pub listed: bool,
    /// Where the objects are read with their [`Parts`](super::Parts).
    pub whole: Whole,
    /// How long to wait before a collection that may not be watched is tried again.
    pub refused: Duration,
}

/// Where whole objects are read, and not only their metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    Nowhere,
    /// In the watch: large objects that change seldom.
    Watch,
    ListAndWatch,
}

/// What the follower reports about a collection.
#[derive(Debug)]
pub enum Seen<'a> {
    /// Earlier changes are unknown; changes from now on are reported. Contains the objects if they are listed.
    Restarted(Vec<Metadata>),
    Change {
        deleted: bool,
        object: &'a Metadata,
    },
    /// The watch has ended. Nothing is known until the next restart, change or [`Seen::Live`].
    Lost {
        /// Its time was over, and the apiserver was there until then: everything up to now was reported.
        is_due: bool,
    },
    /// The watch is open again from where it stopped.
    Live,
    /// PINGs show within seconds if the connection of the watch dies. Follows a restart or [`Seen::Live`].
    Pinged,
    /// The apiserver refuses access to the collection, or does not know it.
    Refused,
}

/// Follows a collection. Never returns.
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
        // However the watch ended, and however long the next one takes to open: no changes are reported until then.
        seen(Seen::Lost { is_due: matches!(round, Ok(Round { is_due: true, .. })) });
        let pause = match round {
            Ok(Round { goes_on: true, .. }) if started.elapsed() >= FIRST_BACKOFF => continue,
            // A server that ends streams at once must not be asked in a tight loop.
            Ok(_) => backoff.next(None),
            Err(error) => {
                tracing::debug!(resource, %error, "watch of metadata broken");
                match error.code() {
                    Some(410) => {
                        from = None;
                        jittered(FIRST_BACKOFF)
                    }
                    Some(code @ (403 | 404)) => {
                        if code == StatusCode::FORBIDDEN && !std::mem::replace(&mut told, true) {
                            tracing::warn!(resource, "not allowed to watch: changes are noticed late");
                        }
                        from = None;
                        seen(Seen::Refused);
                        jittered(collection.refused)
                    }
                    _ => backoff.next(error.retry_after()),
                }
            }
        };
        // The apiserver answers again, or there are new credentials: do not wait any longer.
        tokio::select! {
            () = sleep(pause) => {}
            _ = recoveries.changed() => {}
        }
    }
}

/// How a watch has ended.
struct Round {
    /// The next one goes on from there.
    goes_on: bool,
    is_due: bool,
}

/// Runs from a start or a resumption until the stream ends or falls silent.
async fn round(
    upstream: &Upstream,
    collection: &Collection,
    from: &mut Option<ResourceVersion>,
    seen: &mut (impl FnMut(Seen<'_>) + Send),
    backoff: &mut Backoff,
) -> Result<Round, UpstreamError> {
    // A watch from a future revision is silently accepted, and would miss every change up to it. While the revision is not
    // known, nobody may rely on the watch.
    if let Some(start) = *from
        && revision(upstream, collection).await? < start
    {
        tracing::warn!(collection.resource, "the store of the apiserver went back: changes may have been missed");
        *from = None;
    }
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
    let options = CallOptions::new(RequestVerb::Watch, collection.resource).header_timeout(QUESTION_TIMEOUT);
    let is_whole = collection.whole != Whole::Nowhere;
    let accept = if is_whole { ACCEPT_WHOLE } else { ACCEPT_OBJECT };
    let opened = get(upstream, &path, accept, Compression::Identity, &options).await;
    let (head, chunks) = opened.inspect_err(|_| {
        // What was listed has not been told, so it is listed again.
        if restarted.is_some() {
            *from = None;
        }
    })?;
    let is_pinged = head.version() == Version::HTTP_2;
    let silence = if is_pinged { SILENCE } else { SILENCE_WITHOUT_PING };
    seen(restarted.map_or(Seen::Live, Seen::Restarted));
    if is_pinged {
        seen(Seen::Pinged);
    }
    let opened = Instant::now();
    let mut came = false;
    let stream = MetadataStream::to_depth(chunks, DEPTH + if is_whole { CONDITIONS } else { 0 });
    let listened = listen(stream, silence, |event| {
        let rv = match &event {
            MetadataEvent::Changed { metadata, .. } => metadata.rv()?,
            MetadataEvent::Bookmark(rv) => *rv,
            MetadataEvent::Error(status) => return Err(UpstreamError::Status(status.clone())),
        };
        (*from, came) = (Some(rv), true);
        if let MetadataEvent::Changed { deleted, metadata } = &event {
            seen(Seen::Change { deleted: *deleted, object: metadata });
        }
        Ok(())
    })
    .await;
    // From the same position, an event that cannot be read would come again and again, and so would whatever breaks the
    // connection. Nobody knows what it changes: all that was known before is worth nothing.
    let is_stuck = match &listened {
        Ok(End::Silent) => false,
        Err(UpstreamError::Decode(_) | UpstreamError::Status(_)) => true,
        Ok(End::Ended) | Err(_) => !came && opened.elapsed() < SHORTLY,
    };
    if is_stuck {
        *from = None;
    } else {
        backoff.reset();
    }
    let is_over = opened.elapsed() + EARLY >= Duration::from_secs(seconds);
    listened.map(|end| Round { goes_on: !is_stuck, is_due: is_over && matches!(end, End::Ended) })
}

/// How a watch ended.
enum End {
    Ended,
    /// It cannot be told from one that has ended.
    Silent,
}

/// Passes on the events of a watch until it ends or falls silent.
async fn listen(
    mut stream: MetadataStream,
    silence: Duration,
    mut take: impl FnMut(MetadataEvent) -> Result<(), UpstreamError>,
) -> Result<End, UpstreamError> {
    loop {
        match stream.next(|| Instant::now() + silence).await {
            Ok(Some(event)) => take(event)?,
            Ok(None) => return Ok(End::Ended),
            Err(UpstreamError::Timeout { .. }) => return Ok(End::Silent),
            Err(error) => return Err(error),
        }
    }
}

/// Reads the collection's present revision, and its objects if they are wanted.
async fn list(upstream: &Upstream, collection: &Collection) -> Result<(ResourceVersion, Vec<Metadata>), UpstreamError> {
    if !collection.listed {
        return Ok((revision(upstream, collection).await?, Vec::new()));
    }
    let options = CallOptions::new(RequestVerb::List, collection.resource).header_timeout(QUESTION_TIMEOUT);
    let mut objects = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("{}?limit={PAGE}{}{token}", collection.path, selection(collection));
        let is_whole = collection.whole == Whole::ListAndWatch;
        let accept = if is_whole { ACCEPT_WHOLE } else { ACCEPT_LIST };
        let depth = DEPTH_OF_ITEMS + if is_whole { CONDITIONS } else { 0 };
        let page: MetadataList = get_outline(upstream, &path, accept, &options, (depth, MAX_PAGE)).await?;
        let rv = page.rv()?;
        objects.extend(page.items.into_iter().map(Metadata::from));
        token = format!("&continue={}", page.metadata.continue_token);
        if page.metadata.continue_token.is_empty() {
            return Ok((rv, objects));
        }
    }
}

/// Reads the store's present revision.
async fn revision(upstream: &Upstream, collection: &Collection) -> Result<ResourceVersion, UpstreamError> {
    let options = CallOptions::new(RequestVerb::Probe, collection.resource).header_timeout(QUESTION_TIMEOUT);
    let path = format!("{}?limit=1{}", collection.path, selection(collection));
    let page: MetadataList = get_outline(upstream, &path, ACCEPT_LIST, &options, (DEPTH_OF_ITEMS, MAX_PAGE)).await?;
    page.rv()
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
