//! Compressed answers. Each is compressed once, in small steps, by the reader that comes first, and is shared by all
//! readers that ask for the same.
//!
//! Nothing is compressed ahead of the readers, and no task compresses in the background: a step is part of a reader's
//! own poll. So there is no task to stop and no queue. An answer without readers is dropped together with its source.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, HeaderMap};
use parking_lot::Mutex;

use super::body::BoxError;
use super::copies::Copies;
use super::list_writer::BodyStep;
use super::writer::Writer;
use crate::codec::{Form, ListMetaOut, Shape, Slices};
use crate::http::record::HttpMetrics;
use crate::lifecycle::spawn;
use crate::memory::{Ledger, Reservation};
use crate::meta::Object;
use crate::reads::{GetAnswer, ListAnswer, ListIdentity};

/// The apiserver compresses bodies larger than this.
pub(super) const THRESHOLD: usize = 128 << 10;
/// The level that comes closest to the apiserver's level 1 in size and time. Level 1 of this library gives a third more
/// bytes.
const LEVEL: u32 = 2;
/// Uncompressed bytes per step. A step takes well below a millisecond.
const STEP: usize = 128 << 10;
/// Compressed bytes are handed out in chunks of at least this size, except for the last.
const CHUNK: usize = 16 << 10;
/// An answer that is not requested again within this time is evicted.
const KEEP: Duration = Duration::from_secs(60);
/// The memory that a compressor uses while it works, and that of a piece that it has made.
const COMPRESSOR: usize = (320 << 10) + STEP;
/// The cost of an entry in addition to its bytes.
const OVERHEAD: usize = 512;

type Shelf = moka::future::Cache<Key, Arc<Compressed>>;

/// The compressed answers that are kept for later requests, and those that are being compressed.
pub(super) struct Gzip {
    kept: Shelf,
    /// Answers that are being compressed. Their readers own them. Dead entries are removed when the next one is added.
    making: Mutex<HashMap<Key, Weak<Compressed>>>,
    ledger: Ledger,
    metrics: Arc<HttpMetrics>,
}

/// Answers with equal keys have the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    List { identity: ListIdentity, meta: ListMetaOut, form: SameForm, shape: Shape, indent: bool },
    Object { object: SameObject, form: SameForm, shape: Shape, indent: bool },
}

/// Compares by address, not by value. It keeps the object alive, so that no other object gets the same address.
#[derive(Clone)]
pub(super) struct SameObject(Arc<Object>);

/// Some forms are made for one read.
#[derive(Clone, Eq)]
pub(super) struct SameForm(Arc<Form>);

/// One answer, compressed as far as readers have come.
pub(super) struct Compressed {
    inner: Mutex<GzipsInner>,
    /// There is no memory to keep the whole answer. A chunk is dropped once it is read, unless there are other readers.
    is_lean: AtomicBool,
    metrics: Arc<HttpMetrics>,
}

struct GzipsInner {
    /// `None` once everything is compressed.
    source: Option<Source>,
    /// Where the answer is kept once it is complete.
    shelf: Option<(Key, Shelf)>,
    chunks: Vec<Bytes>,
    len: usize,
    objects: u64,
    failed: bool,
    /// The last step has made nothing for want of memory.
    waits: bool,
    /// The memory reservation for the chunks, and for the compressor while there is one.
    place: Reservation,
}

/// What is still to be compressed.
struct Source {
    pending: Slices,
    writer: Writer,
    encoder: GzEncoder<Vec<u8>>,
}

/// Whether the client accepts gzip, by the apiserver's rules: only the first header counts, and only the bare word.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|token| token.trim() == "gzip")
}

// === impl Gzip ===

