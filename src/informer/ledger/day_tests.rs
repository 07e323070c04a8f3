//! Days of one resource, second by second, with the decisions and books of the ledger and without any I/O. A model of the
//! apiserver prices each request, and clients that are drawn at random read: on their own, and through one informer.
//!
//! What is asked through informerd in a day costs, in CPU time and in bytes, at most a twentieth more than what the clients' own
//! requests would have cost, and once, however many informers start and end:
//!
//! - for a start, three questions (its number of objects, its list, its watch), as many objects as may be started without
//!   that number ([`REQUESTS`]), and a third of all, for a measure that is late. The rest of each list was paid by what clients
//!   asked for in the last hour, and since the last start;
//! - until it ends, what it may owe: a list of as many objects as there are (64 at least), the changes of three quarters of a
//!   minute, and one digest of all, whose price was a guess.
//!
//! And each question for the number of objects that starts nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::Accounts;
use super::book::{Book, Giver};
use super::cost::{Cost, QUESTION};
use super::proof::{Extent, Situation, Way, is_lone};
use super::start::{Debt, REQUESTS, Use, Wish, is_spent};
use crate::apiserver::meter::{Meter, Prices};
use crate::informer::{InformerKey, InformerScope};
use crate::meta::{Encoding, Gvr, Verb};

const DAY: u64 = 86_400;
/// Seconds between two looks at what an informer owes.
const LOOK: u64 = 15;

struct World {
    objects: usize,
    /// What is true. The book knows what was measured of it.
    prices: Prices,
    /// Only this resource changes, so that its stream tells the revision of the store.
    still: bool,
    begun: Instant,
    second: u64,
    key: InformerKey,
    book: Arc<Book>,
    accounts: Accounts,
    informer: Option<Running>,
    ours: Cost,
    theirs: Cost,
    allowed: Cost,
    /// What clients have asked for since the last start, in the last hour.
    paid: VecDeque<(u64, Cost)>,
    starts: usize,
}

#[derive(Default)]
struct Running {
    debt: Debt,
    used: u64,
    /// In bytes, since it has its first state.
    spent: f64,
    /// What it has cost since then, less what its readers would have.
    lost: Cost,
    watches: u32,
}

#[derive(Clone, Copy, Debug)]
enum Client {
    /// Lists everything.
    Poller { every: u64 },
    /// The same at once with others.
    Crowd { every: u64, many: usize },
    /// Lists everything in any state, and follows it for so long.
    Follower { every: u64, lasts: u64 },
    /// Lists a part, everything, gets an object, lists a part again, and is gone.
    Program { every: u64, of: usize },
    /// Lists a part.
    Selects { every: u64, of: usize },
    /// Gets an object, and then updates it.
    Updates { every: u64 },
}

/// A sequence that is the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn client(&mut self, objects: u64) -> Client {
        let spread = 2 + self.below(8);
        let every = 2 + self.below(1 << spread);
        let of = self.below(1 + objects / 4) as usize;
        match self.below(8) {
            0 => Client::Poller { every },
            1 => Client::Crowd { every: every + 10, many: 2 + self.below(40) as usize },
            2 => Client::Follower { every: every + 600, lasts: 1 + self.below(500) },
            3 => Client::Program { every: every + 600, of },
            4 => Client::Updates { every },
            _ => Client::Selects { every, of },
        }
    }
}

impl World {
    /// `sizes`: the bytes of an object and of its metadata. `ratios`: to which many of both are compressed.
    fn new(objects: usize, sizes: [u64; 2], ratios: [u64; 2], still: bool) -> Self {
        let (meter, [object, metadata]) = (Meter::default(), sizes.map(|size| 1_000 * size));
        meter.listed(1_000, (object / ratios[0], object));
        meter.digested(1_000, (metadata / ratios[1], metadata));
        let (gvr, scope) = (Gvr::new("", "v1", "pods"), InformerScope::default());
        Self {
            objects,
            prices: meter.prices(),
            still,
            begun: Instant::now(),
            second: 0,
            key: InformerKey { gvr, scope, encoding: Encoding::Json },
            book: Arc::default(),
            accounts: Accounts::default(),
            informer: None,
            ours: Cost::NOTHING,
            theirs: Cost::NOTHING,
            allowed: Cost::NOTHING,
            paid: VecDeque::new(),
            starts: 0,
        }
    }

