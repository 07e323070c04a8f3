use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::apiserver::meter::Meter;
use crate::informer::ledger::accounts::Accounts;
use crate::informer::ledger::book::{Book, Giver};
use crate::informer::{InformerKey, InformerScope};
use crate::meta::{Encoding, Gvr};

const ALL: Use = Use {
    named: false,
    selected: false,
    limit: None,
    watch: false,
    initial: false,
    must: false,
    pays: false,
    past: false,
};
const SOME: Use = Use { selected: true, ..ALL };

/// A list of so many objects of unknown size.
fn cost(objects: usize) -> Cost {
    Cost::objects(&Prices::default(), objects, true)
}

/// For an informer of which nothing is known.
fn wish(read: Use) -> Wish {
    Wish {
        read,
        table: false,
        narrower: false,
        whole: None,
        asked: None,
        parts: None,
        answers: None,
        prices: Prices::default(),
        rent: Cost::NOTHING,
        debts: 0.0,
    }
}

fn of(whole: usize, read: Use) -> Wish {
    Wish { whole: Some(whole), ..wish(read) }
}

/// The first read of all.
#[test]
fn table() {
    let newest = |read| Use { pays: true, ..read };
    let follows = |read| Use { watch: true, ..read };
    let local = |read| Use { must: true, ..read };
    let namespace = |wish| Wish { narrower: true, ..wish };
    let parts = |informers, objects, wish| Wish { parts: Some((informers, objects)), ..namespace(wish) };
    const MANY: usize = REQUESTS + 1;
    for (what, wish, most) in [
        ("everything", wish(ALL), Some(usize::MAX)),
        ("its newest state", wish(newest(ALL)), Some(usize::MAX)),
        ("its newest state, if it is large", of(90_000, newest(ALL)), Some(usize::MAX)),
        ("a page of it", wish(newest(Use { limit: Some(400), ..ALL })), None),
        ("a page of fewer", of(400, newest(Use { limit: Some(400), ..ALL })), Some(usize::MAX)),
        ("its past", wish(newest(Use { past: true, ..ALL })), None),
        ("a watch of it", of(90_000, follows(ALL)), Some(usize::MAX)),
        ("a selection", wish(SOME), Some(REQUESTS)),
        ("its newest state", wish(newest(SOME)), None),
        ("a selection of few", of(REQUESTS, SOME), Some(usize::MAX)),
        ("a selection of many", of(MANY, SOME), None),
        ("an object of many", of(MANY, Use { named: true, ..ALL }), None),
        ("a watch of a selection", wish(follows(SOME)), Some(REQUESTS)),
        ("a watch of a selection of few", of(REQUESTS, follows(SOME)), Some(usize::MAX)),
        ("a watch of a selection of many", of(MANY, follows(SOME)), None),
        ("one that cannot be forwarded", of(MANY, local(follows(SOME))), Some(usize::MAX)),
        ("a namespace", namespace(wish(ALL)), Some(REQUESTS)),
        ("a namespace of few", namespace(of(REQUESTS, ALL)), Some(usize::MAX)),
        ("a namespace of many", parts(0, 0, of(300, ALL)), None),
        ("the same if nothing is forwarded: it gets its own", parts(0, 0, of(300, local(ALL))), None),
        ("the same if it gets none of its own", namespace(of(300, local(ALL))), Some(usize::MAX)),
        ("the first of others that hold almost half", parts(2, 149, of(300, ALL)), None),
        ("of others that hold half", parts(2, 150, of(300, ALL)), Some(usize::MAX)),
        ("of many others", parts(PARTS, 1, of(300, ALL)), Some(usize::MAX)),
        ("a table", Wish { table: true, ..wish(ALL) }, None),
        ("a watch of tables", Wish { table: true, ..of(1, follows(ALL)) }, None),
    ] {
        assert_eq!(wish.start().0, most, "{what}");
    }
}

