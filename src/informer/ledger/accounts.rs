//! What is remembered of informers that do not run: the rent that reads have paid, what it has cost to follow the resource, how
//! many objects there are, and why they were refused.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::cost::{Cost, Fading};
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
    /// What reads have cost that were forwarded, less what the informer would have cost since it ended.
    rent: Fading,
    /// What a second of the last one has cost, besides its first state.
    rate: Fading,
    /// The number of its objects, if it has ended or was not started because it has too many, and until when this is valid.
    size: Option<(usize, Instant)>,
}

/// Rent halves in this time, and the size of what was not started is valid so long.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// What a second of an informer has cost halves in this time, so that one is tried again.
const RATE_HALF_LIFE: Duration = Duration::from_secs(3_600);
/// Until then, little is left of it. The number of its objects is valid so long: what reads pay is of the same size.
const RATE_LASTS: Duration = Duration::from_secs(8 * 3_600);
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
        let account = self.entry(key, now);
        account.rent.add(cost + account.spared(now), now, HALF_LIFE);
    }

    /// The rent, which is negative if the informer would have cost more, and how many objects it would have, if this is known.
    pub(in crate::informer) fn of(&self, key: &InformerKey, now: Instant) -> (Cost, Option<usize>) {
        self.accounts.get(key).map_or((Cost::NOTHING, None), |account| {
            let size = account.size.filter(|(_, until)| *until > now);
            (account.rent.at(now, HALF_LIFE) + account.spared(now), size.map(|(objects, _)| objects))
        })
    }

    /// The informer has cost the apiserver what had been paid for it, and bytes that it still owes. `objects`: if they are known.
    /// `rate`: the bytes that a second of it has cost, besides its first state.
    pub(in crate::informer) fn ended(
        &mut self,
        key: &InformerKey,
        objects: Option<usize>,
        (owed, rate): (f64, f64),
        now: Instant,
    ) {
        let mut account = Account { size: objects.map(|objects| (objects, now + RATE_LASTS)), ..Account::default() };
        account.rent.add(Cost { work: 0.0, bytes: -owed }, now, HALF_LIFE);
        account.rate.add(Cost { work: 0.0, bytes: rate }, now, RATE_HALF_LIFE);
        *self.entry(key, now) = account;
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
    /// What was spared since the last payment because no informer ran, as a negative cost. Earlier than `HALF_LIFE` ago, rent
    /// fades as well.
    fn spared(&self, now: Instant) -> Cost {
        self.rate.at(now, RATE_HALF_LIFE).times(-self.rent.ago(now).min(HALF_LIFE).as_secs_f64())
    }

    fn worth(&self, now: Instant) -> f64 {
        let (objects, until) = self.size.unwrap_or((0, now));
        let valid = until.saturating_duration_since(now).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.rent.at(now, HALF_LIFE).work + objects as f64 * valid
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
