//! How clients that are not authenticated yet are received.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, Version};

use super::answer::{Body, is_unauthenticated, wanted};
use super::door::Connection;
use super::service::ServiceInner;
use crate::meta::{Query, Status};

// === impl Connection ===

impl Connection {
    /// Whether a request has just been reviewed in vain, and the apiserver would say it as informerd does: not in another form,
    /// and not after a look at how long it may take.
    pub(super) fn is_judged(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let has_timeout = || Query::parse(uri.query().unwrap_or_default()).bytes("timeout").is_some();
        let is_judged = self.newcomer.as_ref().is_some_and(|newcomer| newcomer.is_judged());
        is_judged && wanted::status(headers, uri).is_some() && !has_timeout()
    }

    /// Ends the connection with the answer if its client is not authenticated and its requests would be too cheap for it: over
    /// HTTP/2 at once, as the apiserver does, and over HTTP/1.1 after a few. `upgrades`: the request asks for another protocol,
    /// which may take a connection to the apiserver.
    pub(super) fn left_by(&self, mut response: Response<Body>, version: Version, upgrades: bool) -> Response<Body> {
        let is_unauthenticated = is_unauthenticated(&response);
        if version == Version::HTTP_2 {
            if is_unauthenticated {
                self.close();
            }
            return response;
        }
        let is_refusal = is_unauthenticated || upgrades && response.status() != StatusCode::SWITCHING_PROTOCOLS;
        if is_refusal && self.newcomer.as_ref().is_some_and(|newcomer| newcomer.is_last_refusal(upgrades)) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

// === impl ServiceInner ===

impl ServiceInner {
    /// Authenticates the client of a new connection before any body of its request is read or kept. The answer to the
    /// request is decided later and elsewhere.
    ///
    /// # Errors
    /// The client cannot be authenticated now, and too many such clients are connected already.
    pub(super) async fn welcome(&self, headers: &HeaderMap, connection: &Connection) -> Result<(), Box<Status>> {
        let Some(newcomer) = connection.newcomer.as_ref().filter(|newcomer| !newcomer.is_authenticated()) else {
            return Ok(());
        };
        match self.parts.access.recognize(&connection.caller(headers)).await {
            Ok(()) => newcomer.authenticated(),
            Err(status) if status.code != 401 && !newcomer.go_on_unjudged() => return Err(status),
            // Either the request is refused later, or the apiserver is asked.
            Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::answer::full;
    use crate::http::door::Newcomers;

    fn newcomer() -> Connection {
        let newcomer = Newcomers::new(usize::MAX, Arc::default()).try_place([10, 0, 0, 1].into()).unwrap();
        let address = "delegated+https://127.0.0.1:0".parse().unwrap();
        Connection { newcomer: Some(newcomer), ..Connection::new(address, None) }
    }

    #[test]
    fn a_connection_ends_after_a_few_refusals() {
        let last = |connection: &Connection, code: u16, version, upgrades| {
            let is_last = |_: &usize| {
                let mut response = Response::new(full(bytes::Bytes::new()));
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                connection.left_by(response, version, upgrades).headers().contains_key(CONNECTION)
            };
            (1..100).find(is_last)
        };
        for (code, upgrades, wanted) in
            [(401, false, Some(8)), (401, true, Some(1)), (404, true, Some(1)), (404, false, None), (101, true, None)]
        {
            assert_eq!(last(&newcomer(), code, Version::HTTP_11, upgrades), wanted, "{code} {upgrades}");
            assert_eq!(last(&newcomer(), code, Version::HTTP_2, upgrades), None, "a GOAWAY says it");
            let known = newcomer();
            known.confirmed();
            assert_eq!(last(&known, code, Version::HTTP_11, upgrades), None, "it is known");
        }
    }

    #[test]
    fn what_the_apiserver_would_say_in_another_way_is_left_to_it() {
        let is_judged = |connection: &Connection, accept: &'static str, target: &str| {
            let headers = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static(accept))]);
            connection.is_judged(&headers, &target.parse().unwrap())
        };
        let (json, target) = ("application/json", "/x?a=timeout");
        let new = newcomer();
        assert!(is_judged(&new, json, target) && is_judged(&new, "*/*", target));
        assert!(!is_judged(&new, "application/yaml", target));
        assert!(!is_judged(&new, json, "/x?timeout=x") && !is_judged(&new, json, "/x?%74imeout=x"));
        new.newcomer.as_ref().unwrap().go_on_unjudged();
        assert!(!is_judged(&new, json, target), "there are no reviews");
        let known = newcomer();
        known.confirmed();
        assert!(!is_judged(&known, json, target));
    }
}