impl Gzip {
    /// `keep_bytes`: the most compressed bytes that are kept for later requests.
    pub(super) fn new(keep_bytes: u64, ledger: Ledger, metrics: Arc<HttpMetrics>) -> Self {
        let weigh = |key: &Key, compressed: &Arc<Compressed>| {
            let bytes = key.size() + compressed.inner.lock().len + OVERHEAD;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let kept = Shelf::builder()
            .max_capacity(keep_bytes)
            .weigher(weigh)
            .time_to_idle(KEEP)
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .build();
        Self { kept, making: Mutex::default(), ledger, metrics }
    }

    /// The answer for this key. If there is none, a new one is compressed from `first` and from the later output of
    /// `writer`.
    ///
    /// # Errors
    /// There is no memory for a compressor. Both arguments are returned unchanged.
    pub(super) async fn get(
        &self,
        key: Key,
        first: Slices,
        writer: Writer,
    ) -> Result<Arc<Compressed>, Box<(Slices, Writer)>> {
        // An answer that depends on the current time is not shared.
        let shared = !key.tells_time();
        if shared && let Some(kept) = self.kept.get(&key).await {
            self.metrics.gzip_responses.inc();
            return Ok(kept);
        }
        let mut making = self.making.lock();
        let found =
            making.get(&key).and_then(Weak::upgrade).filter(|found| shared && !found.is_lean.load(Ordering::Relaxed));
        if let Some(found) = found {
            self.metrics.gzip_responses.inc();
            return Ok(found);
        }
        let Ok(place) = self.ledger.spare(COMPRESSOR) else { return Err(Box::new((first, writer))) };
        self.metrics.gzip_responses.inc();
        let shelf = shared.then(|| (key.clone(), self.kept.clone()));
        let new = Arc::new(Compressed::new(first, writer, shelf, place, Arc::clone(&self.metrics)));
        if shared {
            making.retain(|_, compressed| compressed.strong_count() > 0);
            making.insert(key, Arc::downgrade(&new));
        }
        Ok(new)
    }
}

// === impl Key ===

impl Key {
    pub(super) fn list(answer: &ListAnswer, indent: bool) -> Self {
        let ListAnswer { identity, meta, form, shape, .. } = answer;
        let (identity, meta, form) = (identity.clone(), meta.clone(), SameForm(Arc::clone(form)));
        Self::List { identity, meta, form, shape: *shape, indent }
    }

    pub(super) fn object(answer: &GetAnswer, indent: bool) -> Self {
        let GetAnswer { object, form, shape, .. } = answer;
        Self::Object { object: SameObject(Arc::clone(object)), form: SameForm(Arc::clone(form)), shape: *shape, indent }
    }

    fn tells_time(&self) -> bool {
        match self {
            Self::List { shape, .. } | Self::Object { shape, .. } => shape.tells_time(),
        }
    }

    /// The memory that this key alone may keep alive.
    fn size(&self) -> usize {
        match self {
            Self::List { .. } => 0,
            Self::Object { object, .. } => object.0.size(),
        }
    }
}

// === impl SameForm ===

impl PartialEq for SameForm {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for SameForm {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.kind(), self.0.api_version(), self.0.encoding()).hash(state);
    }
}

// === impl SameObject ===

impl PartialEq for SameObject {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SameObject {}

impl Hash for SameObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

// === impl Compressed ===

impl Compressed {
    fn new(
        first: Slices,
        writer: Writer,
        shelf: Option<(Key, Shelf)>,
        place: Reservation,
        metrics: Arc<HttpMetrics>,
    ) -> Self {
        metrics.gzip_compressions.inc();
        let encoder = GzEncoder::new(Vec::with_capacity(2 * CHUNK), Compression::new(LEVEL));
        let source = Source { pending: first, writer, encoder };
        Self {
            inner: Mutex::new(GzipsInner {
                source: Some(source),
                shelf,
                chunks: Vec::new(),
                len: 0,
                objects: 0,
                failed: false,
                waits: false,
                place,
            }),
            is_lean: AtomicBool::new(false),
            metrics,
        }
    }

    /// The piece with this number. If it is not compressed yet, the reader makes one step and finds the piece on a
    /// later call. Other readers wait meanwhile, at most for the time of one step.
    ///
    /// `copies`: those of the reader. What is not kept here is reserved there.
    ///
    /// # Errors
    /// Compression into memory should never fail. If it does, the body must not look complete.
    pub(super) fn piece(self: &Arc<Self>, number: usize, copies: &mut Copies) -> Result<BodyStep, BoxError> {
        let mut inner = self.inner.lock();
        // No reader can join a lean answer, so its only reader may free chunks. A chunk that was handed out counts as one.
        let is_only = self.is_lean.load(Ordering::Relaxed) && Arc::strong_count(self) == 1;
        if let Some(chunk) = inner.chunks.get(number).cloned() {
            let mut chunk = Slices::from(chunk);
            if !is_only {
                chunk.hold(Arc::clone(self));
                return Ok(BodyStep::Frame(chunk));
            }
            if copies.reserve(chunk.len()).is_err() {
                return Ok(BodyStep::Wait);
            }
            inner.let_go(number + 1, &self.metrics);
            return Ok(BodyStep::Frame(copies.hold(chunk)));
        }
        if is_only {
            inner.let_go(number, &self.metrics);
        }
        if inner.failed {
            return Err("an answer could not be compressed".into());
        }
        if inner.source.is_none() {
            return Ok(BodyStep::End);
        }
        self.step(&mut inner);
        Ok(if inner.waits { BodyStep::Wait } else { BodyStep::Again })
    }

