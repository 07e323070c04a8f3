//! Memory that was freed, given back to the system.

use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemalloc_ctl::{Access as _, AsName as _};

/// Milliseconds for which freed pages are kept for later use. The allocator's own choice is ten seconds, which is too long
/// under a small limit.
const DECAY: isize = 500;

/// Gives all freed pages back now. With `at_once`, those that are freed from now on are given back as they are freed,
/// which costs time; without, within half a second while the process works.
///
/// Does nothing for a program that has another allocator.
pub(crate) fn purge(at_once: bool) {
    static AT_ONCE: AtomicBool = AtomicBool::new(false);
    let decay = if at_once { 0 } else { DECAY };
    if AT_ONCE.swap(at_once, Ordering::Relaxed) != at_once {
        // The decay of arenas that are still to come.
        set(b"arenas.dirty_decay_ms\0", decay);
        set(b"arenas.muzzy_decay_ms\0", decay);
    }
    let arenas: u32 = b"arenas.narenas\0".name().read().unwrap_or_default();
    for arena in 0..arenas {
        for kind in ["dirty", "muzzy"] {
            let name = format!("arena.{arena}.{kind}_decay_ms\0");
            // Where none may be kept, all that are there go.
            set(name.as_bytes(), 0);
            set(name.as_bytes(), decay);
        }
    }
}

/// An arena that was never used has no such name.
fn set(name: &[u8], decay: isize) {
    if let Err(error) = name.name().write(decay) {
        tracing::trace!(%error, "allocator");
    }
}
