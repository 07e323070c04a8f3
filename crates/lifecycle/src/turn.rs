//! Cooperative scheduling: how much the futures of one task do before other tasks of the thread have their turn.

/// One turn of a task that runs many futures. It is passed to each of them.
#[derive(Debug)]
pub struct Turn {
    polls: u32,
    bytes: usize,
}

/// The most frames that a watch sends before others have their turn.
pub const FRAMES: usize = 8;
/// The most futures that run in one turn.
const POLLS: u32 = 128;
/// The bytes after which a turn ends. Encryption takes longer than everything else, and one frame can be large: with the largest
/// object, a turn writes less than 4 MiB.
const BYTES: usize = 1 << 20;
/// A pause counts as so many polls: it comes after the look at some 2,000 objects.
const PAUSE: u32 = 32;

// === impl Turn ===

impl Turn {
    pub fn new() -> Self {
        Self { polls: POLLS, bytes: BYTES }
    }

    /// A future runs.
    pub(super) fn runs(&mut self) {
        self.polls = self.polls.saturating_sub(1);
    }

    /// A future has written these bytes.
    pub fn wrote(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A future has worked for a while, and others should run before it goes on.
    pub fn pauses(&mut self) {
        self.polls = self.polls.saturating_sub(PAUSE);
    }

    pub fn is_over(&self) -> bool {
        self.polls == 0 || self.bytes == 0
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}
