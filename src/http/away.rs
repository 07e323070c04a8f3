//! Reads while the apiserver does not answer, if the settings allow old state in that case.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Response};

use super::answer::{Body, BodyOptions, Parsed, read};
use super::door::Connection;
use super::record::Plan;
use super::service::ServiceInner;
use crate::meta::RequestInfo;
use crate::passthrough::ForwardError;

impl ServiceInner {
    /// The part of a forwarded request that is kept in case the apiserver does not answer.
    pub(super) fn in_case(&self, head: &Parts, info: &RequestInfo) -> Option<Parts> {
        (info.is_plain_read() && self.reads.serves_while_away(&info.gvr())).then(|| head.clone())
    }

    /// Answers a read from the cache after forwarding it failed, if the cache has an answer. The response carries the
    /// age of the cached state. Only clients that are trusted, or that are known to be allowed to read it, get this
    /// answer. Callers box the future, because each request has room for what it waits for without.
    pub(super) async fn while_away(
        &self,
        error: &ForwardError,
        head: Option<Parts>,
        info: &RequestInfo,
        connection: &Arc<Connection>,
        audit_id: &HeaderValue,
    ) -> Option<(Response<Body>, Plan)> {
        let head = head.filter(|_| error.is_silence())?;
        // First in the requested form, then in another form that the client accepts.
        for parse in [read::parse, read::parse_plain] {
            let Parsed::Read(mut read, wanted) = parse(&head, info, connection.listener.mode()) else { continue };
            read.stale = true;
            match self.authorize(&head, info, connection, audit_id).await {
                Ok(Some((grant, entry))) => {
                    let taken = BodyOptions::of(&head, wanted, connection);
                    let (reads, asked) = (self.reads_of(connection), (*read, info.verb));
                    if let (Some(response), plan) = self.read(reads, asked, (grant, entry), &taken, audit_id).await {
                        return Some((response, plan));
                    }
                }
                Ok(None) => return None,
                Err(status) => {
                    let response = self.refuse(&status, wanted.status, audit_id.clone());
                    return Some((response, Plan::Refused("unauthorized")));
                }
            }
        }
        None
    }
}
