//! The real binary told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use informerd::lifecycle::drain::DrainEnd;
use informerd_sim::{self as sim, Server};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::fixtures::{CONFIG_MAPS, RawConnection, admin_at, config_map, next_event};
use crate::support::Through;
use crate::support::client::{Client, Watch, rv};
use crate::support::tied;
use crate::support::until;

/// A running `informerd` on free ports.
struct Binary {
    child: Child,
    url: String,
    admin: SocketAddr,
    /// Its log, read so that the pipe never fills.
    _log: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Binary {
    async fn start(server: &Server, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, sim::kubeconfig("sim", &server.url())).unwrap();
        let mut child = command(&kubeconfig).args(flags).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut url, mut admin) = (None, None);
        while let (None, _) | (_, None) = (&url, &admin) {
            let line = timeout(Duration::from_secs(30), lines.next_line()).await.expect("it starts").unwrap();
            let line: Value = serde_json::from_str(&line.expect("it has not ended")).unwrap();
            // The fields stand beside the message or in an object of their own.
            let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
            let address = fields["address"].as_str().map(ToOwned::to_owned);
            match fields["message"].as_str() {
                Some("serving") => url = address,
                Some("admin") => admin = address.map(|address| address.parse().unwrap()),
                _ => {}
            }
        }
        let log = informerd::lifecycle::spawn("log", async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let binary = Self { child, url: url.unwrap(), admin: admin.unwrap(), _log: log, _directory: directory };
        until("it is ready", async || admin_at(binary.admin, "/readyz").await.0 == 200).await;
        binary
    }

    async fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        let status = tied::command("kill").args(["-s", name, &pid]).status().await.unwrap();
        assert!(status.success());
    }

    async fn ended(&mut self, within: Duration) -> ExitStatus {
        timeout(within, self.child.wait()).await.expect("the process ends").unwrap()
    }
}

