//! Decides whether an informer starts for a read that none covers, and whether one that runs ends. No I/O.

use std::time::Duration;

use super::cost::Cost;
use crate::apiserver::meter::Prices;

/// The parameters of one read that determine its cost, and who pays it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// One object by its name, or what a label or field selector matches.
    pub named: bool,
    pub selected: bool,
    /// Maximum number of objects of a page.
    pub limit: Option<usize>,
    pub watch: bool,
    /// A watch of the state and what follows it. An informer of objects that it starts reads its first state by such a watch,
    /// which nothing compresses, and not by a list. What the read pays does not depend on it.
    pub initial: bool,
    /// It is not forwarded while an informer can start.
    pub must: bool,
    /// It is forwarded until such reads have cost as much as the list of an informer.
    pub pays: bool,
    /// It asks for a state that an informer which starts now would not have.
    pub past: bool,
}

/// A read, and what is known of an informer that would cover it.
#[derive(Clone, Copy, Debug)]
pub(in crate::informer) struct Wish {
    pub read: Use,
    /// The informer is one of tables.
    pub table: bool,
    /// The read is limited to one namespace, and the informer is not.
    pub narrower: bool,
    /// Numbers of objects, if they are known: of the informer, and of the answer as a cache of the same objects has it.
    pub whole: Option<usize>,
    pub asked: Option<usize>,
    /// If namespaces of many objects have informers of their own: how many have one, and how many objects these hold.
    pub parts: Option<(usize, usize)>,
    /// Mean bytes of the lists of parts that were forwarded, before compression.
    pub answers: Option<f64>,
    pub prices: Prices,
    /// What was paid lately, and how many informers have ended in debt lately.
    pub rent: Cost,
    pub debts: f64,
}

/// The bytes that an informer has cost and not saved.
#[derive(Debug, Default)]
pub(in crate::informer) struct Debt {
    owed: f64,
    /// What it was settled with last.
    last: Option<Settled>,
}

/// The bytes that an informer had asked for, those that were answered from caches, and when it was used last.
type Settled = (f64, f64, u64);

/// An informer of tables costs as much as two lists: it has each object in its row as well, in every event, too.
const TABLES: f64 = 2.0;
/// Each informer that has ended in debt doubles what has to be paid for the next one, at most so often: who reads now and then
/// what changes all the time is forwarded.
pub(super) const MOST_DEBTS: f64 = 10.0;
/// A watch of a part of many objects pays this part of a list, if nothing shows how large its part is. What was paid fades, and
/// the fourth within minutes starts one.
const WATCH: f64 = 0.3;
/// The assumed number of objects if it is unknown, and the assumed divisor for those of a namespace or a selector.
const OBJECTS: usize = 500;
const SHARE: usize = 4;
/// A single object of a very small collection is not all of it.
const FEW_OBJECTS: usize = 8;
/// An informer with as few objects costs little more than its requests.
pub(in crate::informer) const REQUESTS: usize = 256;
/// Above this number of single-namespace informers, one informer of all namespaces is better, although it holds more.
const PARTS: usize = 32;
/// The cost of the requests of a start, in objects of a list.
const EVENTS: usize = 64;
/// A resource of which caches have answered fewer reads (of all clients, since the process started), and whose informer was
/// idle for this long, is not expected to be read again.
const FEW: u64 = 3;
pub(in crate::informer) const GONE: Duration = Duration::from_secs(60);

// === impl Wish ===

impl Wish {
    /// How many objects the informer may have, if it starts, and what the read pays.
    pub(in crate::informer) fn start(&self) -> (Option<usize>, Cost) {
        let Self { read, whole, parts, .. } = *self;
        let is_page = read.pays && read.limit.is_some_and(|limit| limit < OBJECTS);
        let most = if (self.is_of_part() || is_page) && whole.is_none() { REQUESTS } else { usize::MAX };
        let is_of_many = self.is_of_part() && whole.is_some_and(|whole| whole > REQUESTS);
        if !(self.table || read.pays || is_of_many && (!read.must || parts.is_some())) {
            return (Some(most), Cost::NOTHING);
        }
        // The informer of all namespaces starts once those of single namespaces hold half of all objects, or number `PARTS`.
        if let Some((informers, objects)) = parts {
            let is_worth = objects >= whole.unwrap_or(OBJECTS) / 2 || informers >= PARTS;
            return ((is_worth && !read.past).then_some(usize::MAX), Cost::NOTHING);
        }
        let (all, cost) = self.costs();
        let price = all.times(if self.table { TABLES } else { 1.0 } * self.debts.min(MOST_DEBTS).exp2());
        // A read of the past pays if the size is known, and starts nothing here.
        ((price.is_within(self.rent + cost) && !read.past).then_some(most), cost)
    }

    /// Whether a part of what the informer would hold is asked for. Who cannot be forwarded will ask for the rest, too.
    fn is_of_part(&self) -> bool {
        self.narrower || !self.read.must && (self.read.selected || self.read.named)
    }

    /// What the list of the informer costs, and what the read costs.
    fn costs(&self) -> (Cost, Cost) {
        let Self { read, asked, .. } = *self;
        let whole = self.whole.unwrap_or(OBJECTS);
        let all = Cost::objects(&self.prices, whole.max(FEW_OBJECTS), true);
        let share = |is_part: bool, of: usize| if is_part { of.div_ceil(SHARE) } else { of };
        let asked = match (asked, self.answers.filter(|_| self.whole.is_some())) {
            // A page of an unknown whole would count as all.
            _ if read.past && self.whole.is_none() => return (all, Cost::NOTHING),
            _ if read.named => 1,
            (Some(asked), _) => asked,
            (None, Some(bytes)) if self.is_of_part() => (bytes / self.prices.plain(1).max(1) as f64) as usize,
            (None, _) if read.watch && self.is_of_part() => return (all, all.times(WATCH)),
            (None, _) => share(self.narrower, share(read.selected, whole)),
        };
        // Even an empty answer costs a request.
        let asked = asked.min(read.limit.unwrap_or(asked)).max(1);
        let is_all = asked >= whole && !read.named;
        (all, if is_all { all } else { Cost::objects(&self.prices, asked, true) })
    }
}

// === impl Debt ===

impl Debt {
    /// Settles it with what is known now, and returns what is still owed. A gain is no credit for later. `None` clears
    /// the debt; what happens before the next call is not counted.
    pub(in crate::informer) fn settle(&mut self, now: Option<Settled>) -> f64 {
        let more = self.last.zip(now).map(|((spent_then, earned_then, used_then), (spent, earned, used))| {
            spent - spent_then - if used > used_then { earned - earned_then } else { 0.0 }
        });
        self.owed = more.map_or(0.0, |more| (self.owed + more).max(0.0));
        self.last = now;
        self.owed
    }

    /// Whether as much is owed as it would cost to start an informer of so many objects again.
    pub(in crate::informer) fn is_due(&self, objects: usize, prices: &Prices) -> bool {
        self.owed >= Cost::objects(prices, objects.max(EVENTS), true).bytes
    }
}

/// Whether an informer that was idle for so long costs the apiserver more than it saves: its debt is due, or its resource was hardly
/// ever read, by somebody who seems to be gone.
pub(in crate::informer) fn is_spent(idle: Duration, is_due: bool, served: u64) -> bool {
    // Nothing is ended that somebody follows.
    !idle.is_zero() && (is_due || served < FEW && idle >= GONE)
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
