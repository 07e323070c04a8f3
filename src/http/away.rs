//! Reads while the apiserver does not answer, where the settings say that an old state is better than none.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Response};

use super::body::Body;
use super::explain::Plan;
use super::read::{self, Parsed};
use super::server::Connection;
use super::service::Inner;
use super::written::Taken;
use crate::meta::RequestInfo;
use crate::passthrough::ForwardError;

impl Inner {
    /// What is to be kept of a request that is forwarded, in case that nobody answers it.
    pub(super) fn in_case(&self, head: &Parts, info: &RequestInfo) -> Option<Parts> {
        (info.is_plain_read() && self.reads.serves_while_away(&info.gvr())).then(|| head.clone())
    }

    /// The answer to a read that was forwarded in vain, as far as the cache has one; with the age of what it tells. It is
    /// for those alone who are trusted, or of whom it is known that they may read it.
    pub(super) async fn while_away(
        &self,
        error: &ForwardError,
        head: Option<Parts>,
        info: &RequestInfo,
        connection: &Arc<Connection>,
        audit_id: &HeaderValue,
    ) -> Option<(Response<Body>, Plan)> {
        let head = head.filter(|_| error.is_silence())?;
        // As it is asked, or in a form that the client takes as well.
        for parse in [read::parse, read::parse_plain] {
            let Parsed::Read(mut read, wanted) = parse(&head, info, connection.listener.mode()) else { continue };
            read.stale = true;
            match self.authorize(&head, info, connection, audit_id).await {
                Ok(Some((grant, entry))) => {
                    let taken = Taken::of(&head, wanted, connection);
                    if let (Some(response), plan) = self.read(*read, info.verb, grant, entry, &taken, audit_id).await {
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