/// The number of the read that starts the informer, if the reads are this far apart.
fn started_at(every: Duration, wish: Wish) -> Option<usize> {
    let (mut accounts, begun) = (Accounts::default(), Instant::now());
    let scope = InformerScope::default();
    let key = InformerKey { gvr: Gvr::new("", "v1", "pods"), scope, encoding: Encoding::Json };
    let is_started = |n: &u32| {
        let now = begun + every * *n;
        let (most, cost) = Wish { rent: accounts.of(&key, now).0, ..wish }.start();
        accounts.pay(&key, cost, now);
        most.is_some()
    };
    (0..200).find(is_started).map(|n| n as usize + 1)
}

#[tokio::test(start_paused = true)]
async fn repeated_use_starts_it() {
    let (page, one) = (Use { limit: Some(500), ..ALL }, Use { named: true, ..ALL });
    let table = |wish| Wish { table: true, ..wish };
    let namespace = |asked| Wish { asked: Some(asked), narrower: true, ..table(of(10_000, ALL)) };
    let (seconds, minutes) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
    let newest = |read| Use { pays: true, ..read };
    for (every, wish, started) in [
        // A client that polls tables, or a user who runs the same command repeatedly.
        (seconds(2), table(wish(ALL)), Some(3)),
        (minutes(1), table(wish(ALL)), Some(3)),
        (minutes(5), table(wish(page)), Some(3)),
        (minutes(5), table(of(20, page)), Some(3)),
        // Occasional reads.
        (minutes(15), table(wish(ALL)), None),
        (minutes(60), table(of(20, page)), None),
        (minutes(30), Wish { asked: Some(1250), ..of(10_000, newest(SOME)) }, None),
        // A page of a large collection is a small part of it.
        (seconds(2), table(of(10_000, page)), Some(42)),
        // One object costs almost nothing, unless it is read all the time.
        (minutes(1), table(of(10_000, one)), None),
        (seconds(2), table(of(10, one)), Some(21)),
        (seconds(2), of(500, one), None),
        (seconds(30), table(of(400, SOME)), Some(10)),
        // A namespace, for an informer of all namespaces.
        (seconds(30), namespace(20), None),
        (seconds(30), namespace(5_000), Some(5)),
        // The newest state of a part of an unknown number, and of a part of a part.
        (seconds(2), wish(newest(SOME)), Some(5)),
        (seconds(2), Wish { narrower: true, ..wish(newest(SOME)) }, Some(16)),
        // Three watches of parts of many objects are not worth it, and the fourth within minutes is.
        (seconds(1), of(50_000, Use { watch: true, ..SOME }), Some(4)),
        (minutes(1), of(50_000, Use { watch: true, ..SOME }), Some(4)),
        (minutes(10), of(50_000, Use { watch: true, ..SOME }), None),
        // If it is known how small these parts are, they pay for no more.
        (seconds(1), Wish { asked: Some(30), ..of(50_000, Use { watch: true, ..SOME }) }, None),
        (seconds(1), Wish { answers: Some(122_880.0), ..of(50_000, Use { watch: true, ..SOME }) }, None),
        (seconds(1), of(50_000, Use { watch: true, named: true, ..ALL }), None),
        (seconds(1), Wish { asked: Some(25_000), ..of(50_000, Use { watch: true, ..SOME }) }, Some(3)),
        // What answers are measured to be: 100 objects, and two.
        (seconds(2), Wish { answers: Some(409_600.0), ..of(1_000, SOME) }, Some(11)),
        (seconds(2), Wish { answers: Some(8_192.0), ..of(50_000, SOME) }, None),
        (seconds(2), of(50_000, SOME), Some(5)),
    ] {
        assert_eq!(started_at(every, wish), started, "{every:?} {wish:?}");
    }
}

/// The part of an unknown number was a guess.
#[test]
fn rent_for_few_does_not_start_an_informer_of_many() {
    let rent = wish(ALL).start().1 + wish(Use { pays: true, ..ALL }).start().1;
    let paid = |wish: Wish| Wish { rent, answers: Some(100.0), ..wish }.start().0;
    assert_eq!(paid(wish(Use { pays: true, ..SOME })), Some(REQUESTS), "whose first question is how many there are");
    assert_eq!(paid(of(50_000, SOME)), None);
}

