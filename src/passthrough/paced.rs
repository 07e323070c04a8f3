//! Forwarded bodies that stop reading ahead while their client is slow. The memory of each is reserved before the
//! request is sent. While memory is short, bodies whose clients read nothing are abandoned.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{BoxError, ForwardBody};
use crate::memory::{Ledger, Reservation, Short};
use crate::upstream::client::ReqBody;

/// A body that keeps a reservation for as long as it lives.
pub(super) struct Placed {
    inner: ForwardBody,
    _place: Reservation,
}

/// A body that pauses while at least `window` bytes of it are unsent. Without this, the HTTP library would read a
/// megabyte ahead.
pub(super) struct Paced {
    inner: ForwardBody,
    window: usize,
    out: Arc<Out>,
}

/// The data of a body that was handed out and is still in memory.
#[derive(Default)]
struct Out {
    bytes: AtomicUsize,
    waker: AtomicWaker,
    /// Since when the window is full.
    full: Mutex<Option<Instant>>,
    given_up: AtomicBool,
}

/// Reserves memory for answers, and keeps a list of the answers in flight.
pub(super) struct Pace {
    ledger: Ledger,
    /// `None`: answers have no window and no reservation.
    window: Option<usize>,
    /// One entry per answer in flight.
    all: Mutex<Vec<Weak<Out>>>,
}

/// The most bytes of a request's body that the HTTP library reads ahead.
const READ_AHEAD: usize = 1 << 20;

/// Bytes that report when they are freed.
struct Given {
    data: Bytes,
    out: Arc<Out>,
}

// === impl Placed ===

impl Placed {
    pub(super) fn new(inner: ForwardBody, place: Reservation) -> Self {
        Self { inner, _place: place }
    }
}

impl Body for Placed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl Paced ===

impl Paced {
    fn is_full(&self) -> bool {
        self.out.bytes.load(Ordering::Acquire) >= self.window
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.is_full() {
            this.out.waker.register(cx.waker());
            // Check again: either may have changed before the waker was registered.
            if this.out.given_up.load(Ordering::Acquire) {
                return Poll::Ready(Some(Err(
                    "given up: its client had stopped to take it, and memory is short".into()
                )));
            }
            if this.is_full() {
                this.out.full.lock().get_or_insert_with(Instant::now);
                return Poll::Pending;
            }
        }
        // The client continued to read after all.
        this.out.given_up.store(false, Ordering::Release);
        *this.out.full.lock() = None;
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| frame.map_data(|data| if data.is_empty() { data } else { this.out.give(data) }))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl Pace ===

impl Pace {
    /// `window`: the bytes that an answer may hold while its client reads it.
    pub(super) fn new(ledger: Ledger, window: Option<usize>) -> Self {
        Self { ledger, window, all: Mutex::default() }
    }

    /// Reserves memory for a request with this body and for its answer.
    pub(super) fn place(&self, is_watch: bool, body: &ReqBody) -> Result<Option<Reservation>, Short> {
        let Some(window) = self.window else { return Ok(None) };
        let sent = body.size_hint().upper().map_or(READ_AHEAD, |bytes| usize::try_from(bytes).unwrap_or(READ_AHEAD));
        // The HTTP client reads as much ahead as may wait for our client. Events of a watch come in small pieces; if
        // the clients of many watches stop reading, the memory check of the process notices that.
        let answer = if is_watch { window / 4 } else { 2 * window };
        self.ledger.reserve(answer + sent.min(READ_AHEAD)).map(Some)
    }

    /// Paces the body by its client. One frame is always passed on, however large.
    pub(super) fn body(&self, inner: ForwardBody) -> ForwardBody {
        match self.window {
            Some(window) => self.paced(inner, window).boxed_unsync(),
            None => inner,
        }
    }

