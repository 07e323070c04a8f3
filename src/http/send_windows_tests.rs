use std::ops::Range;
use std::sync::Arc;
use std::task::Wake;

use proptest::prelude::*;

use super::*;
use crate::http::frames::END_HEADERS;

fn frame(kind: u8, flags: u8, stream: u32, len: usize) -> FrameHead {
    FrameHead { len, kind, flags, stream }
}

/// A stream whose head is written.
fn begun(windows: &mut SendWindows, stream: u32) {
    assert!(windows.opened(stream));
    windows.written(frame(HEADERS, END_HEADERS, stream, 10));
}

/// The client's setting, with its acknowledgement.
fn set(windows: &mut SendWindows, initial: u32) {
    windows.set(Some(initial));
    windows.written(frame(SETTINGS, ACK, 0, 0));
}

fn window(windows: &SendWindows, stream: u32) -> i64 {
    windows.streams[&stream].room(windows.initial)
}

fn take(windows: &mut SendWindows, stream: u32, len: usize) -> Way {
    windows.take(stream, len, true, Waker::noop())
}

#[test]
fn a_watch_writes_itself_once_its_head_is_written_and_the_client_has_granted_enough() {
    let mut windows = SendWindows::default();
    assert!(windows.opened(1));
    assert_eq!(windows.grown(0, 1 << 30), (16 << 20) - 65_535, "the library gets its part");
    assert_eq!(take(&mut windows, 1, 100), Way::Library(100));
    windows.written(frame(HEADERS, END_HEADERS, 1, 10));
    assert_eq!(take(&mut windows, 1, 100), Way::Library(100), "the first bytes are not written");
    windows.written(frame(DATA, 0, 1, 200));
    assert_eq!(take(&mut windows, 1, 100), Way::Direct(100));
    windows.written(frame(HEADERS, END_STREAM, 1, 10));
    assert_eq!(take(&mut windows, 1, 100), Way::Full, "it has ended");
}

#[test]
fn the_library_gets_more_when_it_has_little() {
    let mut windows = SendWindows::default();
    assert_eq!(windows.grown(0, 334_465), 34_465, "a quarter of 400,000");
    assert_eq!((windows.lend(), windows.must_lend()), (0, false));
    windows.written(frame(DATA, 0, 1, 60_000));
    assert!(windows.must_lend());
    assert_eq!((windows.lend(), windows.must_lend()), (60_000, false));
    windows.written(frame(DATA, 0, 1, 90_000));
    assert_eq!(windows.lend(), 90_000);
    windows.written(frame(DATA, 0, 1, 160_000));
    assert_eq!(windows.lend(), 150_000, "all that is left");
}

#[test]
fn no_watch_writes_to_a_stream_beyond_the_bound() {
    let mut windows = SendWindows::default();
    let opened = (1..).step_by(2).take(MOST_STREAMS + 2).filter(|stream| windows.opened(*stream)).count();
    assert_eq!(opened, MOST_STREAMS);
    windows.closed(1);
    assert!(windows.opened(20_001) && !windows.opened(20_003), "in its place");
}

#[test]
fn what_is_too_much_is_told_to_the_library() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    assert_eq!([windows.grown(0, MAX_WINDOW), windows.grown(1, MAX_WINDOW)], [MAX_WINDOW; 2]);
    assert_eq!(windows.grown(3, 7), 7, "no watch writes to this stream");
}

#[test]
fn an_update_may_follow_a_setting_that_makes_room_for_it() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    set(&mut windows, MAX_WINDOW);
    windows.set(Some(0));
    assert_eq!(windows.grown(1, MAX_WINDOW), MAX_WINDOW, "all is told");
    assert_eq!(windows.grown(1, 1), MAX_WINDOW, "too much");
    windows.written(frame(SETTINGS, ACK, 0, 0));
    assert_eq!(window(&windows, 1), i64::from(MAX_WINDOW));
    assert_eq!(take(&mut windows, 1, 100), Way::Library(100));
    assert_eq!(windows.grown(1, 1), MAX_WINDOW, "what is not written is not sent");
}

