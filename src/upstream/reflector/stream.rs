//! The two ways objects come: frames of a watch, and items of a list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, timeout_at};

use super::{ReflectorConfig, decode_error};
use crate::codec::json::{ListMeta, TypeMeta, WatchFrame};
use crate::codec::table::{Columns, Printed, Unprintable};
use crate::codec::{CodecError, Format, ListDecoder, WatchDecoder};
use crate::meta::{Encoding, Moment, Object, ObjectKey, ResourceVersion, Status};
use crate::upstream::client::{CallOptions, Upstream, UpstreamError, UpstreamMetrics};
use crate::upstream::reader::{Chunks, Compression, HEAD_TIMEOUT, IDLE_TIMEOUT, get};
use crate::upstream::source::ListerWatcher;

/// Seconds that an event may have taken to us.
const LATE: i64 = 30;

/// An open watch.
pub(in crate::upstream) struct EventStream {
    chunks: Chunks,
    decoder: WatchDecoder,
    metrics: Arc<UpstreamMetrics>,
    /// When it must have ended by itself.
    pub(in crate::upstream) deadline: Instant,
    /// The revision it has come to.
    pub(super) last: ResourceVersion,
    /// The object of its last event.
    pub(super) last_key: Option<ObjectKey>,
    /// Of tables.
    columns: Option<Arc<Columns>>,
    asked: Moment,
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
        check_encoding(lister.encoding, head.headers())?;
        upstream.warnings().learn(&lister.resource.gvr, head.headers());
        Ok(Self {
            chunks,
            decoder: WatchDecoder::new(lister.encoding, config.max_object, lister.table.clone()),
            metrics: Arc::clone(upstream.metrics()),
            deadline: Instant::now() + lifetime + config.grace,
            last: ResourceVersion::ZERO,
            last_key: None,
            columns: lister.columns.get().cloned(),
            asked,
        })
    }

    /// The next frame; `None` at a proper end. Cancelling the wait loses nothing.
    ///
    /// # Errors
    /// When the stream breaks, is garbage, or says nothing until `until`.
    pub(in crate::upstream) async fn next(&mut self, until: Instant) -> Result<Option<WatchFrame>, UpstreamError> {
        loop {
            if let Some(mut frame) = self.decoder.next().map_err(decode_error)? {
                self.metrics.received_events.fetch_add(1, Ordering::Relaxed);
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
                None if self.decoder.has_partial() => return Err(decode_error(CodecError::Truncated)),
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
        // An event is printed when it is sent, and the state that a watch begins with while it is. What waits longer than
        // this in between waits for us.
        let lately = Moment::now().plus(-LATE);
        columns.resolve(object, Printed::after(self.asked.max(lately)))
    }
}

/// A server that does not know protobuf may answer in JSON instead of refusing.
fn check_encoding(asked: Encoding, headers: &HeaderMap) -> Result<(), UpstreamError> {
    let prefix = Format::media_type(Encoding::Protobuf, false).as_bytes();
    let protobuf = headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(prefix));
    if asked != Encoding::Protobuf || protobuf {
        return Ok(());
    }
    let status = Status::failure(406, "NotAcceptable", "the server answered in another encoding than protobuf");
    Err(UpstreamError::Status(Box::new(status)))
}

/// Reads one page of a list; each item goes to `take` as it arrives. `None` once `take` wants no more.
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
    check_encoding(lister.encoding, head.headers())?;
    upstream.warnings().learn(&lister.resource.gvr, head.headers());
    let mut decoder = ListDecoder::new(lister.encoding, config.max_object, lister.table.clone());
    while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await? {
        decoder.push(chunk);
        while let Some((mut object, type_meta)) = decoder.next().map_err(decode_error)? {
            if let Some(columns) = lister.columns.get() {
                columns.resolve(&mut object, Printed::after(asked)).map_err(UpstreamError::Table)?;
            }
            if !take(object, type_meta) {
                return Ok(None);
            }
        }
        // A whole list decodes for seconds; others want this thread too.
        tokio::task::consume_budget().await;
    }
    let meta = decoder.finish().map_err(decode_error)?;
    let known = lister.columns.get().map(|columns| columns.definitions());
    if known.is_some() && known != meta.columns.as_ref() {
        return Err(UpstreamError::Table(Unprintable::Changed));
    }
    Ok(Some(meta))
}