fn command(kubeconfig: &Path) -> Command {
    let mut command = tied::command(env!("CARGO_BIN_EXE_informerd"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("INFORMERD_") {
            command.env_remove(name);
        }
    }
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--listen", "http://127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// What a watch says until its end, which has to be a clean one; and when that was.
async fn to_the_end(mut watch: Watch) -> (Vec<Value>, Instant) {
    let mut events = Vec::new();
    let end = timeout(Duration::from_secs(30), async {
        while let Some(event) = watch.next().await.expect("a clean end: the last chunk, or the end of the stream") {
            events.push(event);
        }
    });
    end.await.expect("the watch ends");
    (events, Instant::now())
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_end_cleanly_with_a_bookmark_spread_over_the_drain() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let mut binary = Binary::start(&server, &["--drain-spread", "2s"]).await;
    let (http1, http2) = (Client::new(&binary.url), Client::http2(&binary.url));
    let mut watches = Vec::new();
    for n in 0..40 {
        let client = if n % 2 == 0 { &http1 } else { &http2 };
        let bookmarks = n % 4 < 2;
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&allowWatchBookmarks={bookmarks}");
        let mut watch = client.watch(&path).await;
        assert_eq!(next_event(&mut watch).await["object"]["metadata"]["name"], "one");
        watches.push((bookmarks, watch));
    }
    let written = server.create(config_map("a", "two")).unwrap();
    for (_, watch) in &mut watches {
        assert_eq!(rv(&next_event(watch).await["object"]), written);
    }
    // A request whose end has not come when the signal does.
    let mut late = RawConnection::open(&binary.url).await;
    late.say(&format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\n")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;

    let told = Instant::now();
    binary.signal("TERM").await;
    let (status, text) = loop {
        let (status, text) = admin_at(binary.admin, "/readyz").await;
        if status != 200 {
            break (status, text);
        }
        assert!(told.elapsed() < Duration::from_secs(10), "readiness is withdrawn at once");
    };
    assert_eq!((status, text.contains("draining: withdrawn")), (503, true), "{text}");
    let host = binary.url.strip_prefix("http://").unwrap();
    late.say(&format!("Host: {host}\r\n\r\n")).await;
    let refused = late.until("}\n").await.to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 429 ") && refused.contains("retry-after: 1\r\n"), "{refused}");

    let watches = watches.into_iter().map(|(bookmarks, watch)| async move { (bookmarks, to_the_end(watch).await) });
    let mut ends = Vec::new();
    for (bookmarks, (events, at)) in join_all(watches).await {
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        // A regular one may have come before the last one.
        assert!(kinds.iter().all(|kind| *kind == "BOOKMARK"), "{events:?}");
        assert_eq!(!kinds.is_empty(), bookmarks, "{events:?}");
        assert!(events.last().is_none_or(|event| rv(&event["object"]) == written), "{events:?}");
        ends.push(at.saturating_duration_since(told));
    }
    ends.sort();
    let (first, last) = (ends[0], ends[ends.len() - 1]);
    assert!(last - first > Duration::from_millis(700), "spread: from {first:?} to {last:?}");
    // By the spread, long before the deadline would cut them.
    assert!(last < Duration::from_secs(15), "{last:?}");
    let status = binary.ended(Duration::from_secs(15)).await;
    assert_eq!(status.code(), Some(0), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_anything_open_the_end_comes_at_once() {
    let server = Server::builder().start().await.unwrap();
    for name in ["TERM", "INT"] {
        let mut binary = Binary::start(&server, &[]).await;
        // An idle connection that was kept open is no reason to stay.
        let client = Client::new(&binary.url);
        client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        binary.signal(name).await;
        assert_eq!(binary.ended(Duration::from_secs(3)).await.code(), Some(0), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let mut binary = Binary::start(&server, &["--drain-spread", "20s"]).await;
    let client = Client::new(&binary.url);
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0");
    let mut watches = Vec::new();
    for _ in 0..20 {
        let mut watch = client.watch(&path).await;
        next_event(&mut watch).await;
        watches.push(watch);
    }
    let told = Instant::now();
    binary.signal("TERM").await;
    let unready = async { while admin_at(binary.admin, "/readyz").await.0 == 200 {} };
    crate::support::within("the drain has begun", unready).await;
    binary.signal("INT").await;
    // Long before the watches would have been spread out.
    let status = binary.ended(Duration::from_secs(12)).await;
    assert!(told.elapsed() < Duration::from_secs(15), "{:?}", told.elapsed());
    assert_eq!(status.code(), Some(0), "asked for, so no failure: {status}");
}

/// A client that never goes away does not keep the process: past the soft deadline it is cut.
#[tokio::test(flavor = "multi_thread")]
async fn past_the_deadline_connections_are_cut() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let flags = ["--drain-spread", "500ms", "--drain-timeout", "2s"];
    let mut binary = Binary::start(&server, &flags).await;
    // A stream that nobody reads, more than its buffers hold.
    let mut object = config_map("a", "big");
    object["data"] = serde_json::json!({"text": "x".repeat(1 << 20)});
    for n in 0..16 {
        object["metadata"]["name"] = format!("big-{n}").into();
        server.create(object.clone()).unwrap();
    }
    let mut raw = RawConnection::open(&binary.url).await;
    let host = binary.url.strip_prefix("http://").unwrap();
    raw.say(&format!("GET {CONFIG_MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    raw.until("\"ADDED\"").await;
    let told = Instant::now();
    binary.signal("TERM").await;
    let status = binary.ended(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(0), "{status}");
    let took = told.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(15), "{took:?}");
}

/// What the apiserver watches for us ends with us, too: cleanly, and long before the drain's deadline.
#[tokio::test(flavor = "multi_thread")]
async fn forwarded_watches_end_cleanly() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let through = Through::before(
        &server,
        "resources: [{resource: configmaps, exclude: true}]\ndrain: { timeout: 60s, spread: 500ms }\n",
    )
    .await;
    through.ready().await;
    let mut watches = Vec::new();
    for client in [Client::new(&through.url), Client::http2(&through.url)] {
        let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
        assert_eq!(next_event(&mut watch).await["object"]["metadata"]["name"], "one");
        watches.push(watch);
    }
    assert_eq!(through.daemon.http.requests_served.get(), 0, "they are forwarded");
    let ends = join_all(watches.into_iter().map(to_the_end));
    let (ends, drained) = tokio::join!(ends, through.stop(Duration::from_secs(60)));
    assert!(ends.iter().all(|(events, _)| events.is_empty()), "{ends:?}");
    assert_eq!(drained, DrainEnd::Clean);
    assert_eq!(through.daemon.http.watches_drained.get(), 2);
}
