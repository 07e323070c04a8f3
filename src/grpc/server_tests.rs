use super::*;
use crate::apiserver::discovery::Discovery;
use crate::auth::testing::{bearer, judged_by};
use crate::auth::{self, AuthConfig, Mode};
use crate::grpc::call::Caller;
use crate::grpc::pb::v1;
use crate::grpc::queue::QueueConfig;
use crate::grpc::testing::{Nowhere, away, call};
use crate::informer::Factory;
use crate::memory::Pressure;
use crate::reads::{ConsistentReads, ReadsConfig};

const HOUR: Duration = Duration::from_secs(3600);

struct Nothing;

impl Introspect for Nothing {
    fn informers(&self) -> Vec<v1::Informer> {
        Vec::new()
    }
}

#[tokio::test]
async fn streams_of_a_user_without_rights_leave_memory_to_others() {
    let (access, _server) = judged_by(&Arc::default(), &AuthConfig::default()).await;
    let upstream = away().await;
    let factory = Factory::simple(HOUR, upstream.clone(), Discovery::knowing(upstream, Vec::new()));
    let reads = Reads::new(ReadsConfig::simple(ConsistentReads::Auto, HOUR), factory);
    let queues = QueueConfig { linger: HOUR, max_groups: 1, max_deletions: 1 };
    let ledger = Ledger::new(1 << 20, Pressure::default());
    let grpc = Grpc::new(GrpcParts {
        reads: reads.clone(),
        cluster: Arc::new(Nowhere),
        groups: Groups::new(queues, reads, DrainWatch::never()),
        informers: Arc::new(Nothing),
        readiness: Registry::new(),
        drain: DrainWatch::never(),
        drain_spread: Duration::ZERO,
        ledger: ledger.clone(),
        stall_guards: StallGuards::default(),
        metrics: Arc::default(),
    });
    let open = async |token: &str| {
        let (path, headers) = ("/informerd.v1.Objects/Sync", bearer(token));
        let of = auth::Caller { mode: Mode::Delegated, certificates: None, headers: &headers, may_impersonate: false };
        let caller = Caller::new(access.clone(), call(path), &of, &ledger).ok()?;
        let request = Request::post(path).header("content-type", "application/grpc").extension(caller);
        let request = request.extension(Retiring(DrainWatch::never())).body(tonic::body::Body::empty()).unwrap();
        Some(grpc.call(request).await).filter(|response| !response.headers().contains_key("grpc-status"))
    };
    let mut streams = Vec::new();
    while let Some(stream) = open("jane").await {
        streams.push(stream);
    }
    let used = ledger.used();
    assert!((370 << 10..=384 << 10).contains(&used), "three eighths, with what is kept of heads: {used}");
    assert!(open("joe").await.is_some(), "another user");
    streams.pop();
    assert!(open("jane").await.is_some(), "there is room");
    drop(streams);
    assert_eq!(ledger.used(), 0);
}
