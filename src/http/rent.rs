//! Books what answers cost the apiserver, or would have cost it.

use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{Response, StatusCode};

use super::answer::Body;
use super::record::Plan;
use super::service::ServiceInner;
use crate::meta::{Gvr, RequestInfo, Verb};
use crate::passthrough::Shared;
use crate::reads::Giver;

impl ServiceInner {
    /// Whether a request lists a namespace or a selection.
    pub(super) fn lists_part(head: &Parts, info: &RequestInfo) -> bool {
        let selects = || head.uri.query().is_some_and(|query| query.contains("Selector="));
        info.verb == Verb::List && (!info.namespace.is_empty() || selects())
    }

    /// Books an answer of the apiserver, if a cache could have given it, or if it had been given already. `of_part`: see
    /// [`Self::lists_part`].
    pub(super) fn booked(
        &self,
        mut response: Response<Body>,
        info: &RequestInfo,
        plan: Plan,
        of_part: bool,
    ) -> Response<Body> {
        let giver = match plan {
            _ if response.extensions().get::<Shared>().is_some() => Giver::Shared,
            Plan::Forwarded(Some(reason)) if reason.is_of_cost() && of_part => Giver::ApiserverOfPart,
            Plan::Forwarded(Some(reason)) if reason.is_of_cost() => Giver::Apiserver,
            _ => return response,
        };
        // A client may ask for any resource. This one there is.
        if info.is_plain_read() && response.status() == StatusCode::OK {
            self.book(&mut response, &info.gvr(), info.verb, giver);
        }
        response
    }

    /// Books an answer to a read.
    pub(super) fn book(&self, response: &mut Response<Body>, gvr: &Gvr, verb: Verb, giver: Giver) {
        let as_sent = verb == Verb::Watch || response.headers().contains_key(CONTENT_ENCODING);
        let rent = self.reads.rent(gvr, giver, as_sent);
        response.extensions_mut().insert(rent);
    }
}
