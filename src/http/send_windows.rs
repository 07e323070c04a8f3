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
//! So neither party sends more than the client accepts, and if a window has room, one of the two can send. What the
//! library believes must not exceed what a window can hold either. So it is told no larger window of new streams than
//! [`MOST_TOLD`], and the rest is left for what it does not know that watches have used.
//!
//! The client can change the windows of all streams with a setting. It counts from its acknowledgement on (section
//! 6.5.3), in the order in which frames are written: before, a larger window must not be used, and a smaller one may be
//! exceeded. If the windows become smaller while the library holds data of a watch, the library may write this data
//! although the client accepts less, because nothing makes the window of one stream smaller that the library believes in.
//! Such a frame is not sent. Its bytes come back to the watch, and count as not sent, see [`SendWindows::must_return`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::task::{Poll, Waker};

use super::frames::{ACK, DATA, END_STREAM, FrameHead, HEADERS, MAX_WINDOW, RST_STREAM, SETTINGS};

/// The flow control of one connection: the windows for what is sent to the client.
#[derive(Debug)]
pub(super) struct SendWindows {
    /// The window of a new stream, by the settings that are acknowledged. Not negative.
    initial: i64,
    /// The same by each of the settings that are not acknowledged yet. The library reads no further before it has
    /// acknowledged one, so there are no more than fit into what it and the filter have read.
    next: VecDeque<u32>,
    /// What the library may send on the connection.
    library: i64,
    /// What watches may send on the connection.
    watches: i64,
    /// The largest sum of both so far.
    most: i64,
    streams: HashMap<u32, Stream>,
    /// The watches that wait for the socket. Each is in here once.
    blocked: Vec<(u32, Waker)>,
    /// The watches that wait for room in the window of their stream, or for the library.
    waiting: HashMap<u32, Waker>,
    /// The streams of which the library may hold more than the client accepts since a setting.
    reduced: HashSet<u32>,
    /// What the library must be told of the windows of streams, because it has used them in vain.
    owed: Vec<(u32, u32)>,
    /// The last stream that the client has opened.
    last: u32,
    /// The library ignores what the client opens after this stream.
    end: u32,
}

