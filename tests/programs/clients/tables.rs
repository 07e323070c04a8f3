//! That kubectl's tables come from the cache once they are asked for repeatedly, and are the server's.

#![allow(clippy::expect_used, clippy::panic, reason = "test code")]

use super::daemon::Daemon;
use super::kubectl::Kubectl;
use crate::support::metrics::sum;
use crate::support::until;

/// Lists, each three times before it counts.
const LISTS: [&str; 4] = ["get pods -A", "get pods -A -o wide", "get widgets -A", "get nodes --show-labels"];

/// `direct` prints what is right.
pub(crate) async fn served(direct: &Kubectl, through: &Kubectl, daemon: &Daemon) {
    for command in LISTS.into_iter().flat_map(|command| [command; 3]) {
        through.prints(command).await;
    }
    // Caches that are only starting are not waited for.
    let mut after = reads(daemon).await;
    until("all come from caches", async || {
        let before = reads(daemon).await;
        for command in LISTS {
            direct.same(through, command).await.unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        after = reads(daemon).await;
        after.forwarded == before.forwarded && after.local >= before.local + LISTS.len() as f64
    })
    .await;

    // A watch of tables goes on from the list that comes before it.
    let mut watch = through.start("get pods -A -w").await;
    until("the cache is watched", async || {
        sum(&daemon.metrics().await, "informerd_cache_watchers", &["encoding=\"table\""]) >= 1.0
    })
    .await;
    assert_eq!(reads(daemon).await.forwarded, after.forwarded, "neither the list nor the watch is forwarded");
    watch.kill().await.expect("kubectl ends");
}

struct Reads {
    local: f64,
    /// For what is said of tables, or of anything that no cache holds.
    forwarded: f64,
}

async fn reads(daemon: &Daemon) -> Reads {
    let metrics = daemon.metrics().await;
    let of = |plan: &str| sum(&metrics, "informerd_reads_total", &[&format!("plan=\"{plan}\"")]);
    Reads { local: of("serve") + of("wait"), forwarded: of("forward") }
}
