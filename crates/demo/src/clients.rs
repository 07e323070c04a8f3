//! The clients of one side of the demo. They speak to the daemon, or to an apiserver directly, as any other program would.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use informerd_api::v1;
use informerd_cli::{Connection, Target};
use informerd_lifecycle::drain::DrainWatch;
use informerd_lifecycle::spawn;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::tally::{Tally, Wants};

/// The longest wait for the headers of an answer, and for a whole list.
const PATIENCE: Duration = Duration::from_secs(30);
/// Before a client connects again.
const PAUSE: Duration = Duration::from_secs(1);

/// Group and plural name of what the watchers watch, in turn. All are served as `v1`.
const WATCHED: [(&str, &str); 10] = [
    ("", "pods"),
    ("", "nodes"),
    ("discovery.k8s.io", "endpointslices"),
    ("", "pods"),
    ("", "services"),
    ("apps", "deployments"),
    ("", "pods"),
    ("apps", "replicasets"),
    ("demo.informerd.io", "widgets"),
    ("", "pods"),
];
/// How client-go's reflectors begin: the state, a bookmark, and then every change.
const WATCH: &str = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");

/// Each list is read by this many clients. Tables are read by one.
const LIST_LOOPS: usize = 3;

/// A client that lists the same thing again and again.
#[derive(Clone, Copy)]
struct ListLoop {
    path: &'static str,
    wants: Wants,
    every: Duration,
    /// Whether it takes tables, as kubectl does.
    tables: bool,
}

const LISTS: [ListLoop; 5] = [
    ListLoop::new("/api/v1/namespaces/team-1/pods?resourceVersion=0", Wants::Any, 1),
    ListLoop::new("/api/v1/nodes?resourceVersion=0", Wants::Any, 1),
    ListLoop::new("/apis/apps/v1/deployments", Wants::Newest, 2),
    ListLoop::new("/api/v1/services", Wants::Newest, 2),
    ListLoop { tables: true, ..ListLoop::new("/api/v1/namespaces/team-1/pods?limit=500", Wants::Newest, 2) },
];

/// The clients, ready to start.
pub(super) struct Clients {
    pub(super) target: Target,
    /// An apiserver has no gRPC. The consumer then watches the same over HTTP.
    pub(super) grpc: bool,
    pub(super) watchers: u32,
    pub(super) tally: Arc<Tally>,
}

/// The resources that the clients read, without repetitions.
pub fn resources() -> Vec<(&'static str, &'static str)> {
    let mut all = WATCHED.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

// === impl Clients ===

impl Clients {
    /// The clients in words.
    pub(super) fn describe(watchers: u32) -> String {
        let loops = LISTS.iter().filter(|list| !list.tables).count() * LIST_LOOPS;
        format!("{watchers} watchers, {loops} list loops, 1 reader of tables (as kubectl), 1 gRPC consumer")
    }

    /// Whether the watches of all clients are open.
    pub(super) fn all_watch(&self) -> bool {
        self.tally.reads().open > u64::from(self.watchers)
    }

    /// Starts all clients. They end with the drain.
    pub(super) fn start(&self, drain: &DrainWatch) {
        for (group, resource) in WATCHED.iter().cycle().take(self.watchers as usize) {
            let prefix = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
            let (target, tally) = (self.target.clone().named("demo-watcher"), self.tally.clone());
            let path = format!("{prefix}/{resource}?{WATCH}");
            until_drain(drain, async move {
                loop {
                    // It connects again, whatever the reason was.
                    watch(&target, &path, &tally).await.ok();
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        let all = LISTS.iter().flat_map(|list| std::iter::repeat_n(*list, if list.tables { 1 } else { LIST_LOOPS }));
        for list in all {
            let (target, tally) = (
                self.target.clone().named(if list.tables { "demo-tables" } else { "demo-lister" }),
                self.tally.clone(),
            );
            until_drain(drain, async move { list.run(&target, &tally).await });
        }
        let (target, tally, grpc) = (self.target.clone().named("demo-consumer"), self.tally.clone(), self.grpc);
        until_drain(drain, async move {
            loop {
                if grpc {
                    consume(&target, &tally).await.ok();
                } else {
                    watch(&target, &format!("/api/v1/pods?{WATCH}"), &tally).await.ok();
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

fn until_drain(drain: &DrainWatch, client: impl Future<Output = ()> + Send + 'static) {
    let drain = drain.clone();
    spawn("demo client", async move {
        tokio::select! {
            () = drain.draining() => {}
            () = client => {}
        }
    });
}

/// One watch over HTTP, until it ends.
async fn watch(target: &Target, path: &str, tally: &Arc<Tally>) -> io::Result<()> {
    let mut connection = Connection::open(target).await?;
    let headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
    let mut answer = timeout(PATIENCE, connection.get(path, &headers)).await??;
    if !answer.status().is_success() {
        return Ok(());
    }
    let _open = tally.opened();
    while let Some(frame) = answer.body_mut().frame().await {
        frame.map_err(io::Error::other)?;
    }
    Ok(())
}

/// One watch of pods over gRPC, until it ends.
async fn consume(target: &Target, tally: &Arc<Tally>) -> Result<(), tonic::Status> {
    let connection = Connection::open(target).await?;
    let resource = v1::Resource { version: "v1".to_owned(), resource: "pods".to_owned(), ..Default::default() };
    let selection = v1::Selection { resource: Some(resource), shape: v1::Shape::Full.into(), ..Default::default() };
    let request = v1::WatchRequest { selection: Some(selection), ..Default::default() };
    let mut client = connection.objects();
    let late = |_elapsed| tonic::Status::deadline_exceeded("no answer");
    let mut frames = timeout(PATIENCE, client.watch(request)).await.map_err(late)??.into_inner();
    let _open = tally.opened();
    while frames.message().await?.is_some() {}
    Ok(())
}

// === impl ListLoop ===

impl ListLoop {
    const fn new(path: &'static str, wants: Wants, seconds: u64) -> Self {
        Self { path, wants, every: Duration::from_secs(seconds), tables: false }
    }

    async fn run(self, target: &Target, tally: &Tally) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connection = None;
        loop {
            ticks.tick().await;
            match timeout(PATIENCE, self.list(target, &mut connection)).await {
                Ok(Ok(true)) => tally.answered(self.wants),
                Ok(Ok(false)) => tally.refused(self.wants),
                Ok(Err(_)) | Err(_) => {
                    tally.refused(self.wants);
                    connection = None;
                }
            }
        }
    }

    /// Whether the list was answered. Its body is not kept.
    async fn list(&self, target: &Target, connection: &mut Option<Connection>) -> io::Result<bool> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open(target).await?),
        };
        // Clients in Go take gzip unless they are told not to.
        let gzip = HeaderValue::from_static("gzip");
        let headers = HeaderMap::from_iter([(ACCEPT, if self.tables { TABLE } else { JSON }), (ACCEPT_ENCODING, gzip)]);
        let mut answer = connection.get(self.path, &headers).await?;
        while let Some(frame) = answer.body_mut().frame().await {
            frame.map_err(io::Error::other)?;
        }
        Ok(answer.status().is_success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_is_named_once() {
        let resources = resources();
        assert_eq!(resources.len(), 7);
        assert!(WATCHED.iter().all(|watched| resources.contains(watched)));
        assert!(Clients::describe(50).starts_with("50 watchers, 12 list loops, 1 reader of tables"));
    }
}
