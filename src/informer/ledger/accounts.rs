//! What is remembered of informers that do not run: the rent that reads have paid, how often one has ended in debt, how many
//! objects there are, and why they were refused.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::cost::{Cost, Fading};
use super::start::{MOST_DEBTS, REQUESTS};
use crate::informer::{InformerKey, NoCoverage};
use crate::meta::{Encoding, Gvr};

#[derive(Debug, Default)]
pub(in crate::informer) struct Accounts {
    accounts: HashMap<InformerKey, Account>,
    /// Resources that have no informers, or none of their tables, for this reason, and until when.
    refused: HashMap<(Gvr, NoCoverage), Instant>,
}

#[derive(Debug, Default)]
struct Account {
    /// What reads have cost that were forwarded.
    rent: Fading,
    /// How many of its informers have ended in debt, as `work`; at most [`MOST_DEBTS`].
    debts: Fading,
    /// The number of its objects, if it has ended or was not started because it has too many, and until when this is valid.
    size: Option<(usize, Instant)>,
}

/// Rent halves in this time, and the size of a large collection without debts is valid so long.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// The number of debts halves in this time, so that an informer is tried again.
const DEBTS_HALF_LIFE: Duration = Duration::from_secs(6 * 3_600);
/// What one debt, or an object of a size, is worth when accounts are dropped, and the most objects that count.
const DEBT_WORTH: f64 = 100.0;
const SIZE_WORTH: usize = 500;
/// So long, tables are not tried again that cannot be printed here: a cell may have been a rare case.
pub(in crate::informer) const UNPRINTABLE: Duration = Duration::from_secs(600);
/// The same if the columns differ from the resource's definition: the apiserver is about to follow a change.
pub(in crate::informer) const CHANGED: Duration = Duration::from_secs(30);
/// The same for resources whose revisions cannot be compared. A try costs a list of one object.
pub(in crate::informer) const UNVERSIONED: Duration = Duration::from_secs(120);
/// Maximum number of accounts; beyond that the one of least worth is dropped.
const ENTRIES: usize = 1024;

// === impl Accounts ===

impl Accounts {
    /// Counts a read that is forwarded for the lack of this informer.
    pub(in crate::informer) fn pay(&mut self, key: &InformerKey, cost: Cost, now: Instant) {
        self.entry(key, now).rent.add(cost, now, HALF_LIFE);
    }

    /// The rent, how many debts count, and how many objects the informer would have, if they are known to be many.
    pub(in crate::informer) fn of(&self, key: &InformerKey, now: Instant) -> (Cost, f64, Option<usize>) {
        self.accounts.get(key).map_or((Cost::NOTHING, 0.0, None), |account| {
            let size = account.size.filter(|(_, until)| *until > now);
            let debts = account.debts.at(now, DEBTS_HALF_LIFE).work.round();
            (account.rent.at(now, HALF_LIFE), debts, size.map(|(objects, _)| objects))
        })
    }

    /// The informer has cost the apiserver what had been paid for it, and as much again if it ended `in_debt`. `objects`: if
    /// they are known. A small number is not kept: it may be large when it is used.
    pub(in crate::informer) fn ended(
        &mut self,
        key: &InformerKey,
        objects: Option<usize>,
        in_debt: bool,
        now: Instant,
    ) {
        let account = self.entry(key, now);
        account.rent = Fading::default();
        let room = MOST_DEBTS - account.debts.at(now, DEBTS_HALF_LIFE).work;
        let more = if in_debt { room.clamp(0.0, 1.0) } else { 0.0 };
        account.debts.add(Cost { work: more, bytes: 0.0 }, now, DEBTS_HALF_LIFE);
        // What reads pay from now on is counted in lists of this size.
        let until = now + if in_debt { DEBTS_HALF_LIFE } else { HALF_LIFE };
        account.size = objects.filter(|objects| *objects > REQUESTS).map(|objects| (objects, until));
    }

    /// Records that there are too many objects for a few reads of a part of them, in any encoding. What these have paid was
    /// guessed, if nobody has known the number before.
    pub(in crate::informer) fn is_large(&mut self, key: &InformerKey, objects: usize, now: Instant) {
        for encoding in [Encoding::Json, Encoding::Protobuf, Encoding::Table] {
            let account = self.entry(&InformerKey { encoding, ..key.clone() }, now);
            if account.size.replace((objects, now + HALF_LIFE)).is_none() {
                account.rent = Fading::default();
            }
        }
    }

    /// Refuses a resource for a while.
    pub(in crate::informer) fn refuse(&mut self, gvr: &Gvr, why: NoCoverage, during: Duration, now: Instant) {
        self.refused.retain(|_, until| *until > now);
        self.refused.insert((gvr.clone(), why), now + during);
    }

    pub(in crate::informer) fn refuses(&self, gvr: &Gvr, why: NoCoverage, now: Instant) -> bool {
        self.refused.get(&(gvr.clone(), why)).is_some_and(|until| *until > now)
    }

    fn entry(&mut self, key: &InformerKey, now: Instant) -> &mut Account {
        if !self.accounts.contains_key(key) && self.accounts.len() >= ENTRIES {
            let least = self.accounts.iter().min_by(|(_, a), (_, b)| a.worth(now).total_cmp(&b.worth(now)));
            least.map(|(key, _)| key.clone()).and_then(|key| self.accounts.remove(&key));
        }
        self.accounts.entry(key.clone()).or_default()
    }
}

// === impl Account ===

impl Account {
    fn worth(&self, now: Instant) -> f64 {
        let (objects, until) = self.size.unwrap_or((0, now));
        let valid = until.saturating_duration_since(now).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let debts = self.debts.at(now, DEBTS_HALF_LIFE).work * DEBT_WORTH;
        self.rent.at(now, HALF_LIFE).work + debts + objects.min(SIZE_WORTH) as f64 * valid.min(1.0)
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
