use proptest::prelude::*;

use super::*;

#[test]
fn what_does_not_fit_is_refused_and_a_tenth_is_left_to_grow() {
    let budget = Budget::new(1000);
    let (pods, nodes) = (budget.account(false), budget.account(false));
    pods.load(600).unwrap();
    pods.settle(600);
    assert_eq!(nodes.load(301), Err(Full { need: 301, room: 300, limit: 1000 }));
    nodes.load(300).unwrap();
    nodes.settle(300);
    // State that is held may use the rest.
    pods.hold(700);
    assert!(!pods.is_recalled() && !nodes.is_recalled());
    assert_eq!((budget.used(), budget.recalls()), (1000, 0));
    assert_eq!([pods.excess(700), pods.excess(750), nodes.excess(100)], [0, 50, 0]);
}

#[test]
fn the_largest_goes_and_pinned_ones_last() {
    let budget = Budget::new(1000);
    let (pinned, large, small) = (budget.account(true), budget.account(false), budget.account(false));
    pinned.settle(500);
    large.settle(300);
    small.settle(100);
    small.hold(201);
    assert!(large.is_recalled() && !small.is_recalled() && !pinned.is_recalled());
    // It has not been cleared yet, but is no longer counted.
    assert_eq!((budget.used(), large.excess(300)), (701, 1));
    large.clear();
    assert!(!large.is_recalled());
    pinned.hold(900);
    assert!(small.is_recalled() && !pinned.is_recalled());
    small.clear();
    pinned.hold(1001);
    assert!(pinned.is_recalled());
    pinned.clear();
    assert_eq!((budget.used(), budget.recalls()), (0, 3));
}

#[test]
fn a_pinned_state_is_read_at_the_cost_of_what_is_not() {
    let budget = Budget::new(1000);
    let (pinned, other) = (budget.account(true), budget.account(false));
    other.settle(800);
    assert!(budget.account(false).load(200).is_err());
    pinned.load(200).unwrap();
    assert!(other.is_recalled());
    assert_eq!(pinned.load(901).unwrap_err().room, 900);
}

#[test]
fn what_readers_still_send_is_counted() {
    let budget = Budget::new(1000);
    let (first, second) = (budget.account(false), budget.account(true));
    first.settle(800);
    let lent = first.lend();
    assert_eq!(budget.used(), 800);
    first.clear();
    assert_eq!(budget.used(), 800);
    assert_eq!(second.load(200).unwrap_err().room, 100, "it is in memory as before");
    drop(lent);
    second.load(200).unwrap();
    assert_eq!(budget.used(), 200);
}

#[test]
fn what_is_no_state_is_counted_and_recalls_nobody() {
    let pressure = Pressure::default();
    let budget = Budget::under(1000, pressure.clone());
    let account = budget.account(false);
    account.settle(600);
    assert_eq!(budget.lend(301).unwrap_err(), Full { need: 301, room: 300, limit: 1000 });
    let lent = budget.lend(300).unwrap();
    assert_eq!((budget.used(), budget.recalls()), (900, 0));
    assert!(budget.lend(1).is_err() && budget.account(false).load(1).is_err());
    drop(lent);
    pressure.set(Level::Tight);
    assert_eq!(budget.lend(1).unwrap_err().room, 0);
    assert_eq!(budget.used(), 600);
}

#[test]
fn what_was_told_to_go_is_counted_until_it_has() {
    let budget = Budget::new(1000);
    let (first, second) = (budget.account(false), budget.account(false));
    first.settle(800);
    assert!(budget.recall());
    assert!(second.load(200).is_err());
    first.clear();
    second.load(200).unwrap();
}

#[test]
fn under_pressure_nothing_new_is_read() {
    let pressure = Pressure::default();
    let budget = Budget::under(1000, pressure.clone());
    let account = budget.account(true);
    account.load(10).unwrap();
    pressure.set(Level::Tight);
    account.load(10).unwrap();
    assert_eq!(account.load(11).unwrap_err().room, 0);
    pressure.set(Level::Calm);
    account.load(11).unwrap();
    account.settle(11);
    assert!(budget.recall() && account.is_recalled());
    assert!(!budget.recall(), "nobody is left");
}

#[test]
fn before_memory_is_short_a_state_that_is_held_may_be_read_anew() {
    let pressure = Pressure::default();
    let budget = Budget::under(1000, pressure.clone());
    let (held, new) = (budget.account(false), budget.account(false));
    held.settle(100);
    pressure.set(Level::Tight);
    held.load(100).unwrap();
    assert_eq!(new.load(1).unwrap_err().room, 0, "nothing is held that would have to go");
    pressure.set(Level::Short);
    assert_eq!(held.load(101).unwrap_err().room, 0);
}

#[test]
fn without_a_bound_everything_fits() {
    let budget = Budget::default();
    let account = budget.account(false);
    account.load(usize::MAX / 2).unwrap();
}

#[tokio::test]
async fn a_recall_is_heard() {
    let budget = Budget::new(100);
    let account = budget.account(false);
    let heard = account.recalled();
    account.hold(101);
    heard.await;
    account.clear();
    let pending = account.recalled();
    drop(account);
    assert!(futures_util::FutureExt::now_or_never(pending).is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Hold(usize, usize),
    Load(usize, usize),
    Settle(usize, usize),
    Clear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (account, bytes) = (|| 0..4_usize, || 0..1500_usize);
    prop_oneof![
        (account(), bytes()).prop_map(|(a, b)| Step::Hold(a, b)),
        (account(), bytes()).prop_map(|(a, b)| Step::Load(a, b)),
        (account(), bytes()).prop_map(|(a, b)| Step::Settle(a, b)),
        account().prop_map(Step::Clear),
    ]
}

proptest! {
    /// For any sequence of steps: the accounts that are not recalled never exceed the limit together, and the sum is
    /// theirs.
    #[test]
    fn never_beyond_the_limit(steps in prop::collection::vec(step(), 1..60)) {
        let budget = Budget::new(1000);
        let accounts: Vec<_> = (0..4).map(|i| budget.account(i < 2)).collect();
        for step in steps {
            match step {
                Step::Hold(a, bytes) => accounts[a].hold(bytes),
                Step::Load(a, bytes) => { accounts[a].load(bytes).ok(); }
                Step::Settle(a, bytes) => accounts[a].settle(bytes),
                Step::Clear(a) => accounts[a].clear(),
            }
            prop_assert!(budget.used() <= budget.limit(), "{} is held", budget.used());
            let state = budget.inner.accounts.lock();
            let sum: usize = state.by_id.values().filter(|e| !e.is_recalled()).map(|e| e.held + e.loading).sum();
            prop_assert_eq!(sum, state.used);
        }
        drop(accounts);
        prop_assert_eq!(budget.used(), 0);
        prop_assert!(budget.inner.accounts.lock().by_id.is_empty());
    }
}
