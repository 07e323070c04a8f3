use std::future::poll_fn;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::http::frames::{ACK, GOAWAY, HEADERS, SETTINGS};
use crate::http::preface::HTTP2_PREFACE;
use crate::lifecycle::testing::Wakes;
use crate::upstream::raw_testing;

/// A socket that records each write separately and can refuse writes.
#[derive(Debug, Default)]
struct Peer {
    written: Arc<Mutex<Vec<Vec<u8>>>>,
    full: Arc<Mutex<bool>>,
    /// How many bytes it still takes, if it becomes full by itself.
    room: Arc<Mutex<Option<usize>>>,
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if *self.full.lock() {
            return Poll::Pending;
        }
        let mut bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<_>>();
        if let Some(room) = &mut *self.room.lock() {
            bytes.truncate(*room);
            *room -= bytes.len();
            if bytes.is_empty() {
                return Poll::Pending;
            }
        }
        let size = bytes.len();
        self.written.lock().push(bytes);
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written.lock().push(b"end".to_vec());
        Poll::Ready(Ok(()))
    }
}

/// A frame of this size.
fn frame(size: usize) -> Vec<u8> {
    data(1, &vec![b'x'; size - HEAD])
}

fn data(stream: u32, text: &[u8]) -> Vec<u8> {
    raw_testing::frame(DATA, 0, stream, text)
}

struct Scene {
    socket: Http2Socket<Peer>,
    written: Arc<Mutex<Vec<Vec<u8>>>>,
    full: Arc<Mutex<bool>>,
    room: Arc<Mutex<Option<usize>>>,
    metrics: Arc<HttpMetrics>,
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl Scene {
    fn new() -> Self {
        let peer = Peer::default();
        let (written, full, room) = (Arc::clone(&peer.written), Arc::clone(&peer.full), Arc::clone(&peer.room));
        let metrics = Arc::new(HttpMetrics::default());
        let bounded = Bounded::new(peer, Duration::from_secs(5), Arc::default(), None);
        let socket = Http2Socket::new(bounded, Waker::noop().clone(), Arc::clone(&metrics));
        let (wakes, waker) = Wakes::new();
        Self { socket, written, full, room, metrics, wakes, waker }
    }

    fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(&mut Context::from_waker(&self.waker), bytes)
    }

    fn flush(&mut self) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(&mut Context::from_waker(&self.waker))
    }

    fn read(&mut self) -> Poll<io::Result<()>> {
        let mut buf = [0; 8];
        Pin::new(&mut self.socket).poll_read(&mut Context::from_waker(&self.waker), &mut ReadBuf::new(&mut buf))
    }

    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.written.lock())
    }

    fn room(&self, bytes: usize) {
        *self.room.lock() = Some(bytes);
    }

    fn wakes(&self) -> usize {
        self.wakes.count()
    }
}

#[test]
fn small_writes_go_out_together_at_the_next_poll() {
    let mut scene = Scene::new();
    for piece in ["one ", "two ", "three"] {
        assert!(matches!(scene.write(piece.as_bytes()), Poll::Ready(Ok(n)) if n == piece.len()));
        assert!(scene.flush().is_ready());
    }
    assert!(scene.take().is_empty());
    assert!(scene.wakes() > 0, "somebody must come to write it");
    assert!(scene.read().is_pending());
    assert_eq!(scene.take(), [b"one two three"]);
    assert_eq!((scene.metrics.http2_writes.get(), scene.metrics.http2_pieces.get()), (1, 3));
    let wakes = scene.wakes();
    assert!(scene.flush().is_ready() && scene.read().is_pending());
    assert!(scene.take().is_empty());
    assert_eq!(scene.wakes(), wakes, "nothing waits");
}

/// The fuzz target `gather` shows that nothing is overtaken.
#[test]
fn large_writes_do_not_wait() {
    let (mut scene, large) = (Scene::new(), frame(LARGE));
    assert!(scene.write(&large).is_ready());
    assert_eq!(scene.take(), [&large[..]]);
}

#[tokio::test]
async fn a_full_socket_holds_the_writer_up_and_is_not_asked_without_end() {
    let mut scene = Scene::new();
    *scene.full.lock() = true;
    let piece = frame(1000);
    let mut taken = 0;
    while scene.write(&piece).is_ready() {
        taken += piece.len();
        assert!(taken <= MAX_WAITING);
    }
    assert!(taken + piece.len() > MAX_WAITING);
    let wakes = scene.wakes();
    for _ in 0..3 {
        assert!(scene.read().is_pending());
        assert!(scene.flush().is_pending(), "the socket wakes us");
    }
    assert_eq!(scene.wakes(), wakes);
    *scene.full.lock() = false;
    assert!(scene.read().is_pending());
    assert_eq!(scene.take().concat().len(), taken);
}

