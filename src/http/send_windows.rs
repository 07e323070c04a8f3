//! Flow control of a connection that two parties send on: the HTTP library, and watches that write their own frames
//! (RFC 9113, section 5.2).
//!
//! The client grants one window for the connection and one for each stream. The library knows only what it sends
//! itself, and the client's updates come to it through here:
//!
//! - The window of the connection is divided. The library gets a part of each update, and is given more of the rest when
//!   it has little. So the parts together are never more than the client has granted.
//! - The library believes that a stream's window is at least as large as it is. A watch gives it no more data than the
//!   real window allows.
//!
//! So neither party sends more than the client accepts, and if a window has room, one of the two can send. There are two
//! exceptions, because nothing makes the window of one stream smaller that the library believes in:
//!
//! - The client makes the windows of all streams smaller while the library holds data of a watch. It may get this data,
//!   although it accepts less by then.
//! - The client makes the windows larger, and so large that what the library believes exceeds what a window can hold. The
//!   library ends the connection.

use std::cell::RefCell;
use std::collections::HashMap;
use std::task::Waker;

use super::frames::{DATA, END_STREAM, FrameHead, HEADERS, MAX_WINDOW, RST_STREAM};

/// The windows for what is sent to the client.
#[derive(Debug)]
pub(super) struct SendWindows {
    /// The window of a new stream. Not negative.
    initial: i64,
    /// What the library may send on the connection.
    library: i64,
    /// What watches may send on the connection.
    watches: i64,
    /// The largest sum of both so far.
    most: i64,
    streams: HashMap<u32, Stream>,
    /// The watches that wait for the socket. Each is in here once.
    blocked: Vec<(u32, Waker)>,
    /// The watches that wait for room in the window of their stream.
    full: HashMap<u32, Waker>,
    /// The last stream that the client has opened.
    last: u32,
}

/// Small, because each idle watch has one.
#[derive(Debug)]
struct Stream {
    /// What the client accepts. Negative after a setting that makes windows smaller.
    window: i32,
    /// What the library believes the client accepts. Never less than `window`.
    believed: i32,
    /// The bytes that the library was given and has not written yet.
    pending: u32,
    /// The head of the response is written.
    has_begun: bool,
    is_blocked: bool,
}

/// How a watch sends its next data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The watch writes so many bytes itself.
    Direct(usize),
    /// The library must send so many bytes.
    Library(usize),
    /// The window of the stream has no room. The watch is woken when it has.
    Full,
    /// The watch could write, but not now.
    Blocked,
}

/// The window of a connection, and of a stream without other settings.
const DEFAULT_WINDOW: i64 = 65_535;
/// The most that is kept for the library: a few large lists at once.
const FOR_LIBRARY: i64 = 16 << 20;
/// The most streams that are known. The library refuses streams sooner.
const MOST_STREAMS: usize = 4096;

thread_local! {
    /// The room for [`SendWindows::blocked`] that the connections of this thread do not need now. At most [`MOST_STREAMS`].
    static SPARE: RefCell<Vec<(u32, Waker)>> = const { RefCell::new(Vec::new()) };
}

// === impl SendWindows ===

impl Default for SendWindows {
    fn default() -> Self {
        Self {
            initial: DEFAULT_WINDOW,
            library: DEFAULT_WINDOW,
            watches: 0,
            most: DEFAULT_WINDOW,
            streams: HashMap::new(),
            blocked: Vec::new(),
            full: HashMap::new(),
            last: 0,
        }
    }
}

impl SendWindows {
    /// Whether a header block on this stream would open it.
    pub(super) fn is_new(&self, stream: u32) -> bool {
        stream > self.last
    }

    /// The client opens a stream that no watch will write to.
    pub(super) fn skipped(&mut self, stream: u32) {
        self.last = self.last.max(stream);
    }

    /// The client opens a stream. Returns whether a watch may write to it.
    pub(super) fn opened(&mut self, stream: u32) -> bool {
        self.skipped(stream);
        if self.streams.len() >= MOST_STREAMS {
            return false;
        }
        let (window, believed) = (bounded(self.initial), bounded(self.initial));
        let new = Stream { window, believed, pending: 0, has_begun: false, is_blocked: false };
        self.streams.insert(stream, new);
        true
    }

    /// One of the two peers has reset a stream.
    pub(super) fn closed(&mut self, stream: u32) {
        self.full.remove(&stream);
        if self.streams.remove(&stream).is_some_and(|stream| stream.is_blocked) {
            self.blocked.retain(|(blocked, _)| *blocked != stream);
        }
    }

    /// The client changes the window of new streams, and of all streams by the difference.
    pub(super) fn set_initial(&mut self, initial: u32) {
        // The library ends the connection.
        if initial > MAX_WINDOW {
            return;
        }
        let difference = i64::from(initial) - self.initial;
        self.initial = initial.into();
        for (id, stream) in &mut self.streams {
            stream.change(difference);
            if stream.window > 0 {
                self.full.remove(id).into_iter().for_each(Waker::wake);
            }
        }
    }

