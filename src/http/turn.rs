//! Cooperative scheduling: how many bytes the watches of an HTTP/2 connection write before other tasks of the thread
//! have their turn. Their polls and frames are bounded, too, but a frame can be large, and its encryption takes longer
//! than everything else. The budget of a task, which bounds what all others write (see [`super::io`]), would stop most
//! of them in the middle of an event.

use std::cell::Cell;

/// The most bytes in one turn. A watch stops there, also in the middle of a frame.
pub(super) const BYTES: usize = 1 << 20;

thread_local! {
    /// What the watches of the connection that runs now may still write.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Ends the turn, also after a panic.
struct End;

/// Polls the watches of a connection, which may write [`BYTES`] together.
pub(super) fn bounded<T>(poll: impl FnOnce() -> T) -> T {
    LEFT.set(BYTES);
    let _end = End;
    poll()
}

/// The bytes that may still be written. If there are none, a watch waits for the next turn.
pub(super) fn left() -> usize {
    LEFT.get()
}

pub(super) fn wrote(bytes: usize) {
    LEFT.set(LEFT.get().saturating_sub(bytes));
}

impl Drop for End {
    fn drop(&mut self) {
        LEFT.set(usize::MAX);
    }
}
