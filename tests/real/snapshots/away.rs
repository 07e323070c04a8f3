//! A daemon that starts while the apiserver is away: it serves nothing of what the last one stored, and confirms and uses it
//! when the apiserver is back.

use super::life::{JSON, Kept, Life, PINNED, sent};
use crate::grpc::fixtures::{client, filtered};
use crate::recovery::Real;
use crate::support::relay::Loss;
use futures_util::future::join_all;
use informerd::apiserver::client::ConfigSource;
use informerd::grpc::pb::v1;
use tonic::Code;

const SERVE: &str = r#"
listen: ["http://127.0.0.1:0", "delegated+https://127.0.0.1:0"]
whileAway: serve
"#;

/// Nobody gets anything, in any way. Each waits for as long as a connection is tried, so all ask at once.
async fn assert_all_is_unanswered(life: &Life, moving: &str) {
    let plain = [moving, "/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps?watch=1", "/api/v1/secrets"]
        .map(|path| async move { life.get(path, JSON).await.assert_unanswered(path) });
    let delegated = life.through.bearer(1, "admin-token");
    let consistency = Some(v1::Consistency {
        bound: Some(v1::consistency::Bound::Any(true)),
        max_staleness: Some(prost_types::Duration { seconds: 86400, nanos: 0 }),
    });
    let request = v1::ListRequest { selection: Some(filtered("configmaps", vec![])), consistency };
    let mut grpc = client(&life.through).await;
    let (_, delegated, refused) =
        tokio::join!(join_all(plain), delegated.get("/api/v1/configmaps"), grpc.list(request));
    delegated.assert_unanswered("delegated");
    let refused = refused.unwrap_err();
    assert!([Code::Unavailable, Code::DeadlineExceeded].contains(&refused.code()), "{refused:?}");
    assert!(!life.through.context.readiness.is_ready());
}

/// The apiserver that is back still has the events since then, unlike one that has started again.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_of_the_network_nothing_is_listed() {
    let real = Real::start().await;
    let source = || ConfigSource::kubeconfig(&real.kubeconfig);
    let moving = "/api/v1/namespaces/default/configmaps";
    for (n, loss) in [(1, Loss::Closed), (2, Loss::Both)] {
        let kept = Kept::new();
        let yaml = format!("{SERVE}{}", kept.yaml(PINNED));
        let first = Life::of(source(), &yaml).await;
        first.through.ready().await;
        kept.written(1).await;
        first.kill().await;
        real.relay.lose(loss);
        let life = Life::of(source(), &yaml).await;
        real.change(n).await;
        assert_all_is_unanswered(&life, moving).await;
        assert_eq!(life.snapshots().await, (0, 0), "{loss:?}: nothing is read before there is somebody to confirm it");
        real.relay.lose(Loss::None);
        life.through.ready().await;
        assert_eq!(life.sent(moving).await, sent(&real.direct.get(moving).await));
        assert!(!life.listed("configmaps").await);
        assert_eq!(life.snapshots().await, (1, 0));
        life.kill().await;
    }
}
