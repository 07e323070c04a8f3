//! The two ways in which objects arrive from the decoder: frames of a watch, and items of a list.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, timeout_at};

use super::config::ReflectorConfig;
use crate::apiserver::Cause;
use crate::apiserver::chunks::{Chunks, IDLE_TIMEOUT};
use crate::apiserver::client::{CallOptions, ConnectionId, Upstream, UpstreamError, UpstreamMetrics};
use crate::apiserver::reader::{Compression, HEAD_TIMEOUT, get};
use crate::codec::json::{ListMeta, TypeMeta, WatchFrame};
use crate::codec::table::{Columns, Printed, Unprintable};
use crate::codec::{CodecError, Format, ListDecoder, WatchDecoder};
use crate::meta::{Encoding, FieldTable, Moment, Object, ObjectKey, ResourceVersion, Status};
use crate::upstream::source::ListerWatcher;

/// Maximum delay of an event on its way to the daemon, in seconds.
const LATE: i64 = 30;

/// An open watch of the apiserver, and the decoder of its frames.
pub(in crate::upstream) struct EventStream {
    chunks: Chunks,
    decoder: WatchDecoder,
    metrics: Arc<UpstreamMetrics>,
    /// When the server must have ended it.
    pub(in crate::upstream) deadline: Instant,
    /// The revision up to which it has been read.
    pub(super) last: ResourceVersion,
    /// The object of its last event.
    pub(super) last_key: Option<ObjectKey>,
    /// A frame that was read before it was asked for.
    peeked: Option<WatchFrame>,
    /// The columns, if the stream is one of tables.
    columns: Option<Arc<Columns>>,
    asked: Moment,
    /// The connection that it arrives on.
    pub(super) connection: Option<ConnectionId>,
}

// === impl EventStream ===

impl EventStream {
    pub(in crate::upstream) async fn open(
        upstream: &Upstream,
        lister: &ListerWatcher,
        config: &ReflectorConfig,
        path: &str,
        lifetime: Duration,
        options: CallOptions,
    ) -> Result<Self, UpstreamError> {
        let options = options.header_timeout(HEAD_TIMEOUT);
        let (accept, asked) = (lister.accept(), Moment::now());
        let (head, chunks) = get(upstream, path, accept, Compression::Identity, &options).await?;
        if !is_as_asked(lister.encoding, head.headers()) {
            // Only a list shows whether the server lacks the encoding: its body can be read to check that it is a list.
            return Err(UpstreamError::Decode(Cause::new("a watch in another encoding than was asked for")));
        }
        upstream.warnings().learn(&lister.resource.gvr, head.headers());
        Ok(Self {
            chunks,
            decoder: WatchDecoder::new(lister.encoding, config.max_object, lister.table.clone()),
            metrics: Arc::clone(upstream.metrics()),
            deadline: Instant::now() + lifetime + config.grace,
            last: ResourceVersion::ZERO,
            last_key: None,
            peeked: None,
            columns: lister.columns.get().cloned(),
            asked,
            connection: head.extensions().get().copied(),
        })
    }

    /// The bytes that it has brought so far, as they were sent and unpacked.
    pub(super) fn sizes(&self) -> (u64, u64) {
        self.chunks.sizes()
    }