    fn now(&self) -> Instant {
        self.begun + Duration::from_secs(self.second)
    }

    /// A list of so many objects.
    fn list(&self, objects: usize) -> Cost {
        QUESTION + Cost::objects(&self.prices, objects, true)
    }

    /// So many objects that are not compressed.
    fn plain(&self, objects: f64) -> Cost {
        Cost { work: objects, bytes: self.prices.plain(1) as f64 * objects }
    }

    /// What a start may cost that nobody has paid.
    fn unpaid(&self) -> Cost {
        let guessed = self.objects.min(REQUESTS) + self.objects / 3;
        QUESTION.times(3.0) + self.plain(guessed as f64)
    }

    /// What it may owe at most.
    fn owes(&self, changes: f64) -> Cost {
        let start = Cost::objects(&self.book.meter.prices(), self.objects.max(64), true);
        start + self.plain(changes) + Cost::digest(&self.prices, self.objects)
    }

    /// `many` clients read at once what has `of` objects.
    fn reads(&mut self, verb: Verb, read: Use, of: usize, many: usize) {
        let own = self.list(of).times(many as f64);
        self.theirs = self.theirs + own;
        self.paid.push_back((self.second, own));
        while self.paid.front().is_some_and(|(at, _)| at + 3_600 < self.second) {
            self.paid.pop_front();
        }
        let (runs, is_part) = (self.informer.is_some(), read.selected || read.named);
        let is_lone = verb == Verb::Get && is_lone(self.book.gets(self.now(), true), || !runs);
        if is_lone || !runs && !self.starts(read) {
            self.ours = self.ours + own;
            if verb == Verb::List && is_part {
                let bytes = self.prices.plain(of as u64) as usize;
                Arc::clone(&self.book).rent(Giver::ApiserverOfPart, false).sent(bytes);
            }
            return;
        }
        // The first state is the proof for its first reader, and any state needs none.
        let question = match runs && (read.pays || is_part) {
            true => self.question(verb, read, of, many),
            false => Some(Cost::NOTHING),
        };
        self.ours = self.ours + question.unwrap_or(own);
        let (Some(running), Some(question)) = (&mut self.informer, question) else { return };
        running.used = self.second;
        running.spent += question.bytes;
        if runs {
            running.lost = running.lost + question + own.times(-1.0);
        }
        for _ in 0..many {
            self.book.serves();
            self.book.sent(self.prices.plain(of as u64) as usize);
        }
    }

    /// What the proof costs. `None`: the read is forwarded.
    fn question(&self, verb: Verb, read: Use, answer: usize, waiting: usize) -> Option<Cost> {
        let situation = Situation {
            verb,
            may_forward: true,
            odds: if self.still { 1.0 } else { 0.0 },
            all: self.objects,
            namespace: None,
            answer,
            only_metadata: false,
            prices: self.book.meter.prices(),
            gzip: true,
            selective: read.selected,
            is_late: false,
            waiting,
        };
        match situation.first() {
            Way::Forward => None,
            Way::Revision | Way::Watch => Some(QUESTION),
            Way::Digest(extent) => {
                let objects = if extent == Extent::Selection { answer } else { self.objects };
                let bytes = |gzip| self.prices.metadata(objects as u64, gzip);
                self.book.meter.digested(objects, (bytes(true), bytes(false)));
                Some(Cost::digest(&self.prices, objects))
            }
        }
    }

