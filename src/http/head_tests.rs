//! The memory of request heads, and of what becomes of their selectors.

use super::*;

#[tokio::test]
async fn a_long_head_counts_for_as_long_as_something_of_it_is_kept() {
    let server = start().await;
    let watch = server.get(WATCH).await;
    assert_eq!((watch.status().as_u16(), server.ledger.used()), (200, 0), "a usual one takes little");
    let long = "x".repeat(300_000);
    let padded = Request::get(WATCH).header("user-agent", &long).header("x-padding", &long);
    // Many headers count more than their bytes.
    let many = (0..1000).fold(Request::get(WATCH), |request, n| request.header(format!("h{n}"), ""));
    for (request, bytes) in [(padded, 600_000..601_000), (many, 100_000..200_000)] {
        let watch = server.send(request).await;
        assert_eq!(watch.status(), 200);
        let held = server.ledger.used();
        assert!(bytes.contains(&held), "{held} and not {bytes:?}");
        drop(watch);
        until(|| server.ledger.used() == 0).await;
    }
    let get = server.send(Request::get("/api/v1/namespaces/a/configmaps/c00000").header("x-padding", &long)).await;
    assert_eq!((get.status().as_u16(), server.ledger.used()), (200, 0), "the answer has begun");
}

#[tokio::test]
async fn selectors_count_before_they_are_parsed_and_large_ones_are_not_parsed() {
    let server = start().await;
    let target = format!("{WATCH}&labelSelector={}", vec!["a"; 1000].join(","));
    let watch = server.get(&target).await;
    assert_eq!(header(&watch, "x-informerd-plan").split(';').next(), Some("served"));
    let held = server.ledger.used();
    assert!((500_000..600_000).contains(&held), "{held}");
    drop(watch);
    until(|| server.ledger.used() == 0).await;
    for (selector, part) in [("labelSelector", "a"), ("fieldSelector", "a%3Dc")] {
        let watch = server.get(&format!("{WATCH}&{selector}={}", vec![part; 1001].join(","))).await;
        assert_eq!(header(&watch, "x-informerd-plan"), "forwarded; reason=unsupported", "{selector}");
    }
    // Without room, a large head waits; others go on.
    let most = server.ledger.lasting(usize::MAX / 4 * 3 - 100_000).unwrap();
    let refused = server.get(&target).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, "1"));
    assert_eq!(server.get("/api/v1/namespaces/a/configmaps/c00000").await.status(), 200);
    drop(most);
    assert_eq!(server.get(&target).await.status(), 200);
}
