//! The questions that the apiserver is asked about one collection, for all informers that hold its objects.
//!
//! The same objects are held in several encodings, and in several versions of their type. The store's answers about
//! their keys and revisions hold for all of them, so one question is enough, whichever informer asks it. What a selector
//! selects depends on the version: a conversion webhook may change labels and fields.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::comparison::{Comparisons, Part};
use super::digest::Digest;
use super::odds::{Movement, Odds};
use super::shared_store::{SharedStore, Word};
use super::single_flight::{Asked, SingleFlight};
use crate::apiserver::chunks::IDLE_TIMEOUT;
use crate::apiserver::client::{ConnectionId, Upstream};
use crate::apiserver::metrics::RequestVerb;
use crate::apiserver::reader::{Compression, get};
use crate::apiserver::stamp::Stamp;
use crate::apiserver::{Cause, UpstreamError};
use crate::cache::{Order, WatchCache};
use crate::codec::json::ListMeta;
use crate::codec::{Format, ListDecoder};
use crate::meta::{Encoding, FieldTable, ObjectKey, ResourceVersion};
use crate::upstream::source::ListerWatcher;

/// Timeout for the head of a response that the apiserver can send at once.
pub(in crate::upstream) const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Room for objects that may have been created since our state.
const ROOM: u32 = 64;
/// An answer may have this size in bytes, also if a server cannot send the metadata alone. It is decoded while it arrives,
/// and only the keys are kept.
const MAX_ANSWER: usize = 64 << 20;
/// An answer may have this size for each object that is asked for, if that is more. Most of the metadata are managed fields:
/// about 3 kB for a pod.
const MAX_ANSWER_EACH: usize = 8 << 10;
const ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The questions about one collection, and their answers.
#[derive(Default)]
pub struct Questions {
    pub(super) revisions: SingleFlight<ResourceVersion>,
    /// The newest answer.
    word: Mutex<Option<Word>>,
    pub(super) comparisons: Comparisons,
    pub(super) odds: Odds,
    pub(super) movement: Mutex<Movement>,
    /// The store of all built-in resources, if this is one of them.
    store: Option<Arc<SharedStore>>,
    /// The connection of the last answer. A proof is requested from the same apiserver, because its cache has just
    /// caught up.
    pub(super) connection: Mutex<Option<ConnectionId>>,
    pub(super) heard: Stamp,
    /// The script that answers in place of an apiserver in tests.
    #[cfg(test)]
    script: Option<crate::upstream::script::Script>,
}

// === impl Questions ===