#[test]
fn rent_for_pages_does_not_start_an_informer_of_many() {
    let page = Wish { rent: cost(OBJECTS), ..wish(Use { limit: Some(50), pays: true, ..ALL }) };
    assert_eq!(page.start().0, Some(REQUESTS), "whose first question is how many there are");
    assert_eq!(Wish { whole: Some(50_000), ..page }.start().0, None);
}

#[test]
fn what_compressed_answers_had_is_measured_in_objects() {
    let book = Arc::<Book>::default();
    book.meter.listed(1_000, (625_000, 5_000_000));
    for _ in 0..3 {
        Arc::clone(&book).rent(Giver::ApiserverOfPart, true).sent(437_500);
    }
    let (answers, prices) = (*book.answers.lock(), book.meter.prices());
    assert_eq!(Wish { answers, prices, ..of(3_000, SOME) }.costs().1.work, 700.0);
}

#[test]
fn a_past_that_is_forwarded_pays_for_who_comes_next() {
    let past = |wish: Wish| Wish { read: Use { pays: true, past: true, ..wish.read }, ..wish }.start();
    assert_eq!(past(wish(ALL)), (None, Cost::NOTHING), "a page of an unknown whole would count as all");
    let (most, cost) = past(of(1_000, Use { limit: Some(500), ..ALL }));
    assert_eq!((most, cost.work), (None, 500.0));
    let next = Wish { rent: cost, ..of(1_000, Use { limit: Some(500), pays: true, ..ALL }) };
    assert_eq!(next.start().0, Some(usize::MAX));
}

#[test]
fn each_informer_that_ended_in_debt_doubles_the_price_of_the_next() {
    let rent = |lists: f64| Cost { work: 500.0 * lists, bytes: f64::MAX };
    let starts =
        |debts, lists| Wish { debts, rent: rent(lists), ..wish(Use { pays: true, ..ALL }) }.start().0.is_some();
    // The read pays a list itself.
    for (debts, lists) in [(0.0, 0.0), (1.0, 1.0), (3.0, 7.0), (10.0, 1_023.0), (100.0, 1_023.0)] {
        assert!(starts(debts, lists) && (lists == 0.0 || !starts(debts, lists - 0.1)), "{debts} debts");
    }
    assert!(Wish { debts: 3.0, ..wish(ALL) }.start().0.is_some(), "client-go, which watches next");
}

#[test]
fn a_debt_is_what_was_not_earned_since_the_informer_was_used() {
    let mut debt = Debt::default();
    let at = |spent: f64, earned, used| Some((spent, earned, used));
    assert_eq!(debt.settle(at(700.0, 900.0, 1)), 0.0, "what it has cost before is paid");
    assert_eq!(debt.settle(at(760.0, 900.0, 1)), 60.0);
    assert_eq!(debt.settle(at(800.0, 950.0, 1)), 100.0, "readers of another informer have saved that");
    assert_eq!(debt.settle(at(830.0, 970.0, 2)), 110.0);
    assert_eq!(debt.settle(at(900.0, 2_000.0, 3)), 0.0);
    assert_eq!(debt.settle(at(901.0, 2_000.0, 3)), 1.0, "a gain is no credit");
    assert_eq!([debt.settle(None), debt.settle(at(2_000.0, 2_000.0, 3))], [0.0, 0.0], "it had no state");
}

#[test]
fn what_is_owed_for_nothing_ends_it() {
    let meter = Meter::default();
    meter.listed(1_000, (125_000, 1_000_000));
    let prices = meter.prices();
    let ends = |owed, objects| Debt { owed, last: None }.is_due(objects, &prices);
    assert!(!ends(63_999.0, 3) && ends(64_000.0, 3));
    assert!(!ends(1_249_999.0, 10_000) && ends(1_250_000.0, 10_000), "a list is compressed");
    assert!(
        is_spent(Duration::from_millis(1), true, FEW) && !is_spent(Duration::ZERO, true, FEW),
        "somebody follows it"
    );
}

#[test]
fn who_has_hardly_read_and_is_gone_leaves_nothing() {
    for (idle, served, ends) in [(GONE, 2, true), (GONE - Duration::from_secs(1), 2, false), (GONE, 3, false)] {
        assert_eq!(is_spent(idle, false, served), ends, "{idle:?} after {served} reads");
    }
}
