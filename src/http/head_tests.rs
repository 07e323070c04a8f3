//! The memory of request heads, and of what becomes of their selectors.

use super::*;
use crate::memory::Reservation;

#[tokio::test]
async fn a_long_head_counts_for_as_long_as_something_of_it_is_kept() {
    let server = start().await;
    let watch = server.get(WATCH).await;
    assert_eq!((watch.status().as_u16(), server.ledger.used()), (200, 0), "a usual one takes little");
    let long = "x".repeat(300_000);
    let watch = server.send(Request::get(WATCH).header("user-agent", &long).header("x-padding", &long)).await;
    assert_eq!(watch.status(), 200);
    let held = server.ledger.used();
    assert!((600_000..601_000).contains(&held), "{held}");
    drop(watch);
    until(|| server.ledger.used() == 0).await;
    let get = server.send(Request::get("/api/v1/namespaces/a/configmaps/c00000").header("x-padding", &long)).await;
    assert_eq!((get.status().as_u16(), server.ledger.used()), (200, 0), "the answer has begun");
}

#[tokio::test]
async fn many_headers_count_more_than_their_bytes() {
    let server = start().await;
    let many = (0..1000).fold(Request::get(WATCH), |request, n| request.header(format!("h{n}"), ""));
    let watch = server.send(many).await;
    assert_eq!(watch.status(), 200);
    let held = server.ledger.used();
    assert!((100_000..200_000).contains(&held), "{held}");
    drop(watch);
    until(|| server.ledger.used() == 0).await;
}

#[tokio::test]
async fn selectors_count_before_they_are_parsed_and_large_ones_are_not_parsed() {
    let server = start().await;
    let target = |part: &str, count: usize| {
        let selector = if part.ends_with("%3Dc") { "fieldSelector" } else { "labelSelector" };
        format!("{WATCH}&{selector}={}", vec![part; count].join(if count.is_multiple_of(2) { "," } else { "%2C" }))
    };
    for (part, count) in [("a", 1000), ("a", 999), ("a%3Db", 1000)] {
        let watch = server.get(&target(part, count)).await;
        assert_eq!(header(&watch, "x-informerd-plan").split(';').next(), Some("served"), "{part} {count}");
        let held = server.ledger.used();
        assert!((500_000..600_000).contains(&held), "{part} {count}: {held}");
        drop(watch);
        until(|| server.ledger.used() == 0).await;
    }
    for (part, count) in [("a", 1001), ("a", 20_000), ("a%3Dc", 1001)] {
        let watch = server.get(&target(part, count)).await;
        assert_eq!(header(&watch, "x-informerd-plan"), "forwarded; reason=unsupported", "{part} {count}");
    }
    // Without room, a large head waits; others go on.
    let most: Vec<Reservation> = vec![server.ledger.lasting(usize::MAX / 4 * 3 - 100_000).unwrap()];
    let refused = server.get(&target("a", 1000)).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, "1"));
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/c00000").await.status(), 200);
    drop(most);
    assert_eq!(server.get(&target("a", 1000)).await.status(), 200);
}
