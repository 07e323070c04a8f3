//! Compressed answers: made once, in small steps, by whoever reads them first, and shared by all who ask for the same.
//!
//! Nothing is compressed ahead of its readers and nothing beside them: a step is one part of a reader's own poll. So
//! there is no task to stop, no queue, and what nobody reads any more is dropped with what it was made from.

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

use super::list_body::Step;
use super::metrics::HttpMetrics;
use super::writer::Writer;
use crate::codec::{Form, ListMetaOut, Shape, Slices};
use crate::lifecycle::spawn;
use crate::memory::{Ledger, Reservation};
use crate::meta::Object;
use crate::reads::{GetAnswer, ListAnswer, ListIdentity};

/// Whether and how answers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GzipConfig {
    /// As the apiserver does it: bodies of gets and lists over 128 KiB, for clients that accept gzip. Default.
    pub enabled: bool,
    /// Compressed bytes kept for the next who asks. What was used least goes first; what does not fit at all is
    /// compressed for its own readers alone. Default 64 MiB.
    pub keep_bytes: u64,
}

/// The apiserver compresses what is larger than this.
pub(super) const THRESHOLD: usize = 128 << 10;
/// What comes closest to the apiserver's level 1 in size and time: level 1 of this library is a third larger.
const LEVEL: u32 = 2;
/// Uncompressed bytes in one step, which takes well below a millisecond.
const STEP: usize = 128 << 10;
/// Compressed bytes are handed out in pieces of at least this size, but for the last.
const CHUNK: usize = 16 << 10;
/// What nobody has asked for again within this time is let go.
const KEEP: Duration = Duration::from_secs(60);
/// What a compressor holds while it works.
const COMPRESSOR: usize = 320 << 10;
/// What an entry costs besides its bytes.
const OVERHEAD: usize = 512;

type Shelf = moka::future::Cache<Key, Arc<Compressed>>;

/// The compressed answers that may be asked for again, and those that are being made.
pub(super) struct Gzip {
    enabled: bool,
    kept: Shelf,
    /// Held by their readers. As many as those have, and what the last look-up left.
    making: Mutex<HashMap<Key, Weak<Compressed>>>,
    ledger: Ledger,
    metrics: Arc<HttpMetrics>,
}

/// Answers with equal keys are the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    List { identity: ListIdentity, meta: ListMetaOut, form: Same<Form>, shape: Shape, indent: bool },
    Object { object: Same<Object>, form: Same<Form>, shape: Shape, indent: bool },
}

/// One value and no other, however equal. Kept alive, so that no other takes its place.
pub(super) struct Same<T>(Arc<T>);

/// One answer, as far as it has been compressed.
pub(super) struct Compressed {
    inner: Mutex<Inner>,
    /// There is no memory for all of it: what a reader has taken is let go, unless others are still to read it.
    is_lean: AtomicBool,
    metrics: Arc<HttpMetrics>,
}

struct Inner {
    /// `None` when all is compressed.
    source: Option<Source>,
    /// Where it is kept then.
    shelf: Option<(Key, Shelf)>,
    chunks: Vec<Bytes>,
    len: usize,
    objects: u64,
    failed: bool,
    /// For the chunks, and for the compressor while it is there.
    place: Reservation,
}

/// What is still to be compressed.
struct Source {
    pending: Slices,
    writer: Writer,
    encoder: GzEncoder<Vec<u8>>,
}

/// What a reader finds at its place.
pub(super) enum Piece {
    Chunk(Bytes),
    /// There will be more; one step towards it was made.
    Later,
    End,
    /// Compression into memory does not fail; should it, no body may look whole.
    Failed,
}

/// Whether the client takes gzip, by the apiserver's own reading: the first header only, and the bare word.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|token| token.trim() == "gzip")
}

// === impl Gzip ===

