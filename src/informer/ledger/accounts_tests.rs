use super::*;
use crate::informer::InformerScope;

fn key(resource: &str) -> InformerKey {
    InformerKey { gvr: Gvr::new("", "v1", resource), scope: InformerScope::default(), encoding: Encoding::Table }
}

fn cost(work: f64) -> Cost {
    Cost { work, bytes: 10.0 * work }
}

#[tokio::test(start_paused = true)]
async fn rent_is_paid_for_each_informer_and_fades() {
    let (mut accounts, now) = (Accounts::default(), Instant::now());
    let rent = |accounts: &Accounts, resource, now| accounts.of(&key(resource), now).0;
    accounts.pay(&key("pods"), cost(100.0), now);
    accounts.pay(&key("nodes"), cost(1.0), now);
    accounts.pay(&key("pods"), cost(20.0), now);
    assert_eq!([rent(&accounts, "pods", now), rent(&accounts, "nodes", now)], [cost(120.0), cost(1.0)]);
    assert_eq!(rent(&accounts, "pods", now + 2 * HALF_LIFE), cost(30.0));
    accounts.pay(&key("pods"), cost(1.0), now + HALF_LIFE);
    assert_eq!(rent(&accounts, "pods", now + HALF_LIFE), cost(61.0));
    // It was started, and is over.
    accounts.ended(&key("pods"), None, false, now + HALF_LIFE);
    assert_eq!(accounts.of(&key("pods"), now + HALF_LIFE), (Cost::NOTHING, 0.0, None));
}

#[tokio::test(start_paused = true)]
async fn debts_are_counted_and_forgotten() {
    let (mut accounts, now, pods) = (Accounts::default(), Instant::now(), key("pods"));
    let debts = |accounts: &Accounts, hours: u64| accounts.of(&pods, now + Duration::from_secs(3_600 * hours)).1;
    for _ in 0..4 {
        accounts.ended(&pods, Some(300), true, now);
    }
    accounts.ended(&pods, Some(300), false, now);
    assert_eq!(
        [debts(&accounts, 0), debts(&accounts, 6), debts(&accounts, 12), debts(&accounts, 24)],
        [4.0, 2.0, 1.0, 0.0]
    );
    assert_eq!(accounts.of(&pods, now).2, Some(300));
    accounts.ended(&pods, Some(REQUESTS), true, now);
    assert_eq!(accounts.of(&pods, now).2, None, "there may be many when it is read again");
    for _ in 0..100 {
        accounts.ended(&pods, Some(300), true, now);
    }
    let kept = [0, 6, 12, 30].map(|hours| accounts.of(&pods, now + Duration::from_secs(3_600 * hours)).1);
    assert_eq!(kept, [MOST_DEBTS, 5.0, 3.0, 0.0], "however often: the next day it is tried again");
}

#[tokio::test(start_paused = true)]
async fn rent_outlasts_the_size() {
    let (mut accounts, now) = (Accounts::default(), Instant::now());
    let json = InformerKey { encoding: Encoding::Json, ..key("pods") };
    accounts.pay(&key("pods"), cost(100.0), now);
    accounts.is_large(&json, 300, now);
    assert_eq!(accounts.of(&key("pods"), now), (Cost::NOTHING, 0.0, Some(300)), "it was a guess");
    let (paid, later) = (now + Duration::from_secs(590), now + Duration::from_secs(601));
    accounts.pay(&key("pods"), cost(100.0), paid);
    assert_eq!(accounts.of(&json, later).2, None);
    accounts.is_large(&json, 300, later);
    assert!(accounts.of(&key("pods"), later).0.work > 90.0);
}

#[tokio::test(start_paused = true)]
async fn accounts_are_bounded() {
    let (mut accounts, now) = (Accounts::default(), Instant::now());
    accounts.pay(&key("dear"), cost(2.0), now);
    for n in 0..2 * ENTRIES {
        accounts.pay(&key(&format!("cheap{n}")), cost(1.0), now);
    }
    assert_eq!(accounts.accounts.len(), ENTRIES);
    assert_eq!(accounts.of(&key("dear"), now).0, cost(2.0), "the cheap ones are forgotten first");
    // Nor do those of informers that have ended keep new ones out.
    let mut accounts = Accounts::default();
    for n in 0..ENTRIES {
        accounts.ended(&key(&format!("ended{n}")), Some(50), false, now);
    }
    for _ in 0..10 {
        for name in ["a", "b"] {
            accounts.pay(&key(name), cost(1.0), now);
        }
    }
    assert_eq!(["a", "b"].map(|name| accounts.of(&key(name), now).0), [cost(10.0); 2]);
}

#[tokio::test(start_paused = true)]
async fn of_too_many_sizes_the_oldest_is_forgotten() {
    let mut accounts = Accounts::default();
    // Each is known of all encodings.
    let most = ENTRIES / 3;
    for n in 0..=most {
        accounts.is_large(&key(&format!("r{n}")), 300, Instant::now());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let size = |n: usize, encoding| accounts.of(&InformerKey { encoding, ..key(&format!("r{n}")) }, Instant::now()).2;
    let sizes = |n| [Encoding::Json, Encoding::Protobuf, Encoding::Table].map(|encoding| size(n, encoding));
    assert_eq!([sizes(1), sizes(most)], [[Some(300); 3]; 2]);
    let first = sizes(0).into_iter().flatten().count();
    assert_eq!((first, accounts.accounts.len()), (1, ENTRIES), "two had to make room");
    tokio::time::advance(HALF_LIFE).await;
    let size = accounts.of(&key("r1"), Instant::now()).2;
    assert_eq!(size, None, "it may have changed");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_served_is_tried_again_later() {
    let (mut accounts, gvr) = (Accounts::default(), Gvr::new("", "v1", "pods"));
    accounts.refuse(&gvr, NoCoverage::Cells, UNPRINTABLE, Instant::now());
    let refuses = |accounts: &Accounts, why| accounts.refuses(&gvr, why, Instant::now());
    assert!(!refuses(&accounts, NoCoverage::Unversioned));
    tokio::time::advance(UNPRINTABLE - Duration::from_secs(1)).await;
    assert!(refuses(&accounts, NoCoverage::Cells));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!refuses(&accounts, NoCoverage::Cells));
    accounts.refuse(&gvr, NoCoverage::Unversioned, UNVERSIONED, Instant::now());
    assert_eq!(accounts.refused.len(), 1, "what is over is not kept");
}
