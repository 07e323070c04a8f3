//! Books what answers of the apiserver cost it, or would have cost it.

use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{Response, StatusCode};

use super::answer::Body;
use super::record::Plan;
use super::service::ServiceInner;
use crate::meta::{RequestInfo, Verb};
use crate::passthrough::Shared;
use crate::reads::Giver;

impl ServiceInner {
    /// Whether a request lists a namespace or a selection.
    pub(super) fn lists_part(head: &Parts, info: &RequestInfo) -> bool {
        let selects = || head.uri.query().is_some_and(|query| query.contains("Selector="));
        info.verb == Verb::List && (!info.namespace.is_empty() || selects())
    }

    /// Books an answer of the apiserver that a cache could have given, if it had been given already, or is one `of_part`: see
    /// [`Self::lists_part`].
    pub(super) fn booked(
        &self,
        mut response: Response<Body>,
        info: &RequestInfo,
        plan: Plan,
        of_part: bool,
    ) -> Response<Body> {
        let is_shared = response.extensions().get::<Shared>().is_some();
        let Some(giver) = giver(plan, is_shared, of_part) else { return response };
        // A client may ask for any resource. This one there is.
        if info.is_plain_read() && response.status() == StatusCode::OK {
            let as_sent = info.verb == Verb::Watch || response.headers().contains_key(CONTENT_ENCODING);
            let rent = self.reads.rent(&info.gvr(), giver, as_sent);
            response.extensions_mut().insert(rent);
        }
        response
    }
}

fn giver(plan: Plan, is_shared: bool, of_part: bool) -> Option<Giver> {
    let Plan::Forwarded(Some(reason)) = plan else { return None };
    let giver = if is_shared { Giver::Shared } else { Giver::ApiserverOfPart };
    (reason.is_of_cost() && (is_shared || of_part)).then_some(giver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::ForwardReason::{Consistent, NotReadable, Seldom};

    #[test]
    fn only_what_a_cache_could_have_given_is_booked() {
        for (plan, is_shared, of_part, wanted) in [
            (Plan::Forwarded(Some(Consistent)), true, true, Some(Giver::Shared)),
            (Plan::Forwarded(Some(Seldom)), false, true, Some(Giver::ApiserverOfPart)),
            (Plan::Forwarded(Some(Seldom)), false, false, None),
            // A client may ask for any resource.
            (Plan::Forwarded(Some(NotReadable)), true, true, None),
            (Plan::Forwarded(None), true, true, None),
        ] {
            assert_eq!(giver(plan, is_shared, of_part), wanted, "{is_shared} {of_part}");
        }
    }
}
