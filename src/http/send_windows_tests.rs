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
fn without_a_grant_the_library_sends() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    assert_eq!(take(&mut windows, 1, 100_000), Way::Library(65_535));
    assert_eq!(take(&mut windows, 1, 1), Way::Full);
    windows.written(frame(DATA, 0, 1, 65_535));
    assert_eq!(windows.grown(1, 10), 10, "the library believes what is real");
    assert_eq!(windows.grown(0, 65_535), 16_383, "a quarter");
    assert_eq!(take(&mut windows, 1, 100), Way::Direct(10));
    assert_eq!(windows.grown(1, 10), 0, "the library has not sent what this is for");
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
fn what_is_too_much_is_told_to_the_library() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    assert_eq!([windows.grown(0, MAX_WINDOW), windows.grown(1, MAX_WINDOW)], [MAX_WINDOW; 2]);
    assert_eq!(windows.grown(3, 7), 7, "no watch writes to this stream");
}

#[test]
fn a_window_is_used_up_by_other_bodies_too() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    for _ in 0..100_000 {
        windows.written(frame(DATA, 0, 1, 60_000));
        assert_eq!(windows.grown(1, 60_000), 60_000);
    }
    assert_eq!(i64::from(windows.streams[&1].window), DEFAULT_WINDOW);
}

#[test]
fn a_setting_changes_all_windows() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    windows.set_initial(5);
    assert_eq!(take(&mut windows, 1, 10), Way::Library(5));
    windows.set_initial(2);
    assert_eq!(take(&mut windows, 1, 10), Way::Full);
    assert_eq!(windows.grown(1, 3), 3);
    assert_eq!(take(&mut windows, 1, 10), Way::Full);
    windows.set_initial(u32::MAX);
    windows.set_initial(3);
    assert_eq!(take(&mut windows, 1, 10), Way::Library(1));
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32, usize),
    Write,
    Connection(u32),
    Stream(u32, u32),
    Initial(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || (0..3_u32).prop_map(|n| 2 * n + 1);
    prop_oneof![
        (stream(), 1..50_000_usize).prop_map(|(stream, len)| Step::Take(stream, len)),
        Just(Step::Write),
        (1..100_000_u32).prop_map(Step::Connection),
        (stream(), 1..100_000_u32).prop_map(|(stream, more)| Step::Stream(stream, more)),
        (0..200_000_u32).prop_map(Step::Initial),
    ]
}

#[test]
fn a_watch_that_cannot_write_now_takes_nothing() {
    let mut windows = SendWindows::default();
    begun(&mut windows, 1);
    windows.grown(0, 100_000);
    assert_eq!(windows.take(1, 500, false, Waker::noop()), Way::Blocked);
    assert_eq!(i64::from(windows.streams[&1].window), DEFAULT_WINDOW);
    assert_eq!(take(&mut windows, 1, 500), Way::Direct(500));
}

proptest! {
    /// A client that keeps its own accounts, and a library that knows only what it is told.
    #[test]
    fn nobody_sends_more_than_the_client_accepts(steps in proptest::collection::vec(step(), 0..200)) {
        let mut windows = SendWindows::default();
        let (mut initial, mut connection, mut library) = (DEFAULT_WINDOW, DEFAULT_WINDOW, DEFAULT_WINDOW);
        // By stream: what the client accepts, what the library believes, and what it was given.
        let mut streams = HashMap::from([1, 3, 5].map(|stream| (stream, (initial, initial, 0_i64))));
        for stream in [1, 3, 5] {
            begun(&mut windows, stream);
        }
        for step in steps {
            match step {
                Step::Take(id, len) => {
                    let stream = streams.get_mut(&id).unwrap();
                    match take(&mut windows, id, len) {
                        Way::Direct(len) => {
                            prop_assert_eq!(stream.2, 0, "in the order of the data");
                            stream.0 -= len as i64;
                            connection -= len as i64;
                        }
                        Way::Library(len) => stream.2 += len as i64,
                        Way::Full => prop_assert!(stream.0 - stream.2 <= 0),
                        Way::Blocked => unreachable!("the watch could write"),
                    }
                }
                Step::Write => {
                    for (id, stream) in &mut streams {
                        // What the library is given fits into the window, so it waits for the connection only.
                        prop_assert!(stream.2 <= stream.1.max(0));
                        let len = stream.2.min(library).max(0);
                        stream.0 -= len;
                        stream.1 -= len;
                        stream.2 -= len;
                        library -= len;
                        connection -= len;
                        windows.written(frame(DATA, 0, *id, len as usize));
                    }
                    library += i64::from(windows.lend());
                }
                Step::Connection(more) => {
                    connection += i64::from(more);
                    library += i64::from(windows.grown(0, more));
                }
                Step::Stream(id, more) => {
                    let stream = streams.get_mut(&id).unwrap();
                    stream.0 += i64::from(more);
                    stream.1 += i64::from(windows.grown(id, more));
                }
                Step::Initial(new) => {
                    // The exception: the library may send what it was given before.
                    if i64::from(new) < initial && streams.values().any(|stream| stream.2 > 0) {
                        continue;
                    }
                    for stream in streams.values_mut() {
                        stream.0 += i64::from(new) - initial;
                        stream.1 += i64::from(new) - initial;
                    }
                    initial = new.into();
                    windows.set_initial(new);
                }
            }
            prop_assert_eq!(windows.library, library);
            prop_assert_eq!(windows.library + windows.watches, connection);
            prop_assert!(connection >= 0 && library >= 0);
            for (id, stream) in &streams {
                let known = &windows.streams[id];
                prop_assert_eq!(i64::from(known.window), stream.0 - stream.2);
                prop_assert!(known.believed >= known.window);
            }
            // If all are written, one of the two can send.
            prop_assert!(connection == 0 || windows.library > 0 || windows.must_lend());
        }
    }
}
