//! Users of an authenticating listener while nothing is where a real apiserver should be, over TLS and HTTP/2.

use std::time::Duration;

use informerd::apiserver::client::ConfigSource;
use tokio::time::{Instant, sleep};

use crate::access::world::World;
use crate::cluster::Cluster;
use crate::support::client::Watch;
use crate::support::eventually;
use crate::support::relay::{Loss, Relay};

const CONFIG_MAPS: &str = "/api/v1/namespaces/a/configmaps";
/// Long after the time in which an apiserver that does not answer is noticed, and rights count as unseen.
const AWAY: Duration = Duration::from_secs(40);
/// So long after an outage, everything that was kept has been reviewed.
const CONFIRMED: Duration = Duration::from_secs(12);
/// An answer that waits for nobody.
const AT_ONCE: Duration = Duration::from_secs(3);

async fn create(world: &World, name: &str) {
    world.cluster.apply(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: a}}\n")).await;
}

async fn shows(watch: &mut Watch, name: &str) {
    while watch.next_event().await["object"]["metadata"]["name"] != name {}
}

/// Connections are closed and refused, and then a network loses everything.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_ends_no_watch_of_a_known_user() {
    let cluster = Cluster::start().await;
    let relay = Relay::before(cluster.info.server.trim_start_matches("https://").parse().unwrap()).await;
    let text = std::fs::read_to_string(cluster.admin()).unwrap();
    let kubeconfig = cluster.dir().join("relayed.kubeconfig");
    std::fs::write(&kubeconfig, text.replace(&cluster.info.server, &format!("https://{}", relay.address))).unwrap();
    let world = World::between(cluster, ConfigSource::kubeconfig(&kubeconfig), "").await;
    world.settled().await;
    let (known, unknown) = (world.token("space", &[]).await, world.token("wide", &[]).await);
    let client = world.through(Some(&known));
    let old = format!("{CONFIG_MAPS}?resourceVersion=0");
    world.allowed(&client, &old).await;
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    assert!(watch.status == 200 && !watch.is_forwarded());
    let metrics = || world.daemon.daemon.access.metrics();
    for loss in [Loss::Closed, Loss::Both] {
        let (before, after) = (format!("before-{loss:?}").to_lowercase(), format!("after-{loss:?}").to_lowercase());
        create(&world, &before).await;
        shows(&mut watch, &before).await;
        relay.lose(loss);
        let cut = Instant::now();
        eventually("it is noticed", || metrics().keeps.get() == 1).await;
        while cut.elapsed() < AWAY {
            for (token, code) in [(&known, 200), (&unknown, 503)] {
                let begun = Instant::now();
                let answer = world.through(Some(token)).get(&old).await;
                assert_eq!(answer.status.as_u16(), code, "{loss:?}: {}", answer.text());
                assert!(begun.elapsed() < AT_ONCE, "{loss:?} {code}: {:?}", begun.elapsed());
            }
            sleep(Duration::from_secs(1)).await;
        }
        create(&world, &after).await;
        relay.lose(Loss::None);
        shows(&mut watch, &after).await;
        eventually("all is as usual", || metrics().keeps.get() == 0).await;
        assert_eq!(client.get(&old).await.status, 200, "{loss:?}");
        assert_eq!(metrics().streams_unconfirmed.get(), 0, "{loss:?}");
        // What was kept is reviewed within ten seconds, so that it can be kept again.
        sleep(CONFIRMED).await;
    }
    assert!(metrics().kept.get() > 0);
}
