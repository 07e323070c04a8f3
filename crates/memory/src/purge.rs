//! Returns freed memory to the system.

use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemalloc_ctl::{Access as _, AsName as _};

/// How long freed pages are kept for reuse, in milliseconds. The allocator's default of ten seconds is too long for a
/// small limit.
const DECAY: isize = 500;

/// Whether memory is returned as soon as it is freed.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Returns all freed pages now. With `at_once`, memory is from now on returned as soon as it is freed, which costs
/// time. Without it, memory is returned within half a second while the process works.
///
/// Does nothing in a program with another allocator.
pub fn purge(at_once: bool) {
    let decay = if at_once { 0 } else { DECAY };
    if AT_ONCE.swap(at_once, Ordering::Relaxed) != at_once {
        // The decay of arenas that are created later.
        set(b"arenas.dirty_decay_ms\0", decay);
        set(b"arenas.muzzy_decay_ms\0", decay);
    }
    let arenas: u32 = b"arenas.narenas\0".name().read().unwrap_or_default();
    for arena in 0..arenas {
        for kind in ["dirty", "muzzy"] {
            let name = format!("arena.{arena}.{kind}_decay_ms\0");
            // A decay of 0 returns all pages that are kept now.
            set(name.as_bytes(), 0);
            set(name.as_bytes(), decay);
        }
    }
}

/// Returns all freed pages now, and keeps what was set before. For whoever has freed much.
pub fn purge_again() {
    purge(AT_ONCE.load(Ordering::Relaxed));
}

/// An arena that was never used does not have this name.
fn set(name: &[u8], decay: isize) {
    if let Err(error) = name.name().write(decay) {
        tracing::trace!(%error, "allocator");
    }
}
