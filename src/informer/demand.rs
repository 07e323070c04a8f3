//! When one more informer is worth its price: of tables, of objects that are held in another encoding already, or of a large
//! collection of which only a part is read.
//!
//! A table read that is forwarded costs the apiserver the rows it prints. An informer costs it a whole list at once, and then
//! an event for every change for as long as it runs. So it is started by repeated use: when the reads that were forwarded
//! lately, the one at hand included, have cost as much as [`START`] whole lists. What was lately counts less the longer it is
//! ago, by half every [`HALF_LIFE`]. One `kubectl get` an hour never comes to that; the third within some minutes does,
//! whoever types it, and so does the third time that a program polls. It is stopped when the events that came since it was
//! last used have cost as much as another start.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::InformerKey;
use crate::meta::Gvr;

/// What one read of a table asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// One object by its name.
    pub named: bool,
    /// A label or field selector narrows it.
    pub selected: bool,
    /// Rows of a page.
    pub limit: Option<usize>,
    /// It is a watch, or it cannot be forwarded.
    pub lasts: bool,
}

/// How many rows there are, as far as a cache of the same objects knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// In the scope of the informer that would be started.
    pub whole: Option<usize>,
    /// In the namespace that the read is of.
    pub asked: Option<usize>,
    /// The read is of a smaller scope than the informer.
    pub narrower: bool,
}

/// What was forwarded lately, by the informers that would have served it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: HashMap<InformerKey, Entry>,
    /// Resources whose tables cannot be printed here, and until when that is believed.
    unprintable: HashMap<Gvr, Instant>,
    /// The numbers of objects of informers that were not started because they have so many, and until when each number is
    /// believed.
    sizes: HashMap<InformerKey, (usize, Instant)>,
}

#[derive(Debug)]
struct Entry {
    /// In whole lists, as of `at`.
    cost: f64,
    at: Instant,
}

/// Whole lists, for the first informer of a resource's tables.
pub(super) const START: f64 = 2.0;

/// For an informer of objects in one more encoding: reads that cost as much as its list pay for it.
pub(super) const ALSO: f64 = 1.0;

/// The cost above which reads count as recent: a few reads of a namespace, or one whole list up to half an hour ago.
const LATELY: f64 = 0.1;

const HALF_LIFE: Duration = Duration::from_secs(600);

/// A resource whose tables cannot be printed here is tried again after this: a cell may have been a coincidence.
pub(super) const UNPRINTABLE: Duration = Duration::from_secs(600);

/// One whose columns are not what its definition says, after this: the apiserver is about to follow a change.
pub(super) const CHANGED: Duration = Duration::from_secs(30);

/// Entries at most; beyond that the cheapest is forgotten.
const ENTRIES: usize = 1024;

/// Taken for the number of rows where nobody knows it, and the share of them that a namespace or a selector leaves.
const ROWS: usize = 500;
const SHARE: usize = 4;

/// What the requests of a start cost besides its rows, in rows. An informer in one more encoding of no more objects than
/// that is started at once.
pub(super) const REQUESTS: usize = 256;

// === impl Ledger ===

impl Ledger {
    /// Counts a read that no running informer can serve. True if one is to be started for it: if the reads come to `start`
    /// whole lists.
    pub(super) fn wants(&mut self, key: &InformerKey, cost: f64, start: f64, now: Instant) -> bool {
        if !self.entries.contains_key(key) && self.entries.len() >= ENTRIES {
            let cheapest = self.entries.iter().min_by(|(_, a), (_, b)| a.cost_at(now).total_cmp(&b.cost_at(now)));
            if let Some(cheapest) = cheapest.map(|(key, _)| key.clone()) {
                self.entries.remove(&cheapest);
            }
        }
        let entry = self.entries.entry(key.clone()).or_insert(Entry { cost: 0.0, at: now });
        (entry.cost, entry.at) = (entry.cost_at(now) + cost, now);
        entry.cost >= start
    }

    /// The objects of a key turned out to be more than a few reads of a part of them are worth.
    pub(super) fn is_large(&mut self, key: &InformerKey, objects: usize, now: Instant) {
        self.sizes.retain(|_, (_, until)| *until > now);
        if self.sizes.len() >= ENTRIES {
            let oldest = self.sizes.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone());
            oldest.map(|key| self.sizes.remove(&key));
        }
        self.sizes.insert(key.clone(), (objects, now + HALF_LIFE));
    }

    /// How many objects the informer of a key would have, if they are known to be many.
    pub(super) fn size(&self, key: &InformerKey, now: Instant) -> Option<usize> {
        self.sizes.get(key).filter(|(_, until)| *until > now).map(|(objects, _)| *objects)
    }

    /// Whether such reads have come lately.
    pub(super) fn knows(&self, key: &InformerKey, now: Instant) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.cost_at(now) >= LATELY)
    }

    /// The rows of a resource turned out to hold what cannot be printed anew: its tables are refused for a while.
    pub(super) fn refuse(&mut self, gvr: &Gvr, until: Instant, now: Instant) {
        self.unprintable.retain(|_, until| *until > now);
        self.unprintable.insert(gvr.clone(), until);
    }

    pub(super) fn refuses(&self, gvr: &Gvr, now: Instant) -> bool {
        self.unprintable.get(gvr).is_some_and(|until| *until > now)
    }
}

// === impl Entry ===

impl Entry {
    fn cost_at(&self, now: Instant) -> f64 {
        let lives = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.cost * 0.5_f64.powf(lives)
    }
}

// === impl Use ===

impl Use {
    /// What the apiserver prints for the read, as a part of a whole list.
    #[expect(clippy::cast_precision_loss, reason = "numbers of rows")]
    pub fn cost(self, rows: Rows) -> f64 {
        let whole = rows.whole.unwrap_or(ROWS).max(1);
        let share = |rows: usize| rows.div_ceil(SHARE);
        let mut asked = rows.asked.unwrap_or(if rows.narrower { share(whole) } else { whole });
        if self.selected {
            asked = share(asked);
        }
        // An empty table is a request all the same.
        asked = asked.min(self.limit.unwrap_or(asked)).max(1);
        if self.named {
            asked = 1;
        }
        // One of very few is still only one.
        if asked >= whole && !self.named { 1.0 } else { asked as f64 / whole.max(8) as f64 }
    }
}

/// Whether the events of an informer that nobody has used since they came have cost as much as starting it again.
pub(super) fn is_too_dear(events: u64, objects: usize) -> bool {
    events >= objects.max(REQUESTS) as u64
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