/// A stream whose library believes in 100 bytes of which a watch has used 60, and holds 40 more.
fn held() -> SendWindows {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    windows.grown(0, 100_000);
    set(&mut windows, 100);
    assert_eq!(take(&mut windows, 1, 60), Way::Direct(60));
    windows.watches = 0;
    assert_eq!(take(&mut windows, 1, 60), Way::Library(40));
    windows
}

#[test]
fn a_stream_that_ends_is_not_waited_for() {
    for frame in [frame(RST_STREAM, 0, 1, 4), frame(DATA, END_STREAM, 1, 0)] {
        let mut windows = held();
        set(&mut windows, 0);
        assert!(windows.must_return(self::frame(DATA, 0, 1, 10)) && windows.may_return());
        assert!(!windows.must_return(frame));
        windows.written(frame);
        assert!(!windows.may_return() && windows.streams.is_empty());
    }
}

#[test]
fn streams_that_the_library_ignores_are_not_kept() {
    let mut windows = SendWindows::default();
    for stream in [1, 3, 5] {
        begun(&mut windows, stream);
    }
    windows.end_with(MAX_WINDOW);
    assert!(windows.opened(7));
    windows.end_with(3);
    assert!(windows.is_new(9) && !windows.opened(9) && !windows.is_new(9));
    assert_eq!(windows.streams.keys().max(), Some(&3));
}

#[test]
fn a_watch_that_cannot_write_now_takes_nothing() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    windows.grown(0, 100_000);
    assert_eq!(windows.take(1, 500, false, Waker::noop()), Way::Blocked);
    assert_eq!(window(&windows, 1), DEFAULT_WINDOW);
    assert_eq!(take(&mut windows, 1, 500), Way::Direct(500));
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32, usize),
    Write(i64),
    Connection(u32),
    Stream(u32, u32),
    Initial(Option<u32>),
    Acknowledge,
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || (0..3_u32).prop_map(|n| 2 * n + 1);
    prop_oneof![
        4 => (stream(), 1..50_000_usize).prop_map(|(stream, len)| Step::Take(stream, len)),
        3 => (1..40_000_i64).prop_map(Step::Write),
        1 => (1..100_000_u32).prop_map(Step::Connection),
        2 => (stream(), 1..100_000_u32).prop_map(|(stream, more)| Step::Stream(stream, more)),
        1 => prop_oneof![Just(None), Just(Some(0)), (0..200_000_u32).prop_map(Some)].prop_map(Step::Initial),
        2 => Just(Step::Acknowledge),
    ]
}

/// One stream, as its watch, the library and the client see it. The bytes of the watch have numbers.
#[derive(Clone, Debug, Default)]
struct Model {
    /// What the client accepts, without the window of new streams.
    accepted: i64,
    believed: i64,
    /// What the library was given and has not written.
    pending: Range<i64>,
    /// The next byte of the watch.
    next: i64,
    received: i64,
}

impl Model {
    /// The next bytes of the watch.
    fn produce(&mut self, len: usize) -> Range<i64> {
        let first = self.next;
        self.next += len as i64;
        first..self.next
    }

