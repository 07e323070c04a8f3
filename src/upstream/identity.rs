//! Which cluster the apiserver belongs to.

use std::time::Duration;

use serde::Deserialize;

use super::proofs::QUESTION_TIMEOUT;
use crate::apiserver::UpstreamError;
use crate::apiserver::client::{CallOptions, KUBE_SYSTEM, Upstream};
use crate::apiserver::metadata::{ACCEPT_OBJECT, DEPTH_OF_METADATA, Item};
use crate::apiserver::metrics::RequestVerb;
use crate::apiserver::reader::{get_json, get_outline};

/// What identifies a cluster and its apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterIdentity {
    /// The uid of the namespace `kube-system`, which lives as long as the cluster.
    pub uid: String,
    /// The `gitVersion` of the apiserver.
    pub version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Version {
    git_version: String,
}

/// The most bytes that are kept of each answer.
const MOST: usize = 1 << 20;

/// Reads the uid of the cluster. This needs permission to get the namespace `kube-system`. The head of the answer must come
/// within `patience`.
///
/// # Errors
/// The apiserver cannot be reached, or refuses.
pub async fn cluster_uid(upstream: &Upstream, patience: Duration) -> Result<String, UpstreamError> {
    let options = CallOptions::new(RequestVerb::Get, "namespaces".to_owned()).header_timeout(patience);
    let depth = DEPTH_OF_METADATA;
    let namespace = get_outline::<Item>(upstream, KUBE_SYSTEM, ACCEPT_OBJECT, &options, (depth, MOST)).await?;
    Ok(namespace.metadata.uid)
}

/// Reads the identity of the cluster, as [`cluster_uid`] does.
///
/// # Errors
/// The apiserver cannot be reached, or refuses.
pub async fn cluster(upstream: &Upstream) -> Result<ClusterIdentity, UpstreamError> {
    let uid = cluster_uid(upstream, QUESTION_TIMEOUT).await?;
    let options = CallOptions::new(RequestVerb::Discovery, "version".to_owned()).header_timeout(QUESTION_TIMEOUT);
    let (_, version) = get_json::<Version>(upstream, "/version", "application/json", &options, MOST).await?;
    Ok(ClusterIdentity { uid, version: version.git_version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::{FakeServer, answer, padded};

    #[tokio::test]
    async fn a_version_has_a_bound() {
        for (bytes, is_read) in [(MOST, true), (MOST + 1, false)] {
            let both = padded(r#"{"metadata":{"uid":"u"},"gitVersion":"v1.36.0"}"#, bytes);
            let server = FakeServer::plain(move |_, _| std::future::ready(answer(200, both.clone()))).await;
            let read = cluster(&Upstream::from_config(server.config()).await.unwrap()).await;
            assert_eq!(read.is_ok_and(|read| read.uid == "u" && read.version == "v1.36.0"), is_read, "{bytes}");
        }
    }
}
