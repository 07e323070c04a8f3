//! Decides when one more informer is worth its cost: an informer of tables, of objects that are already held in another
//! encoding, or of a collection of which only parts are read.
//!
//! A forwarded read of a table costs the apiserver the rows that it prints. An informer costs it a whole list at once,
//! and then one event for every change while it runs. So an informer is started only after repeated use: when the
//! recently forwarded reads, including the present one, have cost as much as [`START`] whole lists. The weight of a
//! read decreases by half every [`HALF_LIFE`]. One `kubectl get` per hour never reaches the limit. The third one within
//! a few minutes does, whichever user runs it, and so does the third poll of a program. Any informer is stopped when
//! the events since its last use have cost as much as another start.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::InformerKey;
use crate::meta::Gvr;

/// The parameters of one read that determine its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// One object by its name.
    pub named: bool,
    /// A label or field selector limits it.
    pub selected: bool,
    /// Maximum number of rows of a page.
    pub limit: Option<usize>,
    /// It is a watch, or it cannot be forwarded.
    pub lasts: bool,
    /// It is a watch.
    pub watch: bool,
    /// It is forwarded until such reads have cost as much as the list of an informer.
    pub pays: bool,
    /// It asks for a state that an informer which starts now would not have, so none is started for it.
    pub past: bool,
}

/// The numbers of rows, as far as a cache of the same objects knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// In the scope of the informer that would be started.
    pub whole: Option<usize>,
    /// In the namespace of the read.
    pub asked: Option<usize>,
    /// The scope of the read is smaller than that of the informer.
    pub narrower: bool,
}

/// The cost of recently forwarded reads, by the informer that would have served them.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: HashMap<InformerKey, DemandEntry>,
    /// Resources whose tables cannot be printed here, and until when this is assumed.
    unprintable: HashMap<Gvr, Instant>,
    /// Resources whose revisions cannot be compared, and until when this is assumed.
    unversioned: HashMap<Gvr, Instant>,
    /// The number of objects of each informer that was not started because it has too many, and until when the number
    /// is valid.
    sizes: HashMap<InformerKey, (usize, Instant)>,
}

#[derive(Debug)]
struct DemandEntry {
    /// In units of whole lists, at the time `at`.
    cost: f64,
    at: Instant,
}

/// Cost limit in whole lists, for the first informer of a resource's tables.
pub(super) const START: f64 = 2.0;

/// Cost limit for an informer of objects: it is worth starting when the reads have cost as much as its list.
pub(super) const ALSO: f64 = 1.0;

/// Reads with at least this cost count as recent: a few reads of a namespace, or one whole list up to half an hour ago.
const LATELY: f64 = 0.1;

const HALF_LIFE: Duration = Duration::from_secs(600);

/// How long to wait before a resource whose tables cannot be printed here is tried again: a cell may have been a rare
/// case.
pub(super) const UNPRINTABLE: Duration = Duration::from_secs(600);

/// How long to wait if the columns differ from the resource's definition: the apiserver is about to follow a change.
pub(super) const CHANGED: Duration = Duration::from_secs(30);

/// How long to wait before a resource whose revisions cannot be compared is tried again. A try costs a list of one object.
pub(super) const UNVERSIONED: Duration = Duration::from_secs(120);

/// Maximum number of entries; beyond that the cheapest one is dropped.
const ENTRIES: usize = 1024;

/// The assumed number of rows if it is unknown, and the assumed divisor for the rows of a namespace or a selector.
const ROWS: usize = 500;
const SHARE: usize = 4;

/// The cost of the requests of a start besides its rows, in rows. An informer in one more encoding is started at once
/// if it has no more objects than this.
pub(super) const REQUESTS: usize = 256;

/// The cost of the same requests in events of a watch.
const EVENTS: usize = 64;

/// Who has sent fewer reads than this, and none for this time, is not expected to read on.
const FEW: u64 = 3;
const GONE: Duration = Duration::from_secs(60);

// === impl Ledger ===

impl Ledger {
    /// Counts a read that no running informer can serve. Returns true if an informer should be started for it, because
    /// the reads have cost at least `start` whole lists.
    pub(super) fn wants(&mut self, key: &InformerKey, cost: f64, start: f64, now: Instant) -> bool {
        if !self.entries.contains_key(key) && self.entries.len() >= ENTRIES {
            let cheapest = self.entries.iter().min_by(|(_, a), (_, b)| a.cost_at(now).total_cmp(&b.cost_at(now)));
            if let Some(cheapest) = cheapest.map(|(key, _)| key.clone()) {
                self.entries.remove(&cheapest);
            }
        }
        let entry = self.entries.entry(key.clone()).or_insert(DemandEntry { cost: 0.0, at: now });
        (entry.cost, entry.at) = (entry.cost_at(now) + cost, now);
        entry.cost >= start
    }

    /// Records that the key has too many objects for a few reads of a part of them.
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

    /// Whether there were such reads recently.
    pub(super) fn knows(&self, key: &InformerKey, now: Instant) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.cost_at(now) >= LATELY)
    }

    /// Records that the rows of a resource contain cells that cannot be printed again: its tables are refused for a
    /// while.
    pub(super) fn refuse(&mut self, gvr: &Gvr, until: Instant, now: Instant) {
        self.unprintable.retain(|_, until| *until > now);
        self.unprintable.insert(gvr.clone(), until);
    }

    pub(super) fn refuses(&self, gvr: &Gvr, now: Instant) -> bool {
        self.unprintable.get(gvr).is_some_and(|until| *until > now)
    }

    /// Records that the revisions of a resource cannot be compared: it gets no informers for a while.
    pub(super) fn is_unversioned(&mut self, gvr: &Gvr, until: Instant, now: Instant) {
        self.unversioned.retain(|_, until| *until > now);
        self.unversioned.insert(gvr.clone(), until);
    }

    pub(super) fn knows_unversioned(&self, gvr: &Gvr, now: Instant) -> bool {
        self.unversioned.get(gvr).is_some_and(|until| *until > now)
    }
}

// === impl DemandEntry ===

impl DemandEntry {
    fn cost_at(&self, now: Instant) -> f64 {
        let lives = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.cost * 0.5_f64.powf(lives)
    }
}

// === impl Use ===

impl Use {
    /// The cost of the read for the apiserver, as a fraction of a whole list.
    #[expect(clippy::cast_precision_loss, reason = "numbers of rows")]
    pub fn cost(self, rows: Rows) -> f64 {
        // A page of an unknown whole would count as one.
        if self.past && rows.whole.is_none() {
            return 0.0;
        }
        let whole = rows.whole.unwrap_or(ROWS).max(1);
        let share = |rows: usize| rows.div_ceil(SHARE);
        let mut asked = rows.asked.unwrap_or(if rows.narrower { share(whole) } else { whole });
        if self.selected {
            asked = share(asked);
        }
        // Even an empty table costs a request.
        asked = asked.min(self.limit.unwrap_or(asked)).max(1);
        if self.named {
            asked = 1;
        }
        // A single object of a very small collection still counts as one object, not as a whole list.
        if asked >= whole && !self.named { 1.0 } else { asked as f64 / whole.max(8) as f64 }
    }
}

/// Whether an informer that was idle for so long costs the apiserver more than it saves: the events since its last use have
/// cost as much as starting it again, or its resource was hardly ever read, by somebody who seems to be gone.
pub(super) fn is_spent(idle: Duration, events: u64, objects: usize, served: u64) -> bool {
    // An open watch uses all events.
    !idle.is_zero() && (events >= objects.max(EVENTS) as u64 || served < FEW && idle >= GONE)
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