/// Small, because each idle watch has one.
#[derive(Debug)]
struct Stream {
    /// How much more than the window of a new stream the client accepts. The library's data counts as sent as soon as it
    /// is given to it.
    window: i32,
    /// How much more than that the library believes.
    excess: u32,
    /// The bytes that the library was given and has not written yet.
    pending: u32,
    /// The bytes of these that were not sent. They are the last of what the library was given.
    returned: u32,
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
/// The largest window of new streams that the library is told. A client grants more when half of its window is used.
pub(super) const MOST_TOLD: u32 = 1 << 30;
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
            next: VecDeque::new(),
            library: DEFAULT_WINDOW,
            watches: 0,
            most: DEFAULT_WINDOW,
            streams: HashMap::new(),
            blocked: Vec::new(),
            waiting: HashMap::new(),
            reduced: HashSet::new(),
            owed: Vec::new(),
            last: 0,
            end: MAX_WINDOW,
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
        if stream > self.end || self.streams.len() >= MOST_STREAMS {
            return false;
        }
        let new = Stream { window: 0, excess: 0, pending: 0, returned: 0, has_begun: false, is_blocked: false };
        self.streams.insert(stream, new);
        true
    }

    /// The library ignores the streams after `last`, which no frame will close.
    pub(super) fn end_with(&mut self, last: u32) {
        self.end = last;
        self.streams.retain(|stream, _| *stream <= last);
    }

    /// One of the two peers has reset a stream.
    pub(super) fn closed(&mut self, stream: u32) {
        self.waiting.remove(&stream);
        self.reduced.remove(&stream);
        if self.streams.remove(&stream).is_some_and(|stream| stream.is_blocked) {
            self.blocked.retain(|(blocked, _)| *blocked != stream);
        }
    }

    /// The client sends settings. The last value of a setting counts; `None` if the window of new streams is not among
    /// them. The library acknowledges them, or ends the connection. Returns whether all windows can become so large.
    pub(super) fn set(&mut self, initial: Option<u32>) -> bool {
        let before = self.next.back().copied().or_else(|| u32::try_from(self.initial).ok());
        let initial = initial.filter(|initial| *initial <= MAX_WINDOW).or(before);
        self.next.extend(initial);
        // Of a window that it is told in full, the library finds out itself.
        let Some(larger) = initial.filter(|initial| *initial > MOST_TOLD).map(i64::from) else { return true };
        self.streams.values().all(|stream| stream.accepted(larger) <= MAX_WINDOW.into())
    }

    /// The library acknowledges settings. They change the windows of all streams.
    fn acknowledged(&mut self) {
        let Some(initial) = self.next.pop_front() else { return };
        if self.next.is_empty() {
            self.next = VecDeque::new();
        }
        let before = std::mem::replace(&mut self.initial, initial.into());
        if self.initial < before {
            let reduced = self.streams.iter().filter(|(_, stream)| stream.pending > 0 && stream.excess > 0);
            self.reduced.extend(reduced.map(|(id, _)| *id));
        } else if self.initial > before {
            let has_room = |id: &u32| self.streams.get(id).is_some_and(|stream| stream.room(self.initial) > 0);
            self.waiting.extract_if(|id, _| has_room(id)).for_each(|(_, waker)| waker.wake());
        }
    }

    /// The client grants `more` for a stream, or for the connection if it is 0. Returns what the library must be told.
    pub(super) fn grown(&mut self, stream: u32, more: u32) -> u32 {
        if stream > 0 {
            let initial = self.next.back().map_or(self.initial, |next| i64::from(*next));
            let Some(known) = self.streams.get_mut(&stream) else { return more };
            // The library has read all settings that came before.
            if known.accepted(initial) + i64::from(more) > MAX_WINDOW.into() {
                return MAX_WINDOW;
            }
            let told = known.grown(more);
            if known.room(self.initial) > 0 {
                self.waiting.remove(&stream).into_iter().for_each(Waker::wake);
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
        let lent =
            if self.library < self.for_library() / 2 { self.watches.min(self.for_library() - self.library) } else { 0 };
        self.library += lent;
        self.watches -= lent;
        u32::try_from(lent).unwrap_or(0)
    }

    /// What the library must be told now of the window of a stream.
    pub(super) fn owed(&mut self) -> impl Iterator<Item = (u32, u32)> + use<> {
        std::mem::take(&mut self.owed).into_iter()
    }

    pub(super) fn must_lend(&self) -> bool {
        self.watches > 0 && self.library < self.for_library() / 2 || !self.owed.is_empty()
    }

    /// What the library should be able to send if nothing that was sent before is outstanding. Most clients grant more when
    /// half of the window is used: watches must be able to send more than that.
    fn for_library(&self) -> i64 {
        (self.most / 4).min(FOR_LIBRARY)
    }

    /// Whether a frame that the library writes might have to be returned.
    pub(super) fn may_return(&self) -> bool {
        !self.reduced.is_empty() || !self.next.is_empty()
    }

    /// Whether the next frame of the library must not be sent, and goes back to its watch. So do all that follow, up to the
    /// last byte that the library was given, because they must not overtake it.
    pub(super) fn must_return(&mut self, frame: FrameHead) -> bool {
        if frame.kind != DATA || frame.len == 0 || !self.reduced.contains(&frame.stream) {
            return false;
        }
        let Some(stream) = self.streams.get_mut(&frame.stream) else { return false };
        let len = u32::try_from(frame.len).unwrap_or(u32::MAX);
        let is_too_much = stream.returned > 0 || stream.accepted(self.initial) < len.into();
        // A frame that ends the stream has no data of a watch.
        if !is_too_much || frame.has(END_STREAM) || len > stream.pending {
            return false;
        }
        // The library has used its windows, and the client has not.
        self.library -= i64::from(len);
        self.watches += i64::from(len);
        stream.pending -= len;
        stream.returned += len;
        stream.window = bounded(i64::from(stream.window) + i64::from(len));
        if let Some(owed) = len.checked_sub(stream.excess).filter(|owed| *owed > 0) {
            self.owed.push((frame.stream, owed));
        }
        stream.excess = stream.excess.saturating_sub(len);
        self.settle(frame.stream);
        true
    }

    /// The library writes a frame.
    pub(super) fn written(&mut self, frame: FrameHead) {
        match frame.kind {
            DATA => self.library -= i64::try_from(frame.len).unwrap_or(i64::MAX),
            SETTINGS if frame.has(ACK) => return self.acknowledged(),
            RST_STREAM => return self.closed(frame.stream),
            _ => {}
        }
        let Some(stream) = self.streams.get_mut(&frame.stream) else { return };
        match frame.kind {
            DATA => stream.written(frame.len),
            HEADERS => stream.has_begun = true,
            _ => return,
        }
        if frame.has(END_STREAM) { self.closed(frame.stream) } else { self.settle(frame.stream) }
    }

    /// Goes on with a watch whose data the library does not hold any more.
    fn settle(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(Stream::is_free) {
            self.reduced.remove(&id);
            self.waiting.remove(&id).into_iter().for_each(Waker::wake);
        }
    }

    /// Ready when the library holds nothing more of what a watch has given it, with the number of bytes that come back.
    pub(super) fn poll_written(&mut self, id: u32, waker: &Waker) -> Poll<usize> {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.is_free() => Poll::Ready(std::mem::take(&mut stream.returned) as usize),
            Some(_) => {
                self.waiting.insert(id, waker.clone());
                Poll::Pending
            }
            // A watch on a stream that is closed ends when the library tells it.
            None => Poll::Pending,
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
        // The first one has filled the socket. The others come first now.
        blocked.rotate_left(1);
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
        let room = usize::try_from(stream.room(self.initial)).unwrap_or(0);
        if room == 0 {
            self.waiting.entry(id).or_insert_with(|| waker.clone());
            return Way::Full;
        }
        let len = len.min(room);
        let taken = u32::try_from(len).unwrap_or(u32::MAX);
        let is_direct = stream.is_free() && i64::from(taken) <= self.watches;
        if is_direct && !is_open {
            return Way::Blocked;
        }
        stream.window = bounded(i64::from(stream.window) - i64::from(taken));
        if is_direct {
            stream.excess = stream.excess.saturating_add(taken);
            self.watches -= i64::from(taken);
            Way::Direct(len)
        } else {
            stream.pending = stream.pending.saturating_add(taken);
            Way::Library(len)
        }
    }
}

// === impl Stream ===

impl Stream {
    /// What may be sent, or given to the library, now.
    fn room(&self, initial: i64) -> i64 {
        initial + i64::from(self.window)
    }

    /// What the client accepts.
    fn accepted(&self, initial: i64) -> i64 {
        self.room(initial) + i64::from(self.pending)
    }

    /// The library writes data: what a watch gave it, or that of another body.
    fn written(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let given = len.min(self.pending);
        self.pending -= given;
        self.window = bounded(i64::from(self.window) - i64::from(len - given));
    }

    /// Whether the library has written all that comes before the next data.
    fn is_free(&self) -> bool {
        self.has_begun && self.pending == 0
    }

    /// Returns what the library must be told.
    fn grown(&mut self, more: u32) -> u32 {
        self.window = bounded(i64::from(self.window) + i64::from(more));
        let known = more.min(self.excess);
        self.excess -= known;
        more - known
    }
}

/// A window that exceeds what the protocol allows is an error of the client, for which the library ends the connection.
fn bounded(window: i64) -> i32 {
    i32::try_from(window).unwrap_or(if window < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
#[path = "send_windows_tests.rs"]
mod tests;