    /// Whether an informer starts for the read.
    fn starts(&mut self, read: Use) -> bool {
        loop {
            let (now, prices) = (self.now(), self.book.meter.prices());
            let ((rent, debts, whole), answers) = (self.accounts.of(&self.key, now), *self.book.answers.lock());
            let (table, narrower, asked, parts) = (false, false, None, None);
            let (most, cost) =
                Wish { read, table, narrower, whole, asked, parts, answers, prices, rent, debts }.start();
            self.accounts.pay(&self.key, cost, now);
            match most {
                None => return false,
                Some(most) if most < self.objects => {
                    self.ours = self.ours + self.list(1);
                    self.allowed = self.allowed + self.list(1);
                    self.accounts.is_large(&self.key, self.objects, now);
                }
                Some(_) => break,
            }
        }
        let list = self.list(self.objects);
        let paid = self.paid.drain(..).fold(Cost::NOTHING, |sum, (_, cost)| sum + cost);
        assert!(list.is_within(paid + self.unpaid()), "{list:?} of {}, and paid was {paid:?}: {read:?}", self.objects);
        self.ours = self.ours + list + QUESTION;
        let bytes = |gzip| self.prices.list(self.objects as u64, gzip);
        self.book.meter.listed(self.objects, (bytes(true), bytes(false)));
        self.informer = Some(Running { used: self.second, ..Running::default() });
        self.starts += 1;
        true
    }

    /// So many objects change, which the informer and those who follow it are sent.
    fn changes(&mut self, events: u64) {
        let cost = self.plain(events as f64);
        let Some(running) = &mut self.informer else { return };
        let followed = cost.times(f64::from(running.watches));
        self.theirs = self.theirs + followed;
        self.ours = self.ours + cost;
        running.spent += cost.bytes;
        running.lost = running.lost + cost + followed.times(-1.0);
        Arc::clone(&self.book).rent(Giver::Cache, true).sent(followed.bytes as usize);
    }

    /// Ends the informer if it has cost too much.
    fn looks(&mut self, changes: f64) {
        let (may_owe, earned, prices) = (self.owes(3.0 * changes), self.book.earned(), self.book.meter.prices());
        let now = self.now();
        let Some(running) = &mut self.informer else { return };
        assert!(running.lost.is_within(may_owe), "{:?} of {} is more than {may_owe:?}", running.lost, self.objects);
        let is_watched = running.watches > 0;
        running.used = if is_watched { self.second } else { running.used };
        running.debt.settle(Some((running.spent, earned, running.used)));
        let is_due = running.debt.is_due(self.objects, &prices);
        // A little later than in that second.
        let idle = Duration::from_millis(1_000 * (self.second - running.used) + 1);
        let is_over = is_spent(idle, is_due, self.book.served()) || idle.as_secs() >= 600;
        if is_over && !is_watched {
            self.accounts.ended(&self.key, Some(self.objects), is_due, now);
            self.informer = None;
        }
    }

    /// A day with these clients, and so many changes in a thousand seconds.
    fn day(&mut self, clients: &[Client], changes: u64) {
        let (any, newest) = (Use::default(), Use { pays: true, ..Use::default() });
        let (some, one) = (Use { selected: true, ..newest }, Use { named: true, ..any });
        let (all, mut due) = (self.objects, 0);
        let updates = clients.iter().filter(|client| matches!(client, Client::Updates { .. })).count() as f64;
        let in_a_look = LOOK as f64 * (changes as f64 / 1_000.0 + updates) + 1.0;
        for second in 0..DAY {
            self.second = second;
            due += changes;
            self.changes(due / 1_000);
            due %= 1_000;
            for (n, client) in clients.iter().enumerate() {
                let Some(at) = second.checked_sub(7 * n as u64) else { continue };
                let (Client::Poller { every }
                | Client::Crowd { every, .. }
                | Client::Follower { every, .. }
                | Client::Program { every, .. }
                | Client::Selects { every, .. }
                | Client::Updates { every }) = *client;
                match (*client, at % every) {
                    (Client::Poller { .. }, 0) | (Client::Program { .. }, 1) => self.reads(Verb::List, newest, all, 1),
                    (Client::Crowd { many, .. }, 0) => self.reads(Verb::List, newest, all, many),
                    (Client::Program { of, .. }, 0 | 3) | (Client::Selects { of, .. }, 0) => {
                        self.reads(Verb::List, some, of, 1);
                    }
                    (Client::Program { .. }, 2) => self.reads(Verb::Get, one, 1, 1),
                    (Client::Updates { .. }, 0) => {
                        self.reads(Verb::Get, one, 1, 1);
                        self.changes(1);
                    }
                    (Client::Follower { .. }, 0) => {
                        self.reads(Verb::List, any, all, 1);
                        self.theirs = self.theirs + QUESTION;
                        self.informer.iter_mut().for_each(|running| running.watches += 1);
                    }
                    (Client::Follower { lasts, .. }, after) if after == lasts => {
                        self.informer.iter_mut().for_each(|running| running.watches -= 1);
                    }
                    _ => {}
                }
            }
            if second % LOOK == LOOK - 1 {
                self.looks(in_a_look);
            }
        }
        self.allowed = self.allowed + self.unpaid() + self.owes(3.0 * in_a_look);
    }
}

