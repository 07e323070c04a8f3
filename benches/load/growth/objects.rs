//! Requests and changes by the number of objects.

use std::sync::Arc;

use anyhow::{Context, ensure};
use http::Method;
use http_body_util::BodyExt;

use super::Options;
use super::cost::{Requests, micros};
use super::numbers::{Line, Numbers};
use crate::client::{Protocol, Target};
use crate::cpu::Meter;
use crate::fixture::{Fixture, Server};
use crate::server::{Running, Transport};
use crate::watchers::resource_version;

const LIST: &str = "/api/v1/pods?resourceVersion=0";
/// As kubectl asks: of the newest state.
const FIRST_PAGE: &str = "/api/v1/pods?limit=500";
const PAGE: usize = 500;
const CHANGES: usize = 300;
const USERS: usize = 8;
const GETS: usize = 1_000;

pub(crate) async fn measure(fixture: &mut Fixture, numbers: &mut Numbers, options: &Options) -> anyhow::Result<()> {
    let servers = servers();
    let mut created = 0;
    for objects in options.growth_objects.iter().copied() {
        fixture.create_pods(created..objects, options.growth_object_bytes).await?;
        created = created.max(objects);
        for (protocol, server) in &servers {
            let running = fixture.start(server).await?;
            running.wait_until_cached("/api/v1/pods?resourceVersion=0&limit=1").await?;
            let row = server.row(*protocol);
            let protocol = *protocol;
            let one = |path: String, users| Requests { protocol, users, paths: Arc::new([path]) };
            let list = micros(&running, &one(LIST.into(), 1)).await?;
            line(&mut numbers.list, &row).add(objects, list);
            if matches!(server, Server::Nginx) {
                continue;
            }
            let forwarded = running.served().await?.1;
            line(&mut numbers.first_page, &row).add(objects, micros(&running, &one(FIRST_PAGE.into(), USERS)).await?);
            if objects >= 2 * PAGE {
                let path = middle_page(&running, objects).await?;
                line(&mut numbers.middle_page, &row).add(objects, micros(&running, &one(path, USERS)).await?);
            }
            let paths = (0..GETS).map(|n| format!("{}?resourceVersion=0", path(n * objects / GETS))).collect();
            let gets = Requests { protocol, users: USERS, paths };
            line(&mut numbers.get, &row).add(objects, micros(&running, &gets).await?);
            ensure!(running.served().await?.1 == forwarded, "{row}: reads were forwarded");
            if matches!(server, Server::Informerd { transport: Transport::Tls, .. }) {
                let (written, followed) = changes(fixture, &running, objects).await?;
                line(&mut numbers.change, &Server::Apiserver.row(protocol)).add(objects, written);
                line(&mut numbers.change, &row).add(objects, followed);
            }
        }
    }
    Ok(())
}

fn servers() -> Vec<(Protocol, Server)> {
    // Objects are packed some seconds after the start, which would fall into some measurements and not into others.
    let informerd = |transport| Server::informerd("informerd", transport, &["--memory-form", "plain"]);
    let mut servers = vec![
        (Protocol::Http2, Server::Apiserver),
        (Protocol::Http2, informerd(Transport::Tls)),
        (Protocol::Http1, informerd(Transport::Plain)),
    ];
    servers.extend(Server::nginx().map(|nginx| (Protocol::Http1, nginx)));
    servers
}

fn line<'a>(lines: &'a mut Vec<Line>, server: &str) -> &'a mut Line {
    let index = lines.iter().position(|line| line.server == server).unwrap_or_else(|| {
        lines.push(Line::new(server.to_owned()));
        lines.len() - 1
    });
    &mut lines[index]
}

/// The path of a pod.
fn path(number: usize) -> String {
    format!("/api/v1/namespaces/load/pods/pod-{number:06}")
}

/// The path of the page in the middle, as the pages before name it.
async fn middle_page(server: &Running, objects: usize) -> anyhow::Result<String> {
    let mut connection = server.target.connect(Protocol::Http2).await?;
    let mut path = FIRST_PAGE.to_owned();
    for _ in 0..objects / PAGE / 2 {
        let page: serde_json::Value = serde_json::from_str(&connection.get_text(&path).await?)?;
        let token = page["metadata"]["continue"].as_str().context("the list ends early")?;
        path = format!("{FIRST_PAGE}&continue={token}");
    }
    Ok(path)
}

/// Microseconds of CPU for each change: of the kube-apiserver, which writes it, and of a server that follows.
async fn changes(fixture: &mut Fixture, follower: &Running, objects: usize) -> anyhow::Result<(f64, f64)> {
    let apiserver: Target = fixture.apiserver().clone();
    let mut reader = follower.target.connect(Protocol::Http2).await?;
    let writer = fixture.writer();
    let mut last = (String::new(), 0);
    let (written, followed) = (Meter::start(apiserver.pid)?, Meter::start(follower.target.pid)?);
    for n in 0..CHANGES {
        let path = path(n * objects / CHANGES);
        let patch = format!(r#"{{"metadata":{{"annotations":{{"change":"{objects}-{n}"}}}}}}"#);
        let headers = [("content-type", "application/merge-patch+json")];
        let body = writer.send(Method::PATCH, &path, &headers, patch).await?.into_body().collect().await?;
        last = (path, resource_version(std::str::from_utf8(&body.to_bytes())?)?);
    }
    let written = written.seconds()?;
    // The answer waits until the follower has the change.
    let (path, rv) = last;
    reader.get_text(&format!("{path}?resourceVersion={rv}")).await?;
    let each = |seconds: f64| seconds * 1e6 / CHANGES as f64;
    Ok((each(written), each(followed.seconds()?)))
}
