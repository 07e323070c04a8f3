//! A thousand identities at once: reviews are few at a time, and as many as there are questions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use http::Method;
use informerd::config::Config;
use informerd::lifecycle;
use serde_json::json;

use crate::access::rights::{binding, group};
use crate::access::world::World;
use crate::support::client::Client;

const CROWD: usize = 1000;
const TARGET: &str = "/api/v1/namespaces/a/configmaps?resourceVersion=0";

async fn all(clients: &Arc<Vec<Client>>, target: &'static str) {
    let tasks: Vec<_> = (0..clients.len())
        .map(|n| {
            let clients = clients.clone();
            lifecycle::spawn("one", async move {
                let answer = clients[n].get(target).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_identities() {
    // All is remembered for as long as this takes, which is longer than a configuration may say.
    let change = |config: &mut Config| config.auth.token_ttl = Duration::from_secs(600);
    let (world, faulty) = World::faulty("consistentReads: cache\n", change).await;
    let crowd = group("system:serviceaccounts:a");
    world.cluster.apply(&binding("", "crowd", ("ClusterRole", "wide"), &[crowd])).await;
    let admin = world.admin();
    let tokens: Vec<String> = stream::iter(0..CROWD)
        .map(|n| {
            let admin = admin.clone();
            async move {
                let path = "/api/v1/namespaces/a/serviceaccounts";
                admin.write(Method::POST, path, &json!({"metadata": {"name": format!("crowd-{n}")}})).await;
                let path = format!("{path}/crowd-{n}/token");
                let request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}});
                let answer = admin.write(Method::POST, &path, &request).await;
                answer["status"]["token"].as_str().unwrap().to_owned()
            }
        })
        .buffer_unordered(20)
        .collect()
        .await;
    world.settled().await;
    world.warm(&["/api/v1/configmaps"]).await;
    // On a slow machine a newcomer that is not authenticated within 5 s has to leave for another one.
    let one = world.through(None).resending();
    one.get("/version").await;
    let clients = Arc::new(tokens.iter().map(|token| one.with_token(token)).collect::<Vec<_>>());
    let metrics = world.daemon.daemon.access.metrics().clone();

    // On a slow machine a question may not have its turn in time. Then its read is forwarded, and it is asked with the next
    // one. While rights settle, each access is asked about once more at each of a few times. The times between grow.
    let (mut rounds, mut tokens) = (0, 0);
    loop {
        let (seen, served) = (faulty.seen(), world.served());
        all(&clients, TARGET).await;
        rounds += 1;
        let asked = (faulty.seen().0 - seen.0, faulty.seen().1 - seen.1);
        let served = world.served() - served;
        assert!(asked.0 <= CROWD && asked.1 <= CROWD && rounds < 60, "{asked:?} in round {rounds}");
        assert!(rounds > 1 || served < CROWD as u64 || asked == (CROWD, CROWD), "{asked:?}: each is asked about once");
        tokens += asked.0;
        if asked == (0, 0) {
            assert_eq!(served, CROWD as u64, "all is remembered");
            break;
        }
    }
    // Those under way when their time was over are asked again.
    assert!((CROWD..=CROWD + 32 * rounds).contains(&tokens), "{tokens} questions about {CROWD} tokens");
    // A question that was given up is still under way at the other side for a moment.
    let abandoned = usize::try_from(metrics.reviews_abandoned.get()).unwrap();
    assert!(faulty.peak() <= 32 + abandoned, "{} at a time, {abandoned} given up", faulty.peak());
    assert_eq!(metrics.reviews_peak.get(), 32, "the bound was reached, and kept");
    assert_eq!(metrics.review_overflows.get(), 0);

    // One identity that asks a thousand things at once that are one.
    let before = faulty.seen();
    let same = Arc::new(vec![world.through(Some("reader-token")); CROWD]);
    all(&same, TARGET).await;
    let asked = (faulty.seen().0 - before.0, faulty.seen().1 - before.1);
    assert!(asked.0 == 1 && asked.1 <= 2, "equal questions are asked once: {asked:?}");
}