    fn paced(&self, inner: ForwardBody, window: usize) -> Paced {
        let out = Arc::<Out>::default();
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|out| out.strong_count() > 0);
        }
        all.push(Arc::downgrade(&out));
        Paced { inner, window, out }
    }

    /// Ends the bodies of which nothing was read for this long. Returns their number.
    pub(super) fn give_up(&self, patience: Duration) -> u64 {
        let mut given_up = 0;
        self.all.lock().retain(|out| {
            let Some(out) = out.upgrade() else { return false };
            let stands = out.full.lock().is_some_and(|since| since.elapsed() >= patience);
            if stands {
                out.given_up.store(true, Ordering::Release);
                out.waker.wake();
                given_up += 1;
            }
            !stands
        });
        given_up
    }
}

// === impl Out ===

impl Out {
    fn give(self: &Arc<Self>, data: Bytes) -> Bytes {
        self.bytes.fetch_add(data.len(), Ordering::AcqRel);
        Bytes::from_owner(Given { data, out: Arc::clone(self) })
    }
}

// === impl Given ===

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.out.bytes.fetch_sub(self.data.len(), Ordering::AcqRel);
        self.out.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, stream};
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn what_is_given_away_must_go_before_more_comes() {
        let parts = (0..5).map(|part| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![part; 40]))));
        let mut body = Pace::new(Ledger::default(), Some(64)).body(StreamBody::new(stream::iter(parts)).boxed_unsync());
        let mut next = async || body.frame().await.map(|frame| frame.unwrap().into_data().unwrap());
        let (first, second) = (next().await.unwrap(), next().await.unwrap());
        assert!(next().now_or_never().is_none(), "80 of 64 are out");
        let slice = first.slice(1..2);
        drop(first);
        assert!(next().now_or_never().is_none(), "a part of it keeps all of it");
        let waiting = crate::lifecycle::spawn("reader", async move {
            let mut seen = 0;
            while let Some(frame) = body.frame().await {
                seen += frame.unwrap().into_data().unwrap().len();
            }
            seen
        });
        tokio::task::yield_now().await;
        drop((slice, second));
        assert_eq!(waiting.await.unwrap(), 120);
    }

    #[test]
    fn a_place_is_for_what_may_be_read_ahead() {
        use crate::upstream::client::{empty, full};
        let ledger = Ledger::new(1 << 20, crate::memory::Pressure::default());
        let pace = Pace::new(ledger.clone(), Some(64 << 10));
        let list = pace.place(false, &empty()).unwrap();
        assert_eq!(ledger.used(), 128 << 10);
        let watch = pace.place(true, &empty()).unwrap();
        let write = pace.place(false, &full(vec![0; 1000])).unwrap();
        assert_eq!(ledger.used(), (128 << 10) + (16 << 10) + (128 << 10) + 1000);
        let unknown = StreamBody::new(stream::empty::<Result<Frame<Bytes>, BoxError>>()).boxed_unsync();
        assert!(pace.place(false, &unknown).is_err(), "its length is not known");
        drop((list, watch, write));
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_gives_way() {
        let parts = || stream::iter((0..5).map(|part| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![part; 64])))));
        let pace = Pace::new(Ledger::default(), Some(64));
        let [mut stands, mut moves] = [(); 2].map(|()| pace.body(StreamBody::new(parts()).boxed_unsync()));
        let _first = stands.frame().await.unwrap().unwrap();
        let first = moves.frame().await.unwrap().unwrap();
        assert!(stands.frame().now_or_never().is_none() && moves.frame().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pace.give_up(Duration::from_secs(2)), 0);
        drop(first);
        let _second = moves.frame().await.unwrap().unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pace.give_up(Duration::from_secs(2)), 1);
        assert!(stands.frame().await.unwrap().is_err());
        assert!(moves.frame().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_on_after_all_is_not_given_up_for_what_was() {
        let parts = stream::iter((0..5).map(|part| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![part; 64])))));
        let pace = Pace::new(Ledger::default(), Some(64));
        let mut body = pace.body(StreamBody::new(parts).boxed_unsync());
        let first = body.frame().await.unwrap().unwrap();
        assert!(body.frame().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pace.give_up(Duration::from_secs(2)), 1);
        // Before the body sees that, its client has read what was handed out.
        drop(first);
        let _second = body.frame().await.unwrap().unwrap();
        assert!(body.frame().now_or_never().is_none(), "it waits like any other");
    }
}