    /// The client gets these bytes.
    fn receive(&mut self, bytes: &Range<i64>, initial: i64) -> Result<(), TestCaseError> {
        self.accepted -= bytes.end - bytes.start;
        prop_assert!(self.accepted + initial >= 0, "more than the client accepts");
        prop_assert_eq!(std::mem::replace(&mut self.received, bytes.end), bytes.start, "in order");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A client that keeps its own accounts and applies its settings when they are acknowledged, a library that knows only
    /// what it is told, and watches that send what comes back again.
    #[test]
    fn nobody_sends_more_than_the_client_accepts(steps in proptest::collection::vec(step(), 0..200)) {
        let mut windows = SendWindows::default();
        let (mut initial, mut connection, mut library) = (DEFAULT_WINDOW, DEFAULT_WINDOW, DEFAULT_WINDOW);
        let mut settings = VecDeque::new();
        let mut streams = HashMap::from([1, 3, 5].map(|stream| (stream, Model::default())));
        for stream in [1, 3, 5] {
            begun(&mut windows, stream);
        }
        for step in steps {
            match step {
                Step::Take(id, len) => {
                    let stream = streams.get_mut(&id).unwrap();
                    match windows.poll_written(id, Waker::noop()) {
                        Poll::Pending => {
                            prop_assert!(!stream.pending.is_empty());
                            continue;
                        }
                        // The last of what the library was given.
                        Poll::Ready(returned) => stream.next -= returned as i64,
                    }
                    match take(&mut windows, id, len) {
                        Way::Direct(len) => {
                            let bytes = stream.produce(len);
                            stream.receive(&bytes, initial)?;
                            connection -= len as i64;
                        }
                        Way::Library(len) => stream.pending = stream.produce(len),
                        Way::Full => prop_assert!(stream.accepted + initial <= 0),
                        Way::Blocked => unreachable!("the watch could write"),
                    }
                }
                Step::Write(most) => {
                    for (id, stream) in &mut streams {
                        let pending = &mut stream.pending;
                        let len = (pending.end - pending.start).min(library).min(stream.believed + initial).min(most);
                        if len <= 0 {
                            continue;
                        }
                        let bytes = pending.start..pending.start + len;
                        pending.start += len;
                        library -= len;
                        stream.believed -= len;
                        let frame = frame(DATA, 0, *id, len as usize);
                        if windows.may_return() && windows.must_return(frame) {
                            continue;
                        }
                        windows.written(frame);
                        stream.receive(&bytes, initial)?;
                        connection -= len;
                    }
                    for (id, more) in windows.owed() {
                        streams.get_mut(&id).unwrap().believed += i64::from(more);
                    }
                    library += i64::from(windows.lend());
                }
                Step::Connection(more) => {
                    connection += i64::from(more);
                    library += i64::from(windows.grown(0, more));
                }
                Step::Stream(id, more) => {
                    let stream = streams.get_mut(&id).unwrap();
                    stream.accepted += i64::from(more);
                    stream.believed += i64::from(windows.grown(id, more));
                }
                Step::Initial(new) => {
                    windows.set(new);
                    settings.push_back(new);
                }
                Step::Acknowledge => {
                    let Some(new) = settings.pop_front() else { continue };
                    windows.written(frame(SETTINGS, ACK, 0, 0));
                    initial = new.map_or(initial, i64::from);
                }
            }
            prop_assert_eq!(windows.library, library);
            prop_assert_eq!(windows.library + windows.watches, connection);
            prop_assert!(connection >= 0 && library >= 0);
            for (id, stream) in &streams {
                let known = &windows.streams[id];
                prop_assert_eq!(known.accepted(initial), stream.accepted + initial);
                prop_assert_eq!(i64::from(known.excess), stream.believed - stream.accepted);
                // If the client accepts something, what was given can be written.
                prop_assert!(stream.pending.is_empty() || stream.accepted + initial <= 0 || stream.believed + initial > 0);
            }
            // If all are written, one of the two can send.
            prop_assert!(connection == 0 || windows.library > 0 || windows.must_lend());
        }
    }
}

/// Otherwise it would fill the socket again, and again.
#[test]
fn what_has_filled_the_socket_comes_after_the_others() {
    struct Logs(u32, Arc<parking_lot::Mutex<Vec<u32>>>);
    impl Wake for Logs {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }
    let (mut windows, log) = (SendWindows::default(), Arc::<parking_lot::Mutex<Vec<u32>>>::default());
    for expected in [[3, 5, 1], [5, 1, 3], [1, 3, 5]] {
        let before = std::mem::take(&mut *log.lock());
        for stream in if before.is_empty() { vec![1, 3, 5] } else { before } {
            if windows.is_new(stream) {
                begun(&mut windows, stream);
            }
            windows.block(stream, &Waker::from(Arc::new(Logs(stream, Arc::clone(&log)))));
        }
        windows.unblock();
        assert_eq!(*log.lock(), expected);
    }
}
