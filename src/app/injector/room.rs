//! The memory that reviews may take together. It is reserved before anything is read or decoded, because whoever reaches
//! the port can send them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The most KiB of all bodies and answers in flight.
const BODIES: usize = 16 << 10;
/// The most KiB of all reviews that are decoded at once.
const DECODED: usize = 56 << 10;
/// A review takes this many KiB besides its body.
const EACH: usize = 32;

/// Memory that each part of a JSON text may take once it is decoded, in bytes: a string and its copies, an object (its
/// first node has room for eleven members), an element of a list (in a list that is twice as long as its content).
const BYTE: usize = 4;
const OBJECT: usize = 660;
const ELEMENT: usize = 80;
const LIST: usize = 32;
const STRING: usize = 16;

#[derive(Debug)]
pub(super) struct Room {
    bodies: Arc<Semaphore>,
    decoded: Semaphore,
}

// === impl Room ===

impl Room {
    pub(super) fn new() -> Self {
        Self { bodies: Arc::new(Semaphore::new(BODIES)), decoded: Semaphore::new(DECODED) }
    }

    /// Waits for room for a body of this many bytes and for its answer. `None` if there is never enough.
    pub(super) async fn body(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = 2 * kib(bytes) + EACH;
        let permits = u32::try_from(kib).ok().filter(|_| kib <= BODIES)?;
        Arc::clone(&self.bodies).acquire_many_owned(permits).await.ok()
    }

    /// Waits for room for what this text is decoded to. `None` if there is never enough.
    pub(super) async fn decoded(&self, text: &[u8]) -> Option<SemaphorePermit<'_>> {
        let kib = kib(decoded(text)) + 1;
        let permits = u32::try_from(kib).ok().filter(|_| kib <= DECODED)?;
        self.decoded.acquire_many(permits).await.ok()
    }
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

/// The most memory that a JSON text takes when it is decoded into a tree, in bytes.
fn decoded(text: &[u8]) -> usize {
    let cost = |byte: &u8| match byte {
        b'{' => OBJECT,
        b',' => ELEMENT,
        b'[' => LIST,
        // Every other one begins a string.
        b'"' => STRING / 2,
        _ => 0,
    };
    text.len() * BYTE + text.iter().map(cost).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_waits_and_what_never_fits_is_refused() {
        let room = Room::new();
        let mut held = Vec::new();
        let taken = async {
            loop {
                held.push(room.body(2 << 20).await.unwrap());
            }
        };
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), taken).await.is_err());
        assert_eq!(held.len(), BODIES / (4096 + EACH));
        held.pop();
        held.push(room.body(2 << 20).await.unwrap());
        held.clear();
        for (more, fits) in [(0, true), (1, false)] {
            assert_eq!(room.body(((BODIES - EACH) / 2 + more) << 10).await.is_some(), fits);
            let text = vec![b'x'; ((DECODED - 1 + more) << 10) / BYTE];
            assert_eq!(room.decoded(&text).await.is_some(), fits);
        }
    }

    #[tokio::test]
    async fn a_text_of_many_small_parts_is_refused_before_it_is_decoded() {
        let room = Room::new();
        for (part, many) in [("{\"\":0}", 300_000), ("[]", 700_000), ("0", 1_000_000), ("\"\"", 700_000)] {
            let text = format!("[{}]", vec![part; many].join(","));
            assert!(text.len() <= 2_500_000 && room.decoded(text.as_bytes()).await.is_none(), "{part}");
        }
        // A large pod is decoded, but few of them at once.
        let variable = r#"{"name":"VARIABLE","value":"x"}"#;
        let pod = format!("[{}]", vec![variable; (1 << 20) / variable.len()].join(","));
        let held = room.decoded(pod.as_bytes()).await.unwrap();
        let second = room.decoded(pod.as_bytes());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), second).await.is_err());
        drop(held);
        assert!(room.decoded(pod.as_bytes()).await.is_some());
    }
}
