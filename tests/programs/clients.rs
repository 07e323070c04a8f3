//! Unmodified clients of several languages through informerd, against a real kube-apiserver: what they see has to be
//! what happened at the server, event by event, and what kubectl prints has to be what it prints without informerd.

pub(crate) mod client;
pub(crate) mod daemon;
pub(crate) mod kubectl;
pub(crate) mod ledger;
pub(crate) mod matrix;
pub(crate) mod scene;
pub(crate) mod tables;
pub(crate) mod truth;

use crate::cluster::Cluster;
use daemon::Daemon;
use kubectl::Kubectl;
use ledger::corruptions;
use matrix::{Endpoint, run, run_interrupted};

/// The known good path: if this fails, it is a client or this test that is wrong. What the clients print here is then
/// spoiled in every way an unfaithful server could, and none may pass.
#[tokio::test(flavor = "multi_thread")]
async fn informers_see_everything_directly_and_the_check_notices_what_is_spoiled() {
    let cluster = Cluster::start().await;
    let direct = Endpoint::new("direct", cluster.admin());
    let seen = run(&cluster, &[direct], None).await;
    let mut spoiled = 0;
    for (name, ledger, lines) in &seen {
        for (what, lines) in corruptions(lines) {
            assert!(!ledger.check(&lines).is_empty(), "{name}: {what} went unnoticed");
            spoiled += 1;
        }
    }
    assert!(spoiled > 10 * seen.len(), "only {spoiled} logs of {} informers could be spoiled", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_of_every_language_see_everything_through_informerd() {
    let cluster = Cluster::start().await;
    let daemon = Daemon::start(cluster.admin()).await;
    let http = Endpoint::new("http", &daemon.http);
    let https = Endpoint::new("https", &daemon.https);
    run(&cluster, &[http, https], Some(&daemon)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_end_with_what_is_there_when_the_apiserver_went_away() {
    let cluster = Cluster::start().await;
    let daemon = Daemon::start(cluster.admin()).await;
    run_interrupted(&cluster, &Endpoint::new("http", &daemon.http)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_same_through_informerd() {
    let cluster = Cluster::start().await;
    let daemon = Daemon::start(cluster.admin()).await;
    let direct = Kubectl::new("direct", cluster.admin(), cluster.dir());
    let http = Kubectl::new("http", &daemon.http, cluster.dir());
    let https = Kubectl::new("https", &daemon.https, cluster.dir());
    kubectl::compare(&cluster, &direct, &[http, https], &daemon).await;
    let http = Kubectl::new("http", &daemon.http, cluster.dir());
    tables::served(&direct, &http, &daemon).await;
    // The caches have much by now that is to be kept from others.
    let direct = Kubectl::new("nobody", &cluster.info.kubeconfigs.nobody, cluster.dir());
    let https = Kubectl::new("https", &daemon.https, cluster.dir());
    let https = https.with_token("nobody-through-informerd", "nobody-token").await;
    kubectl::compare_forbidden(&direct, &https).await;
}