#[test]
fn after_a_turn_the_caller_writes_and_not_the_task() {
    let mut scene = Scene::new();
    let (_, waits) = in_turn(|| assert!(scene.flush().is_ready()));
    assert!(!waits);
    let (_, waits) = in_turn(|| assert!(scene.write(b"one").is_ready() && scene.flush().is_ready()));
    assert!(waits && scene.take().is_empty());
    assert_eq!(scene.wakes(), 0);
    assert!(scene.read().is_pending());
    assert_eq!(scene.take(), [b"one"]);
    let turn = std::panic::AssertUnwindSafe(|| in_turn(|| panic!("on purpose")));
    assert!(std::panic::catch_unwind(turn).is_err());
    assert!(scene.write(b"two").is_ready() && scene.flush().is_ready());
    assert_eq!(scene.wakes(), 1, "the turn is over");
}

#[tokio::test]
async fn the_buffer_is_shared_and_a_slow_client_keeps_none() {
    let (mut scene, mut slow) = (Scene::new(), Scene::new());
    let piece = vec![b'x'; LARGE - 1];
    for _ in 0..4 {
        assert!(scene.write(&piece).is_ready());
    }
    assert!(scene.flush().is_ready() && scene.read().is_pending());
    assert_eq!(scene.socket.waiting.capacity(), 0);
    let spare = SPARE.with_borrow(|spare| (spare.as_ptr(), spare.capacity()));
    assert!((MAX_WAITING - 4..=2 * MAX_WAITING).contains(&spare.1), "{}", spare.1);
    *slow.full.lock() = true;
    assert!(slow.write(b"small").is_ready());
    assert_eq!(slow.socket.waiting.as_ptr(), spare.0, "the same buffer");
    assert!(slow.read().is_pending());
    assert!(slow.socket.waiting.capacity() < 16);
    assert_eq!(SPARE.with_borrow(|spare| (spare.as_ptr(), spare.capacity())), spare);
    *slow.full.lock() = false;
    assert!(slow.write(b" more").is_ready() && slow.read().is_pending());
    assert_eq!(slow.take(), [b"small more"]);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_noticed_by_whoever_only_reads() {
    let mut scene = Scene::new();
    *scene.full.lock() = true;
    assert!(scene.write(b"event").is_ready());
    let socket = &mut scene.socket;
    let error = poll_fn(|cx| {
        let mut buf = [0; 8];
        Pin::new(&mut *socket).poll_read(cx, &mut ReadBuf::new(&mut buf))
    });
    assert_eq!(error.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

/// A socket that takes some bytes takes the rest of their frame, too, so that others can write after it.
#[tokio::test]
async fn a_socket_that_becomes_full_within_a_frame_takes_the_frame() {
    let mut scene = Scene::new();
    scene.room(LARGE + 100);
    let frames = [frame(LARGE), frame(LARGE), frame(LARGE)].concat();
    assert!(matches!(scene.write(&frames), Poll::Ready(Ok(n)) if n == 2 * LARGE));
    assert!(scene.socket.scanner.is_between_frames());
    let mut data = Slices::from(bytes::Bytes::from_static(b"event"));
    assert!(scene.socket.windows.opened(1));
    scene.socket.windows.grown(0, 1 << 20);
    scene.socket.windows.written(FrameHead { len: 1, kind: HEADERS, flags: 0, stream: 1 });
    assert!(matches!(scene.socket.poll_send(&scene.waker, 1, &mut data), Poll::Ready(Ok(None))));
    assert!(scene.flush().is_pending());
    scene.room(usize::MAX);
    assert!(scene.flush().is_ready());
    let expected = [&frames[..2 * LARGE], &[0, 0, 5, DATA, 0, 0, 0, 0, 1], b"event"].concat();
    assert!(scene.take().concat() == expected);
}

#[tokio::test]
async fn watches_wait_for_a_full_socket_and_are_woken() {
    let mut scene = Scene::new();
    scene.socket.windows.opened(1);
    scene.socket.windows.grown(0, 1 << 30);
    scene.socket.windows.grown(1, 1 << 30);
    scene.socket.windows.written(FrameHead { len: 1, kind: HEADERS, flags: 0, stream: 1 });
    *scene.full.lock() = true;
    let mut data = Slices::from(bytes::Bytes::from(vec![b'x'; 2 * MAX_WAITING]));
    assert!(scene.socket.poll_send(&scene.waker, 1, &mut data).is_pending());
    assert!(scene.socket.waiting.len() <= MAX_WAITING && !data.is_empty());
    assert!(scene.read().is_pending());
    assert_eq!(scene.wakes(), 0);
    *scene.full.lock() = false;
    assert!(scene.read().is_pending());
    assert_eq!(scene.wakes(), 1);
    assert!(scene.socket.poll_send(&scene.waker, 1, &mut data).is_ready() && data.is_empty());
}

#[tokio::test]
async fn a_client_that_stops_within_a_frame_and_reads_nothing_costs_nothing() {
    let mut scene = Scene::new();
    scene.socket.filter.filter(&[HTTP2_PREFACE, &[0; 5]].concat(), &mut scene.socket.windows, &mut Vec::new());
    scene.socket.windows.grown(0, 1 << 20);
    while !scene.socket.windows.must_lend() {
        assert!(scene.write(&frame(LARGE)).is_ready());
    }
    *scene.full.lock() = true;
    while scene.write(&frame(LARGE)).is_ready() {}
    let before = scene.wakes();
    assert!(scene.write(&frame(LARGE)).is_pending());
    assert_eq!(scene.wakes(), before);
}

const ACKNOWLEDGED: [u8; HEAD] = [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0];

impl Scene {
    /// With stream 1 of a watch, whose head is written, and a client that grants this for streams and for watches.
    fn begun(initial: u32, watches: u32) -> Self {
        let mut scene = Self::new();
        scene.socket.filter.filter(HTTP2_PREFACE, &mut scene.socket.windows, &mut Vec::new());
        scene.setting(initial);
        assert!(scene.write(&ACKNOWLEDGED).is_ready());
        scene.out();
        assert_eq!(scene.socket.windows.grown(0, watches), 0);
        assert!(scene.socket.windows.opened(1));
        scene.socket.windows.written(FrameHead { len: 1, kind: HEADERS, flags: 0, stream: 1 });
        scene
    }

    /// The client sends a window for new streams.
    fn setting(&mut self, initial: u32) {
        let frame = raw_testing::frame(SETTINGS, 0, 0, &[&[0, 4], &initial.to_be_bytes()[..]].concat());
        self.socket.filter.filter(&frame, &mut self.socket.windows, &mut self.socket.arrived);
    }

    fn send(&mut self, text: &mut Slices) -> Poll<io::Result<Option<Slices>>> {
        self.socket.poll_send(&self.waker, 1, text)
    }

    /// All that was written.
    fn out(&mut self) -> Vec<u8> {
        // The first one only says that somebody must come.
        assert!(self.flush().is_ready() && self.flush().is_ready());
        self.take().concat()
    }
}

fn slices(text: &'static [u8]) -> Slices {
    bytes::Bytes::from_static(text).into()
}

#[tokio::test]
async fn a_larger_window_is_used_after_its_acknowledgement_is_written() {
    let mut scene = Scene::begun(10, 1000);
    let before = data(3, &[b'x'; LARGE]);
    let mut text = slices(b"0123456789abcdef");
    scene.setting(100);
    assert!(scene.send(&mut text).is_pending());
    // The socket takes only a part of what comes before.
    scene.room(40);
    assert!(scene.write(&[&before[..], &ACKNOWLEDGED[..4]].concat()).is_ready());
    assert!(scene.send(&mut text).is_pending());
    let wakes = scene.wakes();
    assert!(scene.write(&ACKNOWLEDGED[4..]).is_ready());
    assert_eq!(scene.wakes(), wakes + 1);
    assert!(matches!(scene.send(&mut text), Poll::Ready(Ok(None))));
    scene.room(usize::MAX);
    let expected = [&data(1, b"0123456789")[..], &before, &ACKNOWLEDGED, &data(1, b"abcdef")].concat();
    assert!(scene.out() == expected);
}

/// Whatever the library writes after the acknowledgement, in pieces of any size.
#[tokio::test]
async fn frames_that_a_smaller_window_does_not_allow_come_back() {
    let other = data(3, b"of another stream");
    let parts = [b"0123".as_slice(), b"45", b"6789ab", b"cdef"].map(|text| data(1, text));
    let [first, second, third, fourth] = &parts;
    let written = [first, &other, &ACKNOWLEDGED.to_vec(), second, &other, third, &other, fourth, &other];
    let written: Vec<u8> = written.into_iter().flatten().copied().collect();
    for size in 1..=written.len() {
        let mut scene = Scene::begun(100, 84);
        assert!(matches!(scene.send(&mut slices(&[b'x'; 84])), Poll::Ready(Ok(None))));
        let given = scene.send(&mut slices(b"0123456789abcdef"));
        assert!(matches!(given, Poll::Ready(Ok(Some(given))) if given.len() == 16));
        scene.setting(91);
        assert!(scene.socket.poll_written(&scene.waker, 1).is_pending());
        for piece in written.chunks(size) {
            assert!(matches!(scene.write(piece), Poll::Ready(Ok(n)) if n == piece.len()));
        }
        let sent = [&data(1, &[b'x'; 84])[..], first, &other, &ACKNOWLEDGED, second, &other, &other, &other].concat();
        assert!(scene.out() == sent, "{size}");
        assert!(scene.wakes() > 0);
        assert_eq!(scene.socket.poll_written(&scene.waker, 1), Poll::Ready(10));
        let mut text = slices(b"6789abcdef");
        assert!(scene.send(&mut text).is_pending(), "the client accepts one byte");
        assert!(scene.out() == data(1, b"6"), "{size}");
        // And the rest once it accepts more.
        assert_eq!(scene.socket.windows.grown(1, 100), 25);
        assert!(matches!(scene.send(&mut text), Poll::Ready(Ok(None))));
        assert!(scene.out() == data(1, b"789abcdef"), "{size}");
    }
}

#[test]
fn what_the_library_ignores_after_the_end_is_not_followed() {
    let mut scene = Scene::begun(10, 10);
    let goaway = raw_testing::frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    for piece in goaway.chunks(5) {
        assert!(scene.write(piece).is_ready());
    }
    let _ = scene.read();
    assert!(!scene.socket.windows.opened(3));
}
