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
    accounts.ended(&key("pods"), None, (7.0, 0.0), now + HALF_LIFE);
    assert_eq!(rent(&accounts, "pods", now + HALF_LIFE), Cost { work: 0.0, bytes: -7.0 }, "that is owed");
}

#[tokio::test(start_paused = true)]
async fn rent_falls_by_what_an_informer_would_have_cost() {
    let (mut accounts, now, pods) = (Accounts::default(), Instant::now(), key("pods"));
    let after = |seconds| now + Duration::from_secs(seconds);
    let bytes = |accounts: &Accounts, seconds| accounts.of(&pods, after(seconds)).0.bytes.round();
    accounts.ended(&pods, Some(70), (0.0, 100.0), now);
    assert_eq!((bytes(&accounts, 0), accounts.of(&pods, now).1), (0.0, Some(70)));
    assert_eq!(bytes(&accounts, 36), -3_575.0, "that is a little less after 36 seconds");
    accounts.pay(&pods, cost(1_000.0), after(36));
    assert_eq!(bytes(&accounts, 36), 6_425.0);
    // For an hour, it falls by so much in each ten minutes at most, and a day later, one may be tried again.
    assert!((-50_000.0..-40_000.0).contains(&bytes(&accounts, 636)));
    assert!((-30_000.0..-29_000.0).contains(&bytes(&accounts, 3_600)));
    assert_eq!((bytes(&accounts, 86_400), accounts.of(&pods, now + RATE_LASTS).1), (0.0, None));
    accounts.is_large(&pods, 300, after(3_600));
    assert!(bytes(&accounts, 3_600) < 0.0, "the rent was no guess");
}

#[tokio::test(start_paused = true)]
async fn rent_outlasts_the_size() {
    let (mut accounts, now) = (Accounts::default(), Instant::now());
    let json = InformerKey { encoding: Encoding::Json, ..key("pods") };
    accounts.pay(&key("pods"), cost(100.0), now);
    accounts.is_large(&json, 300, now);
    assert_eq!(accounts.of(&key("pods"), now), (Cost::NOTHING, Some(300)), "it was a guess");
    let (paid, later) = (now + Duration::from_secs(590), now + Duration::from_secs(601));
    accounts.pay(&key("pods"), cost(100.0), paid);
    assert_eq!(accounts.of(&json, later).1, None);
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
    let size = |n: usize, encoding| accounts.of(&InformerKey { encoding, ..key(&format!("r{n}")) }, Instant::now()).1;
    let sizes = |n| [Encoding::Json, Encoding::Protobuf, Encoding::Table].map(|encoding| size(n, encoding));
    assert_eq!([sizes(1), sizes(most)], [[Some(300); 3]; 2]);
    let first = sizes(0).into_iter().flatten().count();
    assert_eq!((first, accounts.accounts.len()), (1, ENTRIES), "two had to make room");
    tokio::time::advance(HALF_LIFE).await;
    let size = accounts.of(&key("r1"), Instant::now()).1;
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
