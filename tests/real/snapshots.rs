//! Caches that are kept on disk over a restart, in front of a real kube-apiserver: a daemon that starts again lists
//! nothing, and serves what the apiserver would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod away;
mod churn;
mod definitions;
mod life;
mod limits;
mod past;
mod restart;

use crate::cluster::Cluster;

/// Each of these has daemons and a directory of its own. None of them disturbs the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn daemons_of_one_cluster_start_again() {
    let cluster = Cluster::start().await;
    tokio::join!(
        restart::lists_nothing_and_serves_the_same(&cluster),
        churn::watches_hear_each_event_once(&cluster),
        definitions::objects_of_a_changed_definition_are_listed(&cluster),
        limits::without_the_namespace_kube_system_nothing_is_kept(&cluster),
        limits::secrets_are_kept_only_with_a_key(&cluster),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_apiserver_has_another_past_than_the_snapshot() {
    past::is_compacted_then_set_back_then_of_another_cluster().await;
}