impl Gzip {
    pub(super) fn new(config: GzipConfig, ledger: Ledger, metrics: Arc<HttpMetrics>) -> Self {
        let weigh = |key: &Key, compressed: &Arc<Compressed>| {
            let bytes = key.size() + compressed.inner.lock().len + OVERHEAD;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let kept = Shelf::builder()
            .max_capacity(config.keep_bytes)
            .weigher(weigh)
            .time_to_idle(KEEP)
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .build();
        Self { enabled: config.enabled, kept, making: Mutex::default(), ledger, metrics }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The answer of this key; if it is not there, it will be made of `first` and what `writer` gives after it.
    ///
    /// # Errors
    /// Returns both unchanged if there is no memory for a compressor.
    pub(super) async fn get(
        &self,
        key: Key,
        first: Slices,
        writer: Writer,
    ) -> Result<Arc<Compressed>, Box<(Slices, Writer)>> {
        // What tells the time is for nobody else.
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
        let (identity, meta, form) = (identity.clone(), meta.clone(), Same(Arc::clone(form)));
        Self::List { identity, meta, form, shape: *shape, indent }
    }

    pub(super) fn object(answer: &GetAnswer, indent: bool) -> Self {
        let GetAnswer { object, form, shape, .. } = answer;
        Self::Object { object: Same(Arc::clone(object)), form: Same(Arc::clone(form)), shape: *shape, indent }
    }

    fn tells_time(&self) -> bool {
        match self {
            Self::List { shape, .. } | Self::Object { shape, .. } => shape.tells_time(),
        }
    }

    /// What it alone may keep in memory.
    fn size(&self) -> usize {
        match self {
            Self::List { .. } => 0,
            Self::Object { object, .. } => object.0.size(),
        }
    }
}

// === impl Same ===

impl<T> Clone for Same<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Same<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Same<T> {}

impl<T> Hash for Same<T> {
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
            inner: Mutex::new(Inner {
                source: Some(source),
                shelf,
                chunks: Vec::new(),
                len: 0,
                objects: 0,
                failed: false,
                place,
            }),
            is_lean: AtomicBool::new(false),
            metrics,
        }
    }

    /// The piece of this number. A reader that is the first to come to it makes one step, and finds it at its next look.
    /// Others wait meanwhile, a step's time at most.
    pub(super) fn piece(self: &Arc<Self>, number: usize) -> Piece {
        let mut inner = self.inner.lock();
        if let Some(chunk) = inner.chunks.get(number).cloned() {
            // Nobody joins a lean answer, so its only reader may free chunks.
            if self.is_lean.load(Ordering::Relaxed) && Arc::strong_count(self) == 1 {
                inner.let_go(number, &self.metrics);
            }
            return Piece::Chunk(chunk);
        }
        if inner.failed {
            return Piece::Failed;
        }
        if inner.source.is_none() {
            return Piece::End;
        }
        self.step(&mut inner);
        Piece::Later
    }

    /// All of it, if that comes to at most `most` bytes. Makes as many steps as it takes to know, and lets others run
    /// between them.
    pub(super) async fn if_short(self: &Arc<Self>, most: usize) -> Option<Slices> {
        loop {
            {
                let mut inner = self.inner.lock();
                if inner.len > most || inner.failed {
                    return None;
                }
                if inner.source.is_none() {
                    return Some(inner.chunks.iter().cloned().collect());
                }
                self.step(&mut inner);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Objects in it, once it is complete.
    pub(super) fn objects(&self) -> u64 {
        self.inner.lock().objects
    }

    fn step(self: &Arc<Self>, inner: &mut Inner) {
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

impl Inner {
    /// Compresses up to [`STEP`] bytes more.
    fn step(&mut self, is_lean: &AtomicBool, metrics: &HttpMetrics) -> io::Result<()> {
        let Some(source) = &mut self.source else { return Ok(()) };
        let mut budget = STEP;
        let mut ended = false;
        while budget > 0 && !ended {
            if source.pending.is_empty() {
                match source.writer.step() {
                    Step::Frame(frame) => source.pending = frame,
                    Step::Again => break,
                    Step::End => ended = true,
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
            // Kept long: not with the room it had to grow.
            chunk.shrink_to_fit();
            if self.place.grow(chunk.len()).is_err() {
                // Nobody else joins, and it is not kept.
                is_lean.store(true, Ordering::Relaxed);
                self.shelf = None;
            }
            metrics.gzip_bytes_out.inc_by(chunk.len() as u64);
            metrics.gzip_memory.inc_by(chunk.len() as i64);
            self.len += chunk.len();
            self.chunks.push(chunk.into());
        }
        if self.source.is_none() {
            self.place.shrink(COMPRESSOR);
        }
        Ok(())
    }

    /// Drops the chunks up to this one.
    fn let_go(&mut self, number: usize, metrics: &HttpMetrics) {
        let gone: usize = self.chunks.iter_mut().take(number + 1).map(|chunk| std::mem::take(chunk).len()).sum();
        // What did not fit was not counted.
        let counted = self.len + if self.source.is_some() { COMPRESSOR } else { 0 };
        self.len -= gone;
        self.place.shrink(gone.saturating_sub(counted.saturating_sub(self.place.bytes())));
        metrics.gzip_memory.inc_by(-(gone as i64));
    }
}

// === impl GzipConfig ===

impl Default for GzipConfig {
    fn default() -> Self {
        Self { enabled: true, keep_bytes: 64 << 20 }
    }
}

#[cfg(test)]
#[path = "gzip_tests.rs"]
mod tests;
