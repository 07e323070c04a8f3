//! The objects of a cluster that people work with.

use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyExt;

use super::Options;
use super::client::{Connection, Protocol, Target};
use super::padding::padding;

pub(crate) const NAMESPACES: usize = 10;
const NODES: usize = 20;
/// In each namespace.
pub(crate) const DEPLOYMENTS: usize = 5;
pub(crate) const CONFIG_MAPS: usize = 10;
const EVENTS: usize = 30;

pub(crate) async fn make(apiserver: &Target, options: &Options) -> anyhow::Result<()> {
    let mut writer = apiserver.connect(Protocol::Http2).await?;
    let mut objects = Vec::new();
    for node in 0..NODES {
        let node =
            format!(r#"{{"metadata":{{"name":"node-{node}","labels":{{"kubernetes.io/hostname":"node-{node}"}}}}}}"#);
        objects.push(("/api/v1/nodes".to_owned(), node));
    }
    for namespace in 0..NAMESPACES {
        let name = format!(r#"{{"metadata":{{"name":"app-{namespace}"}}}}"#);
        post(&mut writer, "/api/v1/namespaces", name).await?;
        let core = format!("/api/v1/namespaces/app-{namespace}");
        for i in 0..DEPLOYMENTS {
            objects.push((
                format!("/apis/apps/v1/namespaces/app-{namespace}/deployments"),
                deployment(&format!("web-{i}")),
            ));
            objects.push((format!("{core}/services"), service(&format!("web-{i}"))));
        }
        for i in 0..CONFIG_MAPS {
            objects.push((format!("{core}/configmaps"), config_map(&format!("conf-{i}"), "0")));
        }
        for i in 0..EVENTS {
            objects.push((format!("{core}/events"), event(namespace, i)));
        }
    }
    for i in 0..options.pods {
        objects.push((format!("/api/v1/namespaces/app-{}/pods", i % NAMESPACES), pod(i, options.pod_bytes)));
    }
    eprintln!("creating {} objects, {} pods of {} bytes among them", objects.len(), options.pods, options.pod_bytes);
    futures_util::stream::iter(objects)
        .map(|(path, body)| {
            let writer = writer.share();
            async move { post(&mut writer?, &path, body).await }
        })
        .buffer_unordered(32)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

pub(crate) async fn post(writer: &mut Connection, path: &str, body: String) -> anyhow::Result<()> {
    writer.send(Method::POST, path, &[], body).await?.into_body().collect().await?;
    Ok(())
}

/// Most of it is its spec, as of a real one.
fn pod(i: usize, bytes: usize) -> String {
    // What the server adds (defaults, status, managedFields) is about 1,900 bytes.
    let padding = padding(i, bytes.saturating_sub(1_900));
    format!(
        r#"{{"metadata":{{"name":"pod-{i:05}","labels":{{"app":"web-{}","tier":"backend"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"main","image":"registry.example/app:{i}","env":[{{"name":"SETTINGS","value":"{padding}"}}]}}]}}}}"#,
        i % 50,
        i % NODES,
    )
}

pub(crate) fn deployment(name: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"spec":{{"replicas":3,"selector":{{"matchLabels":{{"app":"{name}"}}}},"template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":[{{"name":"main","image":"registry.example/app:1"}}]}}}}}}}}"#
    )
}

pub(crate) fn service(name: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"selector":{{"app":"{name}"}},"ports":[{{"port":80}}]}}}}"#)
}

/// About 2 kB, with a text that tells one version from another.
pub(crate) fn config_map(name: &str, version: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"data":{{"settings":"{}","version":"{version}"}}}}"#,
        padding(name.len(), 1_600)
    )
}

fn event(namespace: usize, i: usize) -> String {
    let pod = i * NAMESPACES + namespace;
    format!(
        r#"{{"metadata":{{"name":"pod-{pod:05}.{i}"}},"involvedObject":{{"kind":"Pod","namespace":"app-{namespace}","name":"pod-{pod:05}"}},"reason":"Scheduled","message":"Successfully assigned","type":"Normal","count":1,"lastTimestamp":"2026-11-01T00:00:00Z","firstTimestamp":"2026-11-01T00:00:00Z","source":{{"component":"scheduler"}}}}"#
    )
}
