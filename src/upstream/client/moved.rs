//! Whether a new configuration still leads to the cluster of the old one.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::Request;
use serde::Deserialize;
use tokio::time::timeout;

use super::generation::Generation;
use super::{CallOptions, Identity, RequestVerb, Upstream, empty};

/// Lives as long as its cluster.
const PATH: &str = "/api/v1/namespaces/kube-system";
/// Timeout of both requests together. The configuration is not read by anybody else meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum size of an answer, in bytes.
const MOST: usize = 1 << 20;

#[derive(Debug, Default, Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    uid: String,
}

/// Whether both certainly lead to one cluster: they name the same server, or both servers have the same namespace
/// `kube-system`. A server whose CA has nothing in common with the one before counts as another server: clusters on a
/// laptop are created again at the same address.
pub(super) fn is_same_cluster<'a>(
    upstream: &'a Upstream,
    old: &'a Generation,
    new: &'a Generation,
) -> BoxFuture<'a, bool> {
    async move {
        if is_same_server(old, new) {
            return true;
        }
        let both = async { tokio::join!(uid(upstream, old), uid(upstream, new)) };
        matches!(timeout(PATIENCE, both).await, Ok((Some(old), Some(new))) if old == new)
    }
    .boxed()
}

fn is_same_server(old: &Generation, new: &Generation) -> bool {
    let (before, now) = (&old.certificates.authorities, &new.certificates.authorities);
    let is_trusted = before.is_empty() || now.is_empty() || before.iter().any(|authority| now.contains(authority));
    old.base == new.base && old.prefix == new.prefix && is_trusted
}

async fn uid(upstream: &Upstream, generation: &Generation) -> Option<String> {
    let options = CallOptions::new(RequestVerb::Get, "namespaces");
    let request = upstream.prepare(generation, Identity::Own, Request::get(PATH).body(empty()).ok()?, &options).await;
    let answer = generation.own.send(request.ok()?, &options).await;
    let body = answer.ok().filter(|answer| answer.status().is_success())?.into_body();
    let text = http_body_util::BodyExt::collect(http_body_util::Limited::new(body, MOST)).await.ok()?.to_bytes();
    serde_json::from_slice::<Namespace>(&text).ok().map(|it| it.metadata.uid).filter(|uid| !uid.is_empty())
}

#[cfg(test)]
#[path = "moved_tests.rs"]
mod tests;
