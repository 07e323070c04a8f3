//! Writes the objects to the kube-apiserver.

use anyhow::Context;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::Options;
use super::client::{Connection, Protocol, Target};
use super::others::Kind;
use super::varied::{NAMESPACES, Workload, workload_of};

/// The kube-apiserver with its objects.
pub(crate) struct World {
    pub(crate) apiserver: Target,
    workloads: Vec<Workload>,
    pods: usize,
}

/// A list as it is sent.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Requests at once, and connections that carry them.
pub(crate) const REQUESTS: usize = 32;
pub(crate) const CONNECTIONS: usize = 4;

/// Writes at once while events are measured.
const UPDATES: usize = 4;

pub(crate) const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];

// === impl World ===

impl World {
    pub(crate) async fn make(apiserver: Target, options: &Options) -> anyhow::Result<Self> {
        let workloads: Vec<Workload> =
            (0..options.workloads.unwrap_or(options.pods / 25).max(1)).map(Workload::new).collect();
        let world = Self { apiserver, workloads, pods: options.pods };
        let connections = &connections(&world.apiserver).await?;
        for namespace in NAMESPACES {
            send(&connections[0], Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}}))
                .await?;
        }
        eprintln!("creating {} pods and {} objects of each other kind", options.pods, options.others);
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pods) {
            at_once(options.others, REQUESTS, async |i| {
                let written = kind.make(i, &world.workloads);
                send(&connections[i % CONNECTIONS], Method::POST, &written.path, &written.object).await
            })
            .await
            .with_context(|| format!("creating {}", kind.resource()))?;
        }
        at_once(options.pods, REQUESTS, async |i| {
            let pod = world.workload(i).pod(i);
            let path = Kind::Pods.path_in(&pod.namespace);
            let connection = &connections[i % CONNECTIONS];
            send(connection, Method::POST, &format!("{path}?fieldManager=kube-controller-manager"), &pod.object)
                .await?;
            let status = format!("{path}/{}/status?fieldManager=kubelet", pod.name);
            send(connection, Method::PATCH, &status, &json!({"status": pod.status})).await
        })
        .await
        .context("creating pods")?;
        Ok(world)
    }

    /// Changes a label of so many pods, evenly spaced.
    pub(crate) async fn update(&self, count: usize, value: &str) -> anyhow::Result<()> {
        let connections = &connections(&self.apiserver).await?;
        at_once(count, UPDATES, async |i| {
            let number = i * self.pods / count;
            let pod = self.workload(number).pod(number);
            let path = format!("{}/{}", Kind::Pods.path_in(&pod.namespace), pod.name);
            send(
                &connections[i % CONNECTIONS],
                Method::PATCH,
                &path,
                &json!({"metadata": {"labels": {"round": value}}}),
            )
            .await
        })
        .await?;
        Ok(())
    }

    fn workload(&self, pod: usize) -> &Workload {
        &self.workloads[workload_of(pod, self.workloads.len())]
    }
}

/// The JSON of all items of a collection.
pub(crate) async fn items(server: &Target, path: &str) -> anyhow::Result<Vec<Bytes>> {
    let body = server.connect(Protocol::Http2).await?.get_text(&format!("{path}?resourceVersion=0")).await?;
    let list: List<'_> = serde_json::from_str(&body)?;
    Ok(list.items.iter().map(|item| Bytes::copy_from_slice(item.get().as_bytes())).collect())
}

/// New ones: the kube-apiserver closes those that are idle for 90 s.
pub(crate) async fn connections(apiserver: &Target) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(apiserver.connect(Protocol::Http2).await?);
    }
    Ok(connections)
}

async fn send(connection: &Connection, method: Method, path: &str, body: &serde_json::Value) -> anyhow::Result<()> {
    let headers = if method == Method::PATCH { &MERGE[..] } else { &[] };
    connection.share()?.send(method, path, headers, body.to_string()).await?.into_body().collect().await?;
    Ok(())
}

pub(crate) async fn at_once<T>(
    count: usize,
    most: usize,
    act: impl AsyncFn(usize) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    futures_util::stream::iter(0..count).map(|i| act(i)).buffer_unordered(most).try_collect().await
}