impl Questions {
    /// The questions about a built-in resource. It is kept in this store if that is the only one.
    pub fn in_store(store: Arc<SharedStore>) -> Self {
        Self { store: Some(store), ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn scripted(script: crate::upstream::script::Script, store: Option<Arc<SharedStore>>) -> Self {
        Self { script: Some(script), store, ..Self::default() }
    }

    /// The store, if it is known to be the only one.
    pub(super) fn store(&self) -> Option<&Arc<SharedStore>> {
        self.store.as_ref().filter(|store| store.is_only())
    }

    /// The newest answer of the apiserver about the store's revision.
    pub(super) fn last_word(&self) -> Option<Word> {
        let (ours, shared) = (*self.word.lock(), self.store().and_then(|store| store.last_word()));
        ours.into_iter().chain(shared).max_by_key(|word| word.asked)
    }

    pub(super) fn remember(&self, rv: ResourceVersion, asked: Asked) -> Word {
        let word = Word { rv, asked };
        self.movement.lock().heard(rv, asked.at);
        if let Some(store) = self.store() {
            store.heard(word);
        }
        let mut last = self.word.lock();
        if last.is_none_or(|last| last.asked < word.asked) {
            *last = Some(word);
        }
        word
    }

    fn heard_by(&self, connection: Option<ConnectionId>) {
        *self.connection.lock() = connection;
        self.heard.set(Instant::now());
    }

    pub(super) async fn read_digest(
        &self,
        upstream: &Upstream,
        source: &ListerWatcher,
        cache: &WatchCache,
        part: Option<&Part>,
    ) -> Result<Digest, UpstreamError> {
        // As many as we have, and room for new objects that are on their way.
        let ours = match (cache.snapshot(), part) {
            (None, _) => 0,
            (Some(snapshot), Some(part)) => part.count(snapshot).await,
            (Some(snapshot), None) => snapshot.len(),
        };
        let room = Digest::room(&cache.config().budget, ours + ROOM as usize)
            .map_err(|full| UpstreamError::Memory(Cause::new(full)))?;
        let limit = u32::try_from(ours).unwrap_or(u32::MAX).saturating_add(ROOM);
        let asked = Order::now();
        let part = part.map(|part| part.of(source));
        let mut objects = Vec::with_capacity(ours);
        let source = part.as_ref().unwrap_or(source);
        let mut is_all = true;
        // A server that ignores the limit fills no more memory than was reserved.
        let keep = |key, rv| match objects.len() < limit as usize {
            true => objects.push((key, rv)),
            false => is_all = false,
        };
        let meta = self.read_keys(upstream, source, limit, keep).await?;
        Ok(Digest::new(meta.rv, asked, (is_all && meta.continue_token.is_empty()).then_some(objects), room))
    }

    pub(super) async fn read_revision(
        &self,
        upstream: &Upstream,
        source: &ListerWatcher,
    ) -> Result<ResourceVersion, UpstreamError> {
        #[cfg(test)]
        if let Some(script) = &self.script {
            return Ok(script.answer(&source.nothing().list_path(1, ""), 1, |_, _| {}).await.rv);
        }
        let (rv, connection) = revision(upstream, source).await?;
        self.heard_by(connection);
        Ok(rv)
    }

    pub(super) async fn read_keys(
        &self,
        upstream: &Upstream,
        source: &ListerWatcher,
        limit: u32,
        take: impl FnMut(ObjectKey, ResourceVersion),
    ) -> Result<ListMeta, UpstreamError> {
        #[cfg(test)]
        if let Some(script) = &self.script {
            let meta = script.answer(&source.list_path(limit, ""), limit, take).await;
            self.heard_by(None);
            return Ok(meta);
        }
        let (meta, connection) = read_keys(upstream, source, limit, take).await?;
        self.heard_by(connection);
        Ok(meta)
    }
}

/// Reads the store's present revision with a consistent list of almost nothing. Also returns the connection of the
/// answer.
pub(in crate::upstream) async fn revision(
    upstream: &Upstream,
    source: &ListerWatcher,
) -> Result<(ResourceVersion, Option<ConnectionId>), UpstreamError> {
    let answer = match read_keys(upstream, &source.nothing(), 1, |_, _| {}).await {
        Err(error) if is_of_question(&error) => read_keys(upstream, source, 1, |_, _| {}).await,
        answer => answer,
    };
    answer.map(|(meta, connection)| (meta.rv, connection))
}

/// Whether the apiserver may still answer a plain list: an aggregated apiserver may not support field selectors, or may
/// return no revision for an empty list, and an authorizer may forbid the namespace.
fn is_of_question(error: &UpstreamError) -> bool {
    matches!(error.code(), Some(400..=428 | 500 | 501) if error.code() != Some(401))
        || matches!(error, UpstreamError::Decode(_))
}

/// Reads the metadata of up to `limit` objects, in protobuf if the server supports it, which costs half as much as
/// JSON. It is compressed where the apiserver compresses lists: it then has a fifteenth of the bytes.
async fn read_keys(
    upstream: &Upstream,
    source: &ListerWatcher,
    limit: u32,
    mut take: impl FnMut(ObjectKey, ResourceVersion),
) -> Result<(ListMeta, Option<ConnectionId>), UpstreamError> {
    let options = source.options(RequestVerb::Probe).header_timeout(QUESTION_TIMEOUT);
    let path = source.list_path(limit, "");
    let (head, mut chunks) = get(upstream, &path, ACCEPT, Compression::Gzip, &options).await?;
    upstream.warnings().learn(&source.resource.gvr, head.headers());
    let protobuf = Format::media_type(Encoding::Protobuf, false).as_bytes();
    let is_protobuf = head.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(protobuf));
    let encoding = if is_protobuf { Encoding::Protobuf } else { Encoding::Json };
    let error = |error| UpstreamError::Decode(Cause::new(error));
    let mut decoder = ListDecoder::new(encoding, MAX_ANSWER, FieldTable::default());
    let (mut keys, mut len) = (0, 0);
    let most = MAX_ANSWER.max((limit as usize).saturating_mul(MAX_ANSWER_EACH));
    while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await? {
        // As it is unpacked.
        len += chunk.len();
        if len > most {
            return Err(UpstreamError::Decode(Cause::new(format!("an answer larger than {most} bytes"))));
        }
        decoder.push(chunk);
        while let Some((object, _)) = decoder.next().map_err(error)? {
            keys += 1;
            take(object.key, object.rv);
        }
        tokio::task::consume_budget().await;
    }
    let meta = decoder.finish().map_err(error)?;
    if meta.rv.is_zero() {
        return Err(UpstreamError::Decode(Cause::new("a list without a resource version")));
    }
    // One object is no measure of all.
    if limit > 1 {
        source.meter.digested(keys, chunks.sizes());
    }
    Ok((meta, head.extensions().get().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::{FakeServer, answer};
    use crate::meta::{Origin, Resource, Status};

    fn widgets() -> ListerWatcher {
        let resource = Resource { origin: Origin::Unknown, ..Resource::simple("example.com", "widgets", "Widget") };
        ListerWatcher::of(Arc::new(resource))
    }

    /// Reads the revision from a server that answers the list of nothing with `code` and `body`. Also returns the
    /// number of requests.
    async fn asked(code: u16, body: &str) -> (Result<u64, UpstreamError>, usize) {
        const LIST: &str =
            r#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[]}"#;
        let body = body.to_owned();
        let server = FakeServer::plain(move |request, _| {
            let is_for_nothing = request.uri().query().unwrap_or_default().contains("fieldSelector");
            std::future::ready(if is_for_nothing { answer(code, body.clone()) } else { answer(200, LIST) })
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let revision = revision(&upstream, &widgets()).await.map(|(rv, _)| rv.get());
        (revision, server.requests().len())
    }

    #[tokio::test]
    async fn an_answer_may_be_as_large_as_its_limit_asks_for_once_it_is_unpacked() {
        const ITEMS: usize = 32;
        let item = |i| {
            let padding = "x".repeat(MAX_ANSWER / ITEMS);
            format!(
                r#"{{"metadata":{{"name":"w{i}","namespace":"n","resourceVersion":"5","annotations":{{"a":"{padding}"}}}}}}"#
            )
        };
        let items: Vec<_> = (0..ITEMS).map(item).collect();
        let list = format!(
            r#"{{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            items.join(",")
        );
        let bytes = list.len();
        assert!(bytes > MAX_ANSWER);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, list.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < bytes / 100);
        let server = FakeServer::plain(move |request, _| {
            assert_eq!(request.headers()["accept-encoding"], "gzip");
            let mut response = answer(200, packed.clone());
            response.headers_mut().insert("content-encoding", http::HeaderValue::from_static("gzip"));
            std::future::ready(response)
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        // Of so many objects, an answer of this size is what managed fields make of it.
        let many = u32::try_from(bytes.div_ceil(MAX_ANSWER_EACH)).unwrap();
        let mut keys = 0;
        let (meta, _) = read_keys(&upstream, &widgets(), many, |_, _| keys += 1).await.unwrap();
        assert_eq!((meta.rv.get(), keys), (7, ITEMS));
        // Of fewer objects, it is an error.
        let few = read_keys(&upstream, &widgets(), many - 1, |_, _| {}).await;
        assert!(matches!(few, Err(UpstreamError::Decode(_))), "{few:?}");
    }

    #[tokio::test]
    async fn a_server_that_cannot_tell_of_nothing_is_asked_by_a_plain_list() {
        let failure = |code: u16, reason: &str| Status::failure(code, reason, "no").to_json();
        for (code, reason) in [
            (400, "BadRequest"),
            (403, "Forbidden"),
            (404, "NotFound"),
            (422, "Invalid"),
            (500, "InternalError"),
            (501, "NotImplemented"),
        ] {
            let (revision, requests) = asked(code, &failure(code, reason)).await;
            assert_eq!((revision.unwrap(), requests), (7, 2), "{code}");
        }
        for undecodable in ["nothing", r#"{"kind":"WidgetList","apiVersion":"v1","metadata":{},"items":[]}"#] {
            let (revision, requests) = asked(200, undecodable).await;
            assert_eq!((revision.unwrap(), requests), (7, 2), "{undecodable}");
        }
        // Errors that a plain list would get as well.
        for (code, reason) in [(429, "TooManyRequests"), (503, "ServiceUnavailable")] {
            let (revision, requests) = asked(code, &failure(code, reason)).await;
            assert_eq!((revision.unwrap_err().code(), requests), (Some(code), 1));
        }
    }
}