    /// Waits for the first frame, for at most this long. Nothing is as good as an event: the apiserver sends an error
    /// at once.
    ///
    /// # Errors
    /// The first frame is an error, or the stream has ended.
    pub(super) async fn accepted(&mut self, within: Duration) -> Result<(), UpstreamError> {
        match self.next(Instant::now() + within).await {
            Ok(Some(WatchFrame::Error(status))) => Err(UpstreamError::Status(Box::new(status))),
            Ok(Some(frame)) => {
                self.peeked = Some(frame);
                Ok(())
            }
            Ok(None) => Err(UpstreamError::decode(CodecError::Truncated, None)),
            Err(UpstreamError::Timeout { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the next frame, or `None` at a clean end of the stream. This is cancel safe.
    ///
    /// # Errors
    /// The stream breaks, is malformed, or sends nothing until `until`.
    pub(in crate::upstream) async fn next(&mut self, until: Instant) -> Result<Option<WatchFrame>, UpstreamError> {
        if let Some(frame) = self.peeked.take() {
            return Ok(Some(frame));
        }
        loop {
            let frame = self.decoder.next().map_err(|error| UpstreamError::decode(error, self.decoder.odd_object()))?;
            if let Some(mut frame) = frame {
                self.metrics.received_events.inc();
                self.resolve(&mut frame).map_err(UpstreamError::Table)?;
                return Ok(Some(frame));
            }
            let asked = Instant::now();
            let chunk = timeout_at(until, self.chunks.read()).await.map_err(|_elapsed| UpstreamError::Timeout {
                what: "the next watch event",
                after: asked.elapsed(),
            })??;
            match chunk {
                Some(chunk) => self.decoder.push(chunk),
                None if self.decoder.has_partial() => return Err(UpstreamError::decode(CodecError::Truncated, None)),
                None => return Ok(None),
            }
        }
    }
}

// === impl EventStream, of tables ===

impl EventStream {
    fn resolve(&mut self, frame: &mut WatchFrame) -> Result<(), Unprintable> {
        let Some(columns) = &self.columns else { return Ok(()) };
        if self.decoder.take_columns().is_some_and(|named| named != *columns.definitions()) {
            return Err(Unprintable::Changed);
        }
        let WatchFrame::Event { object, .. } = frame else { return Ok(()) };
        // An event is printed when it is sent. The state at the start of a watch is printed while it is sent. If a
        // frame waits longer than this in between, it waits for the daemon to read it.
        let lately = Moment::now().plus(-LATE);
        columns.resolve(object, Printed::after(self.asked.max(lately)))
    }
}

/// A server that does not support protobuf may answer in JSON instead of refusing.
fn is_as_asked(asked: Encoding, headers: &HeaderMap) -> bool {
    asked != Encoding::Protobuf || is_of_type(headers, Encoding::Protobuf)
}

fn is_of_type(headers: &HeaderMap, encoding: Encoding) -> bool {
    let prefix = Format::media_type(encoding, false).as_bytes();
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(prefix))
}

/// The error for an answer in another encoding. If the answer is a whole list, the server does not support the
/// requested encoding. Anything else is not from the apiserver.
async fn other_encoding(headers: &HeaderMap, mut chunks: Chunks, config: &ReflectorConfig) -> UpstreamError {
    let read = async {
        let mut decoder = ListDecoder::new(Encoding::Json, config.max_object, FieldTable::default());
        while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await? {
            decoder.push(chunk);
            while decoder.next().map_err(|error| UpstreamError::decode(error, None))?.is_some() {}
            tokio::task::consume_budget().await;
        }
        decoder.finish().map_err(|error| UpstreamError::decode(error, None))
    };
    let neither = || UpstreamError::Decode(Cause::new("neither protobuf nor a list in another encoding"));
    if !is_of_type(headers, Encoding::Json) {
        return neither();
    }
    match read.await {
        Ok(meta) if !meta.rv.is_zero() => {
            let message = "the server answered in another encoding than protobuf";
            UpstreamError::Status(Box::new(Status::failure(406, "NotAcceptable", message)))
        }
        Err(error) if error.is_about_revisions() => error,
        _ => neither(),
    }
}

/// Reads one page of a list and passes each item to `take` as it arrives. Returns `None` once `take` wants no more.
pub(in crate::upstream) async fn read_page(
    upstream: &Upstream,
    lister: &ListerWatcher,
    config: &ReflectorConfig,
    path: &str,
    options: &CallOptions,
    mut take: impl FnMut(Object, TypeMeta) -> bool,
) -> Result<Option<ListMeta>, UpstreamError> {
    let options = options.clone().header_timeout(HEAD_TIMEOUT);
    let (accept, asked) = (lister.accept(), Moment::now());
    let (head, mut chunks) = get(upstream, path, accept, Compression::Gzip, &options).await?;
    if !is_as_asked(lister.encoding, head.headers()) {
        return Err(other_encoding(head.headers(), chunks, config).await);
    }
    upstream.warnings().learn(&lister.resource.gvr, head.headers());
    let mut decoder = ListDecoder::new(lister.encoding, config.max_object, lister.table.clone());
    let mut objects = 0;
    while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await? {
        decoder.push(chunk);
        loop {
            let item = decoder.next().map_err(|error| UpstreamError::decode(error, decoder.odd_object()))?;
            let Some((mut object, type_meta)) = item else { break };
            if let Some(columns) = lister.columns.get() {
                columns.resolve(&mut object, Printed::after(asked)).map_err(UpstreamError::Table)?;
            }
            objects += 1;
            if !take(object, type_meta) {
                return Ok(None);
            }
        }
        // Decoding a whole list takes seconds; other tasks need this thread too.
        tokio::task::consume_budget().await;
    }
    let meta = decoder.finish().map_err(|error| UpstreamError::decode(error, None))?;
    let known = lister.columns.get().map(|columns| columns.definitions());
    if known.is_some() && known != meta.columns.as_ref() {
        return Err(UpstreamError::Table(Unprintable::Changed));
    }
    // A page of one, such as the question for their number, is no measure of all.
    if objects > 1 {
        lister.meter.listed(objects, chunks.sizes());
    }
    Ok(Some(meta))
}
