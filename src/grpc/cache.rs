//! `informerd.v1.Cache`: the running informers and their state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::{Request, Response, Status};

use super::Streamed;
use super::call::{Error, Retiring, Right, access};
use super::messages::convert;
use super::pb::v1;
use super::pb::v1::cache_server::Cache as CacheService;
use crate::lifecycle::drain::DrainWatch;
use crate::meta::ResourceVersion;

const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the state of every informer without waiting for any of them.
pub trait Introspect: Send + Sync + 'static {
    fn informers(&self) -> Vec<v1::Informer>;
}

/// The service.
pub(super) struct Cache {
    pub(super) informers: Arc<dyn Introspect>,
    pub(super) drain: DrainWatch,
}

/// The fields that identify an informer.
type Identity = (String, String, String, String, String, String, i32);

/// A client that watches the informers.
struct Following {
    informers: Arc<dyn Introspect>,
    right: Right,
    drain: DrainWatch,
    retiring: Retiring,
    tick: Interval,
    /// The last state sent for each informer.
    told: Option<BTreeMap<Identity, v1::Informer>>,
}

#[tonic::async_trait]
impl CacheService for Cache {
    async fn list_informers(
        &self,
        request: Request<v1::ListInformersRequest>,
    ) -> Result<Response<v1::ListInformersResponse>, Status> {
        let grants = access::authorize_call(&access::caller(request.extensions())?).await?;
        let informers = by_identity(self.informers.informers()).into_values().collect();
        grants.complete();
        Ok(Response::new(v1::ListInformersResponse { informers }))
    }

    async fn freshness(
        &self,
        request: Request<v1::FreshnessRequest>,
    ) -> Result<Response<v1::FreshnessResponse>, Status> {
        let mut grants = access::authorize_call(&access::caller(request.extensions())?).await?;
        let gvr = convert::gvr(request.get_ref().resource.as_ref())?;
        let any_version = gvr.version.is_empty();
        let of_resource = |informer: &v1::Informer| {
            let found = informer.resource.as_ref();
            found.is_some_and(|found| {
                *found.group == *gvr.group
                    && *found.resource == *gvr.resource
                    && (any_version || *found.version == *gvr.version)
            })
        };
        let rv = |informer: &v1::Informer| ResourceVersion::parse(&informer.resource_version).unwrap_or_default();
        let informers = self.informers.informers().into_iter().filter(of_resource);
        let behind = informers.min_by_key(|informer| (informer.synced, rv(informer)));
        let behind = grants.recorded(behind.ok_or_else(|| Error::no_informer(&gvr)))?;
        grants.complete();
        Ok(Response::new(v1::FreshnessResponse {
            synced: behind.synced,
            resource_version: behind.resource_version,
            upstream_silence: behind.upstream_silence,
        }))
    }

    type WatchInformersStream = Streamed<v1::WatchInformersResponse>;

    async fn watch_informers(
        &self,
        request: Request<v1::WatchInformersRequest>,
    ) -> Result<Response<Self::WatchInformersStream>, Status> {
        let caller = access::caller(request.extensions())?;
        let retiring = Retiring::of(request.extensions());
        let wanted = convert::span(request.get_ref().interval.as_ref(), "interval")?;
        let right = access::authorize_call(&caller).await?.open();
        let every = wanted.unwrap_or(Duration::from_secs(1)).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let following = Following {
            informers: Arc::clone(&self.informers),
            right,
            drain: self.drain.clone(),
            retiring,
            tick,
            told: None,
        };
        Ok(Response::new(Box::pin(stream::try_unfold(following, |mut following| async move {
            let next = following.next().await?;
            Ok(Some((next, following)))
        }))))
    }
}

// === impl Following ===

impl Following {
    /// Waits for a change and returns the next message.
    async fn next(&mut self) -> Result<v1::WatchInformersResponse, Status> {
        loop {
            tokio::select! {
                biased;
                gone = std::future::poll_fn(|cx| self.right.poll_gone(cx)) => return Err(gone.into()),
                _ = self.tick.tick() => {}
                () = self.drain.draining() => return Err(Error::draining().into()),
                () = self.retiring.wait() => return Err(Error::retired().into()),
            }
            let now = by_identity(self.informers.informers());
            let first = self.told.is_none();
            let before = self.told.replace(now.clone()).unwrap_or_default();
            let stopped: Vec<_> = before
                .iter()
                .filter(|(id, _)| !now.contains_key(*id))
                .map(|(_, informer)| identified(informer))
                .collect();
            let changed = now.into_iter().filter(|(id, informer)| before.get(id).is_none_or(|b| differs(b, informer)));
            let informers: Vec<_> = changed.map(|(_, informer)| informer).collect();
            if first || !informers.is_empty() || !stopped.is_empty() {
                return Ok(v1::WatchInformersResponse { informers, stopped });
            }
        }
    }
}

fn by_identity(informers: Vec<v1::Informer>) -> BTreeMap<Identity, v1::Informer> {
    informers.into_iter().map(|informer| (identity(&informer), informer)).collect()
}