    /// The whole answer if it has at most `most` bytes. Makes as many steps as are needed to decide that, and yields to
    /// other tasks between them.
    pub(super) async fn if_short(self: &Arc<Self>, most: usize) -> Option<Slices> {
        loop {
            {
                let mut inner = self.inner.lock();
                if inner.len > most || inner.failed || inner.waits {
                    return None;
                }
                if inner.source.is_none() {
                    let mut all: Slices = inner.chunks.iter().cloned().collect();
                    all.hold(Arc::clone(self));
                    return Some(all);
                }
                self.step(&mut inner);
            }
            tokio::task::yield_now().await;
        }
    }

    /// The number of objects in the answer, once it is complete.
    pub(super) fn objects(&self) -> u64 {
        self.inner.lock().objects
    }

    fn step(self: &Arc<Self>, inner: &mut GzipsInner) {
        if let Err(error) = inner.step(&self.is_lean, &self.metrics) {
            tracing::error!(%error, "cannot compress an answer");
            (inner.source, inner.shelf, inner.failed) = (None, None, true);
        }
        if inner.source.is_none()
            && let Some((key, shelf)) = inner.shelf.take()
        {
            let compressed = Arc::clone(self);
            spawn("keep-compressed", async move { shelf.insert(key, compressed).await });
        }
    }
}

impl Drop for Compressed {
    fn drop(&mut self) {
        self.metrics.gzip_memory.inc_by(-(self.inner.get_mut().len as i64));
    }
}

impl GzipsInner {
    /// Compresses up to [`STEP`] more bytes.
    fn step(&mut self, is_lean: &AtomicBool, metrics: &HttpMetrics) -> io::Result<()> {
        // A lean answer has one piece at a time: other readers must have taken it.
        self.waits = self.uncounted() > 0;
        let Some(source) = self.source.as_mut().filter(|_| !self.waits) else { return Ok(()) };
        let mut budget = STEP;
        let mut ended = false;
        while budget > 0 && !ended {
            if source.pending.is_empty() {
                match source.writer.step().map_err(io::Error::other)? {
                    BodyStep::Frame(frame) => source.pending = frame,
                    BodyStep::Again => break,
                    BodyStep::Wait => {
                        self.waits = true;
                        break;
                    }
                    BodyStep::End => ended = true,
                }
                continue;
            }
            let chunk = source.pending.chunk();
            let taken = chunk.len().min(budget);
            source.encoder.write_all(&chunk[..taken])?;
            source.pending.advance(taken);
            budget -= taken;
        }
        metrics.gzip_bytes_in.inc_by((STEP - budget) as u64);
        let mut chunk = Vec::new();
        if ended {
            self.objects = source.writer.objects();
            if let Some(source) = self.source.take() {
                chunk = source.encoder.finish()?;
            }
        } else if source.encoder.get_ref().len() >= CHUNK {
            chunk = std::mem::replace(source.encoder.get_mut(), Vec::with_capacity(2 * CHUNK));
        }
        if !chunk.is_empty() {
            // The chunk is kept for long, so it must not keep spare capacity.
            chunk.shrink_to_fit();
            if self.place.grow(chunk.len()).is_err() {
                // From now on no other reader joins, and the answer is not kept.
                is_lean.store(true, Ordering::Relaxed);
                self.shelf = None;
            }
            metrics.gzip_bytes_out.inc_by(chunk.len() as u64);
            metrics.gzip_memory.inc_by(chunk.len() as i64);
            self.len += chunk.len();
            self.chunks.push(chunk.into());
        }
        if self.source.is_none() {
            self.place.shrink(self.place.bytes().saturating_sub(self.len));
        }
        Ok(())
    }

    /// The bytes of chunks that did not fit: they were not added to the reservation.
    fn uncounted(&self) -> usize {
        (self.len + if self.source.is_some() { COMPRESSOR } else { 0 }).saturating_sub(self.place.bytes())
    }

    /// Drops the chunks before this one.
    fn let_go(&mut self, number: usize, metrics: &HttpMetrics) {
        let gone: usize = self.chunks.iter_mut().take(number).map(|chunk| std::mem::take(chunk).len()).sum();
        self.place.shrink(gone.saturating_sub(self.uncounted()));
        self.len -= gone;
        metrics.gzip_memory.inc_by(-(gone as i64));
    }
}

#[cfg(test)]
#[path = "gzip_tests.rs"]
mod tests;
