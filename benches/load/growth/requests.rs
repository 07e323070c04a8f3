//! What a request and a change cost, by the number of objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::ensure;
use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant};

use super::{Panel, note};
use crate::Options;
use crate::client::{Connection, Protocol};
use crate::cpu::Meter;
use crate::fixture::{Fixture, Server};
use crate::server::{Running, Transport};
use crate::watchers::resource_version;

const OBJECT_BYTES: usize = 2_500;
const LIST: &str = "/api/v1/pods?resourceVersion=0";
/// As kubectl asks: of the newest state.
const PAGE: &str = "/api/v1/pods?limit=500";
/// Objects that are got, and objects that are changed.
const GETS: usize = 1_000;
const CHANGES: usize = 300;
/// Clients at once, but for complete lists.
const USERS: usize = 8;
/// So much CPU time can be measured.
const ENOUGH: f64 = 1.0;
/// The longest time for one measurement; the requests that run then still end.
const LONGEST: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(20);

pub(crate) async fn measure(fixture: &mut Fixture, panels: &mut Vec<Panel>, options: &Options) -> anyhow::Result<()> {
    let numbers: &[usize] = if options.small { &[100, 600, 1_000] } else { &[1_000, 5_000, 10_000, 50_000] };
    // Objects are packed some seconds after the start, which would fall into some measurements and not into others.
    let flags: &[&str] = &["--memory-form", "plain"];
    let informerd =
        Server::Informerd { name: "informerd", binary: options.informerd(), transport: Transport::Tls, flags };
    let mut created = 0;
    for objects in numbers.iter().copied() {
        fixture.create_pods(created..objects, OBJECT_BYTES).await?;
        created = objects;
        for server in [&Server::Apiserver, &informerd] {
            let running = fixture.start(server).await?;
            running.wait_until_cached("/api/v1/pods?resourceVersion=0&limit=1").await?;
            let gets = (0..GETS).map(|n| format!("{}?resourceVersion=0", path(n * objects / GETS))).collect();
            let mut noted = |title, cost| note(panels, title, server.name(), objects, cost);
            noted("a list of all objects", served(&running, 1, [LIST.to_owned()].into()).await);
            noted("a page of 500", served(&running, USERS, [PAGE.to_owned()].into()).await);
            noted("a get", served(&running, USERS, gets).await);
            if let Server::Informerd { .. } = server {
                let (written, taken_in) = changes(fixture, &running, objects).await?;
                let title = "a change: written, or taken in";
                note(panels, title, Server::Apiserver.name(), objects, Ok(written));
                note(panels, title, server.name(), objects, Ok(taken_in));
            }
        }
    }
    Ok(())
}

/// The path of a pod.
fn path(number: usize) -> String {
    format!("/api/v1/namespaces/load/pods/pod-{number:06}")
}

/// The same as [`cost`], if the server has answered everything itself.
async fn served(server: &Running, users: usize, paths: Arc<[String]>) -> anyhow::Result<f64> {
    let before = server.forwarded().await?;
    let cost = cost(server, users, paths).await?;
    let after = server.forwarded().await?;
    let more = after.iter().map(|(reason, count)| (reason, count - before.get(reason).unwrap_or(&0)));
    let more: Vec<_> = more.filter(|(_, count)| *count > 0).collect();
    ensure!(more.is_empty(), "reads were forwarded, by reason: {more:?}");
    Ok(cost)
}

/// Microseconds of CPU for each request. Users take the paths one after the other, and begin again.
async fn cost(server: &Running, users: usize, paths: Arc<[String]>) -> anyhow::Result<f64> {
    let (taken, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let mut connections = Vec::new();
    for _ in 0..users {
        let mut connection = server.target.connect(Protocol::Http2).await?;
        read(&mut connection, &paths[0]).await?;
        connections.push(connection);
    }
    let (meter, started) = (Meter::start(server.target.pid)?, Instant::now());
    let mut reading = Vec::new();
    for mut connection in connections {
        let (taken, stop, paths) = (Arc::clone(&taken), Arc::clone(&stop), Arc::clone(&paths));
        reading.push(informerd::lifecycle::spawn("load-reader", async move {
            while !stop.load(Ordering::Relaxed) {
                let index = taken.fetch_add(1, Ordering::Relaxed);
                read(&mut connection, &paths[index % paths.len()]).await?;
            }
            anyhow::Ok(())
        }));
    }
    while meter.seconds()? < ENOUGH && started.elapsed() < LONGEST {
        tokio::time::sleep(LOOK).await;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in reading {
        reader.await??;
    }
    Ok(meter.seconds()? * 1e6 / taken.load(Ordering::Relaxed) as f64)
}

async fn read(connection: &mut Connection, path: &str) -> anyhow::Result<()> {
    let mut body = connection.get(path).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

/// Microseconds of CPU for each change: of the kube-apiserver, which writes it, and of the server that takes it in.
async fn changes(fixture: &mut Fixture, follower: &Running, objects: usize) -> anyhow::Result<(f64, f64)> {
    let mut reader = follower.target.connect(Protocol::Http2).await?;
    let (written, taken_in) = (Meter::start(fixture.apiserver().pid)?, Meter::start(follower.target.pid)?);
    let writer = fixture.writer();
    let mut last = String::new();
    for n in 0..CHANGES {
        let path = path(n * objects / CHANGES);
        let patch = format!(r#"{{"metadata":{{"annotations":{{"change":"{objects}-{n}"}}}}}}"#);
        let headers = [("content-type", "application/merge-patch+json")];
        let body = writer.send(Method::PATCH, &path, &headers, patch).await?.into_body().collect().await?;
        let rv = resource_version(std::str::from_utf8(&body.to_bytes())?)?;
        last = format!("{path}?resourceVersion={rv}");
    }
    let written = written.seconds()?;
    // The answer waits until the follower has the change.
    read(&mut reader, &last).await?;
    let each = |seconds: f64| seconds * 1e6 / CHANGES as f64;
    Ok((each(written), each(taken_in.seconds()?)))
}
