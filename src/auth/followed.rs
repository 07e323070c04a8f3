//! One watch of objects that tokens are bound to, and which of these objects it would show the end of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::review::{Reviews, Unavailable};
use super::user::Object;
use crate::apiserver::metadata::Seen;

/// The most objects of one watch. Tokens that are bound to further ones are reviewed every `ttl`.
const MOST: usize = 16_384;

/// Whether an object is there: it was read from the store while its watch was open, which has not shown its end since, nor
/// started anew. Once `false` again, it stays so. A watch that breaks does not change it: no token rests on it for longer than `ttl`
/// without asking again.
#[derive(Clone, Debug, Default)]
pub(super) struct There(Arc<AtomicBool>);

#[derive(Debug, Default)]
pub(super) struct Followed {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    /// How often everything may have ended.
    losses: u64,
    /// By UID, also those that are being looked up.
    there: HashMap<Box<str>, There>,
}

// === impl There ===

impl There {
    pub(super) fn holds(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

// === impl Followed ===

impl Followed {
    /// Takes what the watch reports. Returns whether anything that was there may have ended.
    pub(super) fn tell(&self, seen: &Seen<'_>) -> bool {
        let mut state = self.state.lock();
        match seen {
            // The apiserver refuses tokens of what is being deleted from some time on, which no event tells.
            Seen::Change { deleted, object } if *deleted || !object.deletion_timestamp.is_empty() => {
                let there = state.there.remove(object.uid.as_str());
                there.is_some_and(|there| there.0.swap(false, Ordering::AcqRel))
            }
            Seen::Change { .. } | Seen::Live => false,
            // Nothing rests on a watch without PINGs: each time that it is silent would count as its end.
            Seen::Pinged => {
                state.is_open = true;
                false
            }
            // The next watch goes on from there. Until it does, nothing is entered or relied on anew.
            Seen::Lost { is_due: true } => {
                state.is_open = false;
                false
            }
            // What is known of tokens is used for at most `ttl` more, so that not all are reviewed in the same instant.
            Seen::Lost { is_due: false } => {
                state.lose();
                state.there.clear();
                false
            }
            Seen::Restarted(_) | Seen::Refused => state.end(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Changes whenever the watch breaks or starts anew. `None` while it is not open: what becomes known then may be as old as what
    /// was known before.
    pub(super) fn losses(&self) -> Option<u64> {
        let state = self.state.lock();
        state.is_open.then_some(state.losses)
    }

    /// Looks an object up, once for as long as the watch goes on. `None` if it is not there, or not remembered.
    ///
    /// # Errors
    /// The apiserver gave no answer.
    pub(super) async fn find(&self, reviews: &Reviews, object: &Object) -> Result<Option<There>, Unavailable> {
        let there = {
            let mut state = self.state.lock();
            if !state.is_open || state.there.len() >= MOST && !state.there.contains_key(&object.uid) {
                return Ok(None);
            }
            state.there.entry(object.uid.clone()).or_default().clone()
        };
        if there.holds() {
            return Ok(Some(there));
        }
        if !reviews.is_there(object).await? {
            return Ok(None);
        }
        let state = self.state.lock();
        // Its end, if it was reported meanwhile, has removed it, and is never reported again.
        let goes_on = state.there.get(&object.uid).is_some_and(|known| Arc::ptr_eq(&known.0, &there.0));
        Ok((state.is_open && goes_on).then(|| {
            there.0.store(true, Ordering::Release);
            there.clone()
        }))
    }
}

// === impl State ===

impl State {
    fn lose(&mut self) {
        self.is_open = false;
        self.losses += 1;
    }

    /// Everything may have ended. Returns whether anything was there.
    fn end(&mut self) -> bool {
        self.lose();
        self.there.drain().fold(false, |any, (_, There(there))| there.swap(false, Ordering::AcqRel) || any)
    }
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