    /// The client grants `more` for a stream, or for the connection if it is 0. Returns what the library must be told.
    pub(super) fn grown(&mut self, stream: u32, more: u32) -> u32 {
        if stream > 0 {
            let Some(known) = self.streams.get_mut(&stream) else { return more };
            let told = known.grown(more);
            if known.window > 0 {
                self.full.remove(&stream).into_iter().for_each(Waker::wake);
            }
            return told;
        }
        let more = i64::from(more);
        let sum = self.library + self.watches + more;
        if sum > MAX_WINDOW.into() {
            return MAX_WINDOW;
        }
        self.most = self.most.max(sum);
        let told = (self.for_library() - self.library).clamp(0, more);
        self.library += told;
        self.watches += more - told;
        u32::try_from(told).unwrap_or(0)
    }

    /// What the library must be told now, because it can send little on the connection. Zero if there is nothing.
    pub(super) fn lend(&mut self) -> u32 {
        let lent = if self.must_lend() { self.watches.min(self.for_library() - self.library) } else { 0 };
        self.library += lent;
        self.watches -= lent;
        u32::try_from(lent).unwrap_or(0)
    }

    pub(super) fn must_lend(&self) -> bool {
        self.watches > 0 && self.library < self.for_library() / 2
    }

    /// What the library should be able to send if nothing that was sent before is outstanding. Most clients grant more when
    /// half of the window is used: watches must be able to send more than that.
    fn for_library(&self) -> i64 {
        (self.most / 4).min(FOR_LIBRARY)
    }

    /// The library writes a frame.
    pub(super) fn written(&mut self, frame: FrameHead) {
        if frame.kind == DATA {
            self.library -= i64::try_from(frame.len).unwrap_or(i64::MAX);
        }
        let Some(stream) = self.streams.get_mut(&frame.stream) else { return };
        match frame.kind {
            DATA => stream.written(frame.len),
            HEADERS => stream.has_begun = true,
            RST_STREAM => self.closed(frame.stream),
            _ => {}
        }
        if matches!(frame.kind, DATA | HEADERS) && frame.has(END_STREAM) {
            self.closed(frame.stream);
        }
    }

    /// A watch waits for the socket.
    pub(super) fn block(&mut self, stream: u32, waker: &Waker) {
        let Some(waiting) = self.streams.get_mut(&stream) else { return };
        if std::mem::replace(&mut waiting.is_blocked, true) {
            return;
        }
        if self.blocked.capacity() == 0 {
            self.blocked = SPARE.take();
        }
        self.blocked.push((stream, waker.clone()));
    }

    /// Wakes the watches that wait for the socket.
    pub(super) fn unblock(&mut self) {
        if self.blocked.is_empty() {
            return;
        }
        let mut blocked = std::mem::take(&mut self.blocked);
        for (stream, waker) in blocked.drain(..) {
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.is_blocked = false;
            }
            waker.wake();
        }
        if blocked.capacity() <= MOST_STREAMS {
            SPARE.set(blocked);
        }
    }

    /// Takes room in the windows for up to `len` bytes of a watch, of which there is at least one. The head of the response,
    /// and what the library was given, must be written before the watch writes, and the watch can write only if `is_open`.
    /// The waker of a watch must always be the same.
    pub(super) fn take(&mut self, id: u32, len: usize, is_open: bool, waker: &Waker) -> Way {
        // A watch on a stream that is closed ends when the library tells it.
        let Some(stream) = self.streams.get_mut(&id) else { return Way::Full };
        let room = usize::try_from(stream.window).unwrap_or(0);
        if room == 0 {
            self.full.entry(id).or_insert_with(|| waker.clone());
            return Way::Full;
        }
        let len = len.min(room);
        let taken = i64::try_from(len).unwrap_or(i64::MAX);
        if stream.is_free() && taken <= self.watches {
            if !is_open {
                return Way::Blocked;
            }
            stream.window = bounded(i64::from(stream.window) - taken);
            self.watches -= taken;
            return Way::Direct(len);
        }
        stream.change(-taken);
        stream.pending = stream.pending.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
        Way::Library(len)
    }
}

// === impl Stream ===

impl Stream {
    /// Changes both sides of the window.
    fn change(&mut self, by: i64) {
        self.window = bounded(i64::from(self.window) + by);
        self.believed = bounded(i64::from(self.believed) + by);
    }

    /// The library writes data: what a watch gave it, or that of another body.
    fn written(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let given = len.min(self.pending);
        self.pending -= given;
        self.change(-i64::from(len - given));
    }

    /// Whether the library has written all that comes before the next data.
    fn is_free(&self) -> bool {
        self.has_begun && self.pending == 0
    }

    fn grown(&mut self, more: u32) -> u32 {
        let window = i64::from(self.window) + i64::from(more);
        if window > MAX_WINDOW.into() {
            return MAX_WINDOW;
        }
        self.window = bounded(window);
        let told = u32::try_from(window - i64::from(self.believed)).unwrap_or(0);
        self.believed = self.believed.max(self.window);
        told
    }
}

/// A window that exceeds what the protocol allows is an error of the client, for which the library ends the connection.
fn bounded(window: i64) -> i32 {
    i32::try_from(window).unwrap_or(if window < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
#[path = "send_windows_tests.rs"]
mod tests;
