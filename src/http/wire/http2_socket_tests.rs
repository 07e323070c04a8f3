use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::super::frames::{DATA, HEAD};
use super::*;
use crate::apiserver::raw_testing;
use crate::http::testing::Takes;

/// A frame of this size.
fn frame(size: usize) -> Vec<u8> {
    raw_testing::frame(DATA, 0, 1, &vec![b'x'; size - HEAD])
}

type Took = Box<dyn FnMut(&[u8])>;

struct Scene {
    socket: Http2Socket<Takes<Took>>,
    /// Each write.
    written: Arc<Mutex<Vec<Vec<u8>>>>,
    is_full: Arc<AtomicBool>,
    metrics: Arc<HttpMetrics>,
}

impl Scene {
    fn new() -> Self {
        let written = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let taken = Arc::clone(&written);
        let took: Took = Box::new(move |bytes: &[u8]| taken.lock().push(bytes.to_vec()));
        let peer = Takes::new(Bytes::new(), false, took);
        let (is_full, metrics) = (Arc::clone(&peer.is_full), Arc::new(HttpMetrics::default()));
        let bounded = Bounded::new(peer, Duration::from_secs(5), Arc::default(), None);
        Self { socket: Http2Socket::new(bounded, Arc::clone(&metrics)), written, is_full, metrics }
    }

    /// As the library writes: a piece, and a flush.
    fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let written = Pin::new(&mut self.socket).poll_write(&mut cx, bytes);
        assert!(Pin::new(&mut self.socket).poll_flush(&mut cx).is_ready());
        written
    }

    fn drain(&mut self) -> Poll<io::Result<()>> {
        self.socket.poll_drain(&mut Context::from_waker(std::task::Waker::noop()))
    }

    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.written.lock())
    }
}

#[test]
fn small_writes_go_out_together() {
    let mut scene = Scene::new();
    for piece in ["one ", "two ", "three"] {
        assert!(matches!(scene.write(piece.as_bytes()), Poll::Ready(Ok(n)) if n == piece.len()));
    }
    assert!(scene.take().is_empty());
    assert!(scene.drain().is_ready());
    assert_eq!(scene.take(), [b"one two three"]);
    assert_eq!((scene.metrics.http2_writes.get(), scene.metrics.http2_pieces.get()), (1, 3));
    assert!(scene.drain().is_ready());
    assert!(scene.take().is_empty());
}

/// The fuzz target `gather` shows that nothing is overtaken.
#[test]
fn large_writes_do_not_wait() {
    let (mut scene, large) = (Scene::new(), frame(LARGE));
    assert!(scene.write(&large).is_ready());
    assert_eq!(scene.take(), [&large[..]]);
}

#[tokio::test]
async fn a_full_socket_holds_the_writer_up() {
    let mut scene = Scene::new();
    scene.is_full.store(true, Ordering::Relaxed);
    let piece = frame(1000);
    let mut taken = 0;
    while scene.write(&piece).is_ready() {
        taken += piece.len();
        assert!(taken <= MAX_WAITING);
    }
    assert!(taken + piece.len() > MAX_WAITING);
    assert!(scene.drain().is_pending() && scene.take().is_empty());
    scene.is_full.store(false, Ordering::Relaxed);
    assert!(scene.drain().is_ready());
    assert_eq!(scene.take().concat().len(), taken);
}

#[tokio::test]
async fn the_buffer_is_shared_and_a_slow_client_keeps_none() {
    let (mut scene, mut slow) = (Scene::new(), Scene::new());
    let piece = vec![b'x'; LARGE - 1];
    for _ in 0..4 {
        assert!(scene.write(&piece).is_ready());
    }
    assert!(scene.drain().is_ready());
    assert_eq!(scene.socket.0.lock().waiting.capacity(), 0);
    let spare = SPARE.with_borrow(|spare| (spare.as_ptr(), spare.capacity()));
    assert!((MAX_WAITING - 4..=2 * MAX_WAITING).contains(&spare.1), "{}", spare.1);
    slow.is_full.store(true, Ordering::Relaxed);
    assert!(slow.write(b"small").is_ready());
    assert_eq!(slow.socket.0.lock().waiting.as_ptr(), spare.0, "the same buffer");
    assert!(slow.drain().is_pending());
    assert!(slow.socket.0.lock().waiting.capacity() < 16);
    assert_eq!(SPARE.with_borrow(|spare| (spare.as_ptr(), spare.capacity())), spare);
    slow.is_full.store(false, Ordering::Relaxed);
    assert!(slow.write(b" more").is_ready() && slow.drain().is_ready());
    assert_eq!(slow.take(), [b"small more"]);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_noticed() {
    let mut scene = Scene::new();
    scene.is_full.store(true, Ordering::Relaxed);
    assert!(scene.write(b"event").is_ready());
    let error = poll_fn(|cx| scene.socket.poll_drain(cx));
    assert_eq!(error.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}
