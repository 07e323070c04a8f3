//! Reads that are forwarded with another query than their own, so that their answer is not older than what was shown.

use http::Uri;
use http::request::Parts;
use http::uri::PathAndQuery;

use super::answer::{Parsed, read};
use super::door::Connection;
use super::record::Plan;
use super::service::ServiceInner;
use crate::meta::RequestInfo;
use crate::passthrough::Otherwise;
use crate::reads::NotOlder;

impl ServiceInner {
    /// Rewrites the target of a read that is about to be forwarded, if its answer could be older than what informerd has
    /// shown.
    pub(super) fn forward_not_older(&self, head: &mut Parts, info: &RequestInfo, connection: &Connection, plan: Plan) {
        let Plan::Forwarded(Some(reason)) = plan else { return };
        let Parsed::Read(read, _) = read::parse(head, info, connection.listener.mode()) else { return };
        let query = head.uri.query().unwrap_or_default();
        let Some(NotOlder { query, otherwise }) = self.reads.not_older(&read, info.verb, reason, query) else { return };
        let target = |query: &str| PathAndQuery::try_from(format!("{}?{query}", head.uri.path())).ok();
        let otherwise = otherwise.and_then(|(query, codes)| Some(Otherwise { target: target(&query)?, codes }));
        let Some(target) = target(&query) else { return };
        let mut parts = head.uri.clone().into_parts();
        parts.path_and_query = Some(target);
        if let Ok(uri) = Uri::from_parts(parts) {
            head.uri = uri;
            if let Some(otherwise) = otherwise {
                head.extensions.insert(otherwise);
            }
        }
    }
}
