//! Reads while the apiserver does not answer, if the settings allow old state in that case.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Response};

use super::answer::{Body, BodyOptions, Parsed, read};
use super::door::Connection;
use super::record::Plan;
use super::request_record::RequestRecord;
use super::service::ServiceInner;
use crate::auth::Mode;
use crate::meta::{Gvr, RequestInfo};
use crate::passthrough::ForwardError;

impl ServiceInner {
    /// The part of a forwarded request that is kept in case the apiserver does not answer.
    pub(super) fn in_case(&self, head: &Parts, info: &RequestInfo) -> Option<Parts> {
        (info.is_plain_read() && self.reads.serves_while_away(&info.gvr())).then(|| head.clone())
    }

    /// Whether reads of this resource get old state now.
    pub(super) fn gives_old(&self, gvr: &Gvr) -> bool {
        self.reads.serves_while_away(gvr) && self.parts.forward.away().is_some()
    }

    /// The failure of a read that is kept for this case, if it is known before anything is sent. Whether its client could be
    /// forwarded does not matter then: one with a certificate could not.
    pub(super) fn fails_anyway(&self, head: Option<&Parts>, connection: &Connection) -> Option<ForwardError> {
        head.filter(|_| connection.listener.mode() == Mode::Delegated).and_then(|_| self.parts.forward.away())
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
        client: &RequestRecord,
    ) -> Option<(Response<Body>, Plan)> {
        let head = head.filter(|_| error.is_silence())?;
        // First in the requested form, then in another form that the client accepts.
        for parse in [read::parse, read::parse_plain] {
            let Parsed::Read(mut read, wanted) = parse(&head, info, connection.listener.mode()) else { continue };
            read.stale = true;
            match self.authorize(&head, info, connection, audit_id).await {
                Ok(Some((grant, entry))) => {
                    if grant.is_kept() {
                        client.is_kept();
                    }
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
