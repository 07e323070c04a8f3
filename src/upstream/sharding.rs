//! Finds out whether the apiserver evaluates shard selectors (KEP-5866, behind the gate ShardedListAndWatch).
//!
//! If the gate is off, or before version 1.36, it ignores the parameter. The answer to one small list shows which of
//! the two it does: lists of a shard repeat their selector.

use std::time::Duration;

use moka::Expiry;
use moka::future::Cache;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::apiserver::UpstreamError;
use crate::apiserver::client::{CallOptions, RequestVerb, Upstream};
use crate::apiserver::reader::get_outline;
use crate::meta::{Gvr, Origin, Resource};

/// How the apiserver treats shard selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardSupport {
    /// It ignores the parameter.
    Ignored,
    Evaluated {
        /// Whether a page contains the number of remaining objects, in all shards, if there is no other selector:
        /// version 1.36 does, later ones do not. `None` if there were too few objects to tell.
        counts: Option<bool>,
    },
    /// The apiserver did not say.
    Unknown,
}

/// Asks the apiserver when a caller wants to know, and remembers the answer.
pub struct Sharding {
    upstream: Upstream,
    known: Cache<Gvr, ShardSupport>,
}

/// How long an answer is valid: an apiserver that is restarted may have other gates.
const VALID: Duration = Duration::from_secs(60);
/// Pause after a question that was not answered.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum time that readers wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is kept of a list of one object, which may have any size: the depth of `metadata.shardInfo`, and so many bytes.
const KEPT: (usize, usize) = (3, 1 << 20);
/// More than the number of built-in resources.
const MOST: u64 = 1024;
/// The selector of all objects, in the form in which the apiserver repeats it.
const EVERYTHING: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')";

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    continue_token: String,
    remaining_item_count: Option<i64>,
    shard_info: Option<ShardInfo>,
}

#[derive(Deserialize)]
struct ShardInfo {
    selector: String,
}

/// How long an answer is kept.
struct Validity;

// === impl Sharding ===

impl Sharding {
    pub fn new(upstream: Upstream) -> Self {
        let known = Cache::builder().max_capacity(MOST).expire_after(Validity).build();
        Self { upstream, known }
    }

    /// How the apiserver treats shard selectors for this resource. It is asked at most once a minute per resource.
    /// Takes two seconds at most.
    pub async fn of(&self, resource: &Resource) -> ShardSupport {
        match shown_by(resource) {
            Some(gvr) => self.known.get_with_by_ref(&gvr, self.ask(&gvr)).await,
            None => ShardSupport::Unknown,
        }
    }

    /// Returns the same if it is already known, without asking.
    pub async fn known(&self, resource: &Resource) -> ShardSupport {
        match shown_by(resource) {
            Some(gvr) => self.known.get(&gvr).await.unwrap_or(ShardSupport::Unknown),
            None => ShardSupport::Unknown,
        }
    }

    async fn ask(&self, gvr: &Gvr) -> ShardSupport {
        let selector = utf8_percent_encode(EVERYTHING, NON_ALPHANUMERIC);
        let path = format!("{}?limit=1&shardSelector={selector}", gvr.path(None));
        let options = CallOptions::new(RequestVerb::Probe, gvr.group_resource()).header_timeout(PATIENCE);
        let list = get_outline::<List>(&self.upstream, &path, "application/json", &options, KEPT);
        let answer = tokio::time::timeout(PATIENCE, list).await;
        let answer = answer.unwrap_or(Err(UpstreamError::Timeout { what: "a list of one shard", after: PATIENCE }));
        answer.map_or_else(
            |error| {
                tracing::debug!(resource = gvr.group_resource(), %error, "whether shard selectors are evaluated is unknown");
                ShardSupport::Unknown
            },
            |list| list.metadata.support(),
        )
    }
}

/// The resource whose lists show the answer. Lists of custom resources do not repeat the selector, but lists of their
/// definitions do, and the same server serves them. What an aggregated server does is unknown.
fn shown_by(resource: &Resource) -> Option<Gvr> {
    match resource.origin {
        Origin::BuiltIn => Some(resource.gvr.clone()),
        Origin::Custom { .. } => Some(Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")),
        Origin::Unknown => None,
    }
}

// === impl ListMetadata ===

impl ListMetadata {
    fn support(&self) -> ShardSupport {
        let has_more = !self.continue_token.is_empty();
        match &self.shard_info {
            None => ShardSupport::Ignored,
            Some(info) if info.selector == EVERYTHING => {
                ShardSupport::Evaluated { counts: has_more.then_some(self.remaining_item_count.is_some()) }
            }
            Some(_) => ShardSupport::Unknown,
        }
    }
}

// === impl Validity ===

impl Expiry<Gvr, ShardSupport> for Validity {
    #[expect(clippy::disallowed_types, reason = "the signature the cache asks for")]
    fn expire_after_create(&self, _: &Gvr, support: &ShardSupport, _: std::time::Instant) -> Option<Duration> {
        Some(if *support == ShardSupport::Unknown { AGAIN } else { VALID })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::{FakeServer, answer};

    fn resource(origin: Origin) -> Resource {
        Resource { origin, ..Resource::simple("", "pods", "Pod") }
    }

    /// What an answer is taken for, and the requests of two readers, one after the other.
    async fn asked(code: u16, metadata: &str, origin: Origin) -> (ShardSupport, Vec<String>) {
        let body = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[]}}"#);
        let server = FakeServer::plain(move |_, _| std::future::ready(answer(code, body.clone()))).await;
        let sharding = Sharding::new(Upstream::from_config(server.config()).await.unwrap());
        let resource = resource(origin);
        let (first, second) = (sharding.of(&resource).await, sharding.of(&resource).await);
        assert_eq!(first, second);
        assert_eq!(sharding.known(&resource).await, first);
        (first, server.uris().iter().map(|target| target.split("?").next().unwrap_or_default().to_owned()).collect())
    }

    #[tokio::test]
    async fn the_answer_tells_and_is_asked_for_once() {
        let info = format!(r#""shardInfo":{{"selector":"{EVERYTHING}"}}"#);
        for (metadata, support) in [
            (r#"{"resourceVersion":"7"}"#.to_owned(), ShardSupport::Ignored),
            (format!(r#"{{"resourceVersion":"7",{info}}}"#), ShardSupport::Evaluated { counts: None }),
            (format!(r#"{{"continue":"x",{info}}}"#), ShardSupport::Evaluated { counts: Some(false) }),
            (
                format!(r#"{{"continue":"x","remainingItemCount":3,{info}}}"#),
                ShardSupport::Evaluated { counts: Some(true) },
            ),
            (r#"{"shardInfo":{"selector":"something else"}}"#.to_owned(), ShardSupport::Unknown),
        ] {
            let (said, paths) = asked(200, &metadata, Origin::BuiltIn).await;
            assert_eq!((said, paths.len()), (support, 1), "{metadata}");
            assert_eq!(paths[0], "/api/v1/pods");
        }
    }

    #[tokio::test]
    async fn what_is_not_said_is_unknown() {
        assert_eq!(asked(403, "{}", Origin::BuiltIn).await.0, ShardSupport::Unknown);
        assert_eq!(asked(200, "{}", Origin::Unknown).await, (ShardSupport::Unknown, Vec::new()));
        let (said, paths) =
            asked(200, "{}", Origin::Custom { selectable: [].into(), columns: [].into(), definition: "".into() }).await;
        assert_eq!(
            (said, &*paths[0]),
            (ShardSupport::Ignored, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        );
    }
}