fn identity(informer: &v1::Informer) -> Identity {
    let v1::Resource { group, version, resource } = informer.resource.clone().unwrap_or_default();
    let v1::Informer { namespace, label_selector, field_selector, encoding, .. } = informer.clone();
    (group, version, resource, namespace, label_selector, field_selector, encoding)
}

/// Returns only the fields that identify the informer.
fn identified(informer: &v1::Informer) -> v1::Informer {
    let v1::Informer { resource, namespace, label_selector, field_selector, encoding, .. } = informer.clone();
    v1::Informer { resource, namespace, label_selector, field_selector, encoding, ..Default::default() }
}

/// Whether anything other than the elapsed time differs.
fn differs(before: &v1::Informer, now: &v1::Informer) -> bool {
    v1::Informer { upstream_silence: now.upstream_silence, ..before.clone() } != *now
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::Instant;
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::grpc::testing::caller;
    use crate::lifecycle::drain;

    #[derive(Default)]
    struct Scripted(Mutex<Vec<v1::Informer>>);

    impl Introspect for Scripted {
        fn informers(&self) -> Vec<v1::Informer> {
            self.0.lock().clone()
        }
    }

    fn informer(resource: &str, rv: u64, silence: i64) -> v1::Informer {
        v1::Informer {
            resource: Some(v1::Resource { group: String::new(), version: "v1".into(), resource: resource.into() }),
            synced: rv > 0,
            resource_version: rv.to_string(),
            objects: 3,
            upstream_silence: Some(prost_types::Duration { seconds: silence, nanos: 0 }),
            ..Default::default()
        }
    }

    fn names(informers: &[v1::Informer]) -> Vec<String> {
        informers.iter().map(|informer| informer.resource.clone().unwrap_or_default().resource).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn follows_what_starts_changes_and_stops() {
        let informers = Arc::<Scripted>::default();
        *informers.0.lock() = vec![informer("pods", 5, 0), informer("nodes", 7, 0)];
        let (draining, drain) = drain::channel();
        let tick = interval(Duration::from_secs(1));
        let right = access::authorize_call(&caller()).await.unwrap().open();
        let retiring = Retiring(DrainWatch::never());
        let mut following = Following { informers: informers.clone(), right, drain, retiring, tick, told: None };
        assert_eq!(names(&following.next().await.unwrap().informers), ["nodes", "pods"]);
        // An elapsed time alone is not a change.
        *informers.0.lock() = vec![informer("pods", 5, 9), informer("nodes", 7, 9)];
        assert!(tokio::time::timeout(Duration::from_secs(60), following.next()).await.is_err());
        *informers.0.lock() = vec![informer("pods", 6, 0), informer("services", 1, 0)];
        let changes = following.next().await.unwrap();
        assert_eq!(
            (names(&changes.informers), names(&changes.stopped)),
            (vec!["pods".to_owned(), "services".to_owned()], vec!["nodes".to_owned()])
        );
        assert_eq!(changes.stopped[0].objects, 0);
        draining.start(Duration::from_secs(1));
        assert_eq!(following.next().await.unwrap_err().code(), tonic::Code::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_told_within_a_minute() {
        let informers = Arc::<Scripted>::default();
        let cache = Cache { informers: informers.clone(), drain: DrainWatch::never() };
        for (seconds, told_after) in [(59, 59), (60, 60), (61, 60)] {
            let interval = prost_types::Duration { seconds, nanos: 0 };
            let mut request = Request::new(v1::WatchInformersRequest { interval: Some(interval) });
            request.extensions_mut().insert(caller());
            let (mut told, since) = (cache.watch_informers(request).await.unwrap().into_inner(), Instant::now());
            told.next().await.unwrap().unwrap();
            informers.0.lock().push(informer(&format!("r{seconds}"), 1, 0));
            told.next().await.unwrap().unwrap();
            assert_eq!(since.elapsed().as_secs(), told_after);
        }
    }

    #[tokio::test]
    async fn freshness_is_of_the_informer_furthest_behind() {
        let informers = Arc::<Scripted>::default();
        *informers.0.lock() = vec![informer("pods", 9, 1), informer("pods", 12, 0), informer("nodes", 5, 0)];
        let cache = Cache { informers: informers.clone(), drain: DrainWatch::never() };
        let freshness = |resource| {
            let mut request = Request::new(v1::FreshnessRequest { resource });
            request.extensions_mut().insert(caller());
            cache.freshness(request)
        };
        let ask = |resource: &str| freshness(informer(resource, 0, 0).resource);
        let answer = ask("pods").await.unwrap().into_inner();
        assert_eq!((answer.synced, answer.resource_version.as_str()), (true, "9"));
        informers.0.lock().push(informer("pods", 0, 30));
        assert!(!ask("pods").await.unwrap().into_inner().synced);
        assert_eq!(ask("services").await.unwrap_err().code(), tonic::Code::NotFound);
        assert_eq!(freshness(None).await.unwrap_err().code(), tonic::Code::InvalidArgument);
        let nobody = cache.freshness(Request::new(v1::FreshnessRequest::default())).await;
        assert_eq!(nobody.unwrap_err().code(), tonic::Code::Unauthenticated);
    }
}
