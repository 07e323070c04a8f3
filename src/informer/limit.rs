//! The bound on the number of informers.

use std::sync::Once;

/// The memory limit that allows one more informer, in bytes. An informer without objects takes a fraction of it, and objects
/// have their own bound.
const MEMORY: u64 = 512 << 10;
const LEAST: usize = 100;
/// Without a known memory limit, and at most: each has a watch at the apiserver.
const MOST: usize = 5000;

/// How many informers a memory limit allows.
pub fn informers_in(memory: Option<u64>) -> usize {
    let count = memory.map_or(MOST as u64, |bytes| bytes / MEMORY);
    usize::try_from(count).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// Whether no further informer is started. The log says it once.
pub(super) fn refuses(running: usize, most: usize) -> bool {
    static SAID: Once = Once::new();
    if running < most {
        return false;
    }
    SAID.call_once(|| {
        let what_to_do = "reads of further resources are forwarded to the apiserver: raise limits.maxInformers, or the memory limit from which it is derived";
        tracing::error!(limits.maxInformers = most, "as many informers run as may: {what_to_do}");
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_allows_more_informers() {
        let allowed = [None, Some(16 << 20), Some(512 << 20), Some(2 << 30), Some(1 << 40)].map(informers_in);
        assert_eq!(allowed, [5000, 100, 1024, 4096, 5000]);
    }
}
