//! Counts the changes in the body of a JSON watch. It looks at the beginning of each frame only.

/// How the apiserver begins the frames that are no changes.
const BOOKMARK: &[u8] = b"{\"type\":\"BOOKMARK\"";
const ERROR: &[u8] = b"{\"type\":\"ERROR\"";

/// The state of one body.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The first bytes of the frame that is being received.
    head: Vec<u8>,
    /// The first bookmark was received, which ends the initial state.
    live: bool,
}

// === impl Frames ===

impl Frames {
    /// Returns the number of changes that end in the next bytes of the body.
    pub(super) fn push(&mut self, bytes: &[u8]) -> u64 {
        let mut changes = 0;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let missing = BOOKMARK.len() - self.head.len();
            self.head.extend_from_slice(&part[..part.len().min(missing)]);
            if !part.ends_with(b"\n") {
                continue;
            }
            if self.head.starts_with(BOOKMARK) {
                self.live = true;
            } else if self.live && !self.head.starts_with(ERROR) {
                changes += 1;
            }
            self.head.clear();
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = concat!(
        "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{}}\n",
        "{\"type\":\"MODIFIED\",\"object\":{\"text\":\"{\\\"type\\\":\\\"BOOKMARK\\\"\"}}\n",
        "{\"type\":\"DELETED\",\"object\":{}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"object\":{}}\n",
        "{\"type\":\"ERROR\",\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"ob",
    );

    #[test]
    fn only_complete_changes_after_the_initial_state_count() {
        for size in [1, 7, 19, BODY.len()] {
            let mut frames = Frames::default();
            let changes: u64 = BODY.as_bytes().chunks(size).map(|piece| frames.push(piece)).sum();
            assert_eq!(changes, 3, "in pieces of {size}");
        }
    }
}