#[test]
fn a_day_costs_the_apiserver_no_more_than_without_us() {
    let mut starts = 0;
    for seed in 1..=16 {
        let mut draw = Draw(seed);
        let spread = 5 + draw.below(9);
        let objects = 1 + draw.below(1 << spread);
        let object = 300 + draw.below(9_000);
        let sizes = [object, object * (30 + draw.below(40)) / 100];
        let ratios = [3 + draw.below(9), 2 + draw.below(10)];
        let mut world = World::new(objects as usize, sizes, ratios, draw.below(2) == 0);
        let clients: Vec<_> = (0..=draw.below(4)).map(|_| draw.client(objects)).collect();
        let spread = draw.below(15);
        let changes = draw.below(1 << spread);
        world.day(&clients, changes);
        let told = format!("{seed}: {objects} objects, {changes} changes, {clients:?}, {} starts", world.starts);
        let World { ours, theirs, allowed, .. } = world;
        assert!(ours.is_within(theirs.times(1.05) + allowed), "{ours:?}, and not {theirs:?}: {told}");
        starts += world.starts;
    }
    assert!(starts > 30, "only {starts} informers were started");
}

/// That an informer has cost more than it has saved is remembered after its end.
#[test]
fn who_reads_for_less_than_following_costs_is_forwarded() {
    for (objects, size, every, changes) in [
        (5_000, 5_000, 300, 20_000),
        (5_000, 5_000, 300, 5_000),
        (50_000, 5_000, 600, 200_000),
        (100, 1_000, 60, 10_000),
    ] {
        let mut world = World::new(objects, [size, size / 2], [8, 10], false);
        world.day(&[Client::Poller { every }], changes);
        let World { ours, theirs, starts, .. } = world;
        let most = theirs.times(1.1) + world.list(objects);
        assert!(ours.is_within(most), "{objects} every {every} s: {ours:?} of {theirs:?} with {starts} starts");
        assert!((2..=24).contains(&starts), "{objects} every {every} s: {starts} starts, and it may have changed");
    }
}

#[test]
fn who_reads_much_is_served_for_less_and_who_reads_little_starts_nothing() {
    let of = |client, still| {
        let mut world = World::new(3_000, [5_000, 2_500], [8, 10], still);
        world.day(&[client], 20);
        world
    };
    let costs = |world: &World, most| world.ours.is_within(world.theirs.times(most));
    for still in [false, true] {
        let crowd = of(Client::Crowd { every: 30, many: 30 }, still);
        assert!(crowd.starts == 1 && costs(&crowd, 0.1), "{:?} of {:?}", crowd.ours, crowd.theirs);
        let selects = of(Client::Selects { every: 5, of: 700 }, still);
        assert!(selects.starts == 1 && costs(&selects, 0.5), "{:?} of {:?}", selects.ours, selects.theirs);
        // The second one has the apiserver asked now and then how many objects there are.
        for (client, most) in [
            (Client::Selects { every: 1_800, of: 700 }, 1.0),
            (Client::Selects { every: 10, of: 2 }, 1.02),
            (Client::Updates { every: 10 }, 1.0),
        ] {
            let seldom = of(client, still);
            assert!(seldom.starts == 0 && costs(&seldom, most), "{client:?}: {:?} of {:?}", seldom.ours, seldom.theirs);
        }
    }
}
