//! A watch that only wants to know that something has changed, and what: metadata, no cache, resumed from where it
//! stopped.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use rand::Rng;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::upstream::RequestVerb;
use crate::upstream::client::{CallOptions, Identity, Upstream, UpstreamBody, empty};

/// One object's metadata. A line beyond is no such thing.
const MAX_LINE: usize = 4 << 20;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch that is alive has a bookmark each minute. One that is silent for longer is opened again where it stopped, which is
/// the smallest question that shows whether it missed something.
const SILENCE: Duration = Duration::from_secs(75);
/// The same where no PING finds a dead connection sooner.
const SILENCE_WITHOUT_PING: Duration = Duration::from_secs(20);
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// One small request each time, and until it is answered changed rights are not heard of.
const LAST_BACKOFF: Duration = Duration::from_secs(5);
/// How often a collection that may not be watched is tried again.
const FORBIDDEN_BACKOFF: Duration = Duration::from_secs(60);

pub(super) const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
const METADATA_LIST: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");

/// What is watched.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    /// As in `/api/v1/serviceaccounts`.
    pub path: &'static str,
    /// The name in the counters.
    pub resource: &'static str,
    /// The value of the query's `fieldSelector`, escaped. Empty selects everything.
    pub field_selector: String,
}

/// What a watch has to tell.
#[derive(Debug)]
pub(super) enum Seen<'a> {
    /// What happened before is not known; what happens from now on is.
    Restarted,
    Change {
        deleted: bool,
        object: &'a Metadata,
    },
    /// Nothing is known until the next restart or change.
    Lost,
    /// The watch is open again where it stopped.
    Live,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub namespace: String,
    pub uid: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct List {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    code: u16,
}

enum Broken {
    /// The revision is too old.
    Expired,
    Forbidden,
    Other(String),
}

/// Watches for ever.
pub(super) async fn watch(upstream: Upstream, collection: Collection, mut seen: impl FnMut(Seen<'_>) + Send) {
    let mut from: Option<String> = None;
    let mut backoff = FIRST_BACKOFF;
    let mut forbidden = false;
    let mut recoveries = upstream.recoveries();
    loop {
        let started = Instant::now();
        let round = round(&upstream, &collection, &mut from, &mut seen, &mut backoff).await;
        // However it ended, and however long the next one takes to open: until then nothing is told.
        seen(Seen::Lost);
        let broken = match round {
            Ok(()) if started.elapsed() >= FIRST_BACKOFF => continue,
            Ok(()) => Broken::Other("it ended at once".into()),
            Err(broken) => broken,
        };
        let pause = match broken {
            Broken::Expired => {
                from = None;
                FIRST_BACKOFF
            }
            Broken::Forbidden => {
                if !std::mem::replace(&mut forbidden, true) {
                    tracing::warn!(
                        resource = collection.resource,
                        "not allowed to watch: changed rights show only when decisions are asked for anew"
                    );
                }
                FORBIDDEN_BACKOFF
            }
            Broken::Other(error) => {
                tracing::debug!(resource = collection.resource, error, "watch for changed rights broken");
                backoff = (backoff * 2).min(LAST_BACKOFF);
                backoff
            }
        };
        let pause = pause.mul_f64(rand::rng().random_range(0.5..1.0));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = recoveries.changed() => {}
        }
    }
}

/// From a start or a resumption to the stream's end.
async fn round(
    upstream: &Upstream,
    collection: &Collection,
    from: &mut Option<String>,
    seen: &mut (impl FnMut(Seen<'_>) + Send),
    backoff: &mut Duration,
) -> Result<(), Broken> {
    let restarted = from.is_none();
    let start = match from.take() {
        Some(start) => start,
        None => revision(upstream, collection).await?,
    };
    *from = Some(start.clone());
    let seconds = rand::rng().random_range(300..600);
    let target = format!(
        "{}?watch=true&allowWatchBookmarks=true&resourceVersion={start}&timeoutSeconds={seconds}{}",
        collection.path,
        selection(collection, '&')
    );
    let (version, mut body) = send(upstream, collection, &target, RequestVerb::Watch, METADATA).await?;
    let silence = if version == Version::HTTP_2 { SILENCE } else { SILENCE_WITHOUT_PING };
    *backoff = FIRST_BACKOFF;
    seen(if restarted { Seen::Restarted } else { Seen::Live });
    let mut buffer = BytesMut::new();
    // What is silent has ended, as far as anybody can tell.
    while let Ok(Some(frame)) = timeout(silence, body.frame()).await {
        let frame = frame.map_err(|error| Broken::Other(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        while let Some(end) = memchr::memchr(b'\n', &buffer) {
            let line = buffer.split_to(end + 1);
            let event: Event =
                serde_json::from_slice(&line).map_err(|error| Broken::Other(format!("an event: {error}")))?;
            match event.kind.as_str() {
                "ERROR" if matches!(event.object.code, 410) => return Err(Broken::Expired),
                "ERROR" => return Err(Broken::Other(format!("an error of code {}", event.object.code))),
                "BOOKMARK" => {}
                kind => seen(Seen::Change { deleted: kind == "DELETED", object: &event.object.metadata }),
            }
            *from = Some(event.object.metadata.resource_version);
        }
        if buffer.len() > MAX_LINE {
            return Err(Broken::Other("an event without end".into()));
        }
    }
    Ok(())
}

/// The collection's present revision.
async fn revision(upstream: &Upstream, collection: &Collection) -> Result<String, Broken> {
    let target = format!("{}?limit=1{}", collection.path, selection(collection, '&'));
    let (_, body) = send(upstream, collection, &target, RequestVerb::Probe, METADATA_LIST).await?;
    let body = timeout(HEADER_TIMEOUT, Limited::new(body, MAX_LINE).collect()).await;
    let body = body.map_err(|_| Broken::Other("a list without end".into()))?;
    let body = body.map_err(|error| Broken::Other(error.to_string()))?;
    let list: List = serde_json::from_slice(&body.to_bytes()).map_err(|error| Broken::Other(error.to_string()))?;
    Ok(list.metadata.resource_version)
}

fn selection(collection: &Collection, separator: char) -> String {
    match collection.field_selector.as_str() {
        "" => String::new(),
        selector => format!("{separator}fieldSelector={selector}"),
    }
}

async fn send(
    upstream: &Upstream,
    collection: &Collection,
    target: &str,
    verb: RequestVerb,
    accept: HeaderValue,
) -> Result<(Version, UpstreamBody), Broken> {
    let mut request = Request::new(empty());
    *request.uri_mut() = target.parse::<Uri>().map_err(|error| Broken::Other(error.to_string()))?;
    request.headers_mut().insert(ACCEPT, accept);
    let options = CallOptions::new(verb, Arc::from(collection.resource)).header_timeout(HEADER_TIMEOUT);
    let response = upstream.send_with(Identity::Own, request, &options).await;
    let response = response.map_err(|error| Broken::Other(error.to_string()))?;
    match response.status() {
        StatusCode::OK => Ok((response.version(), response.into_body())),
        StatusCode::GONE => Err(Broken::Expired),
        StatusCode::FORBIDDEN => Err(Broken::Forbidden),
        other => Err(Broken::Other(format!("the apiserver answers {other}"))),
    }
}
