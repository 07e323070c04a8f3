//! How the forwarder knows the client of a connection.

use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use crate::auth::{Attributes, Mode, Recalled, StrangersRead};
use crate::lifecycle::slots::group;
use crate::meta::{RequestInfo, Verb};
use crate::passthrough::{Client, Sender};

use super::answer::Body;
use super::door::Connection;
use super::service::ServiceInner;

// === impl Connection ===

impl Connection {
    /// `token`: of a request, if it is known.
    pub(super) fn sender(&self, token: Option<&Recalled>, known: bool, sessions: bool) -> Sender {
        let address = self.peer.map(|peer| peer.ip());
        let client = match (self.listener.mode(), token, address) {
            (Mode::Delegated, Some(token), _) => Client::User(token.payer.clone()),
            (Mode::Delegated, None, Some(address)) => Client::Address(group(address)),
            (Mode::Trust, ..) | (Mode::Delegated, None, None) => Client::Connection(self.id),
        };
        let accepted = token.is_some_and(|token| token.is_accepted);
        Sender { address, known, accepted, sessions, client }
    }
}

// === impl ServiceInner ===

impl ServiceInner {
    /// The client that what is kept of a request is counted for.
    pub(super) async fn paying(&self, headers: &HeaderMap, connection: &Connection) -> Client {
        let token = self.parts.access.recall(&connection.caller(headers)).await;
        connection.sender(token.as_ref(), false, false).client
    }

    /// Whether a stranger may read this, as the apiserver has said. `asked`: what it is asked if the read is forwarded.
    pub(super) async fn may_read(&self, head: &Parts, info: &RequestInfo, asked: &mut Option<StrangersRead>) -> bool {
        let query = head.uri.query().unwrap_or_default();
        let attributes = Attributes::of(head.method.as_str(), head.uri.path(), query, info);
        *asked = self.parts.access.strangers_read(&head.headers, attributes);
        match asked {
            Some(read) => read.is_allowed().await,
            None => false,
        }
    }

    /// Learns from the answer to a forwarded read of a stranger whether it may read this.
    pub(super) async fn heard(&self, answer: Response<Body>, asked: Option<StrangersRead>) -> Response<Body> {
        if let Some(read) = asked {
            read.answered(answer.status()).await;
        }
        answer
    }

    /// Learns from the answer to a forwarded request whether the apiserver accepts the token that the request shows.
    pub(super) async fn learn(
        &self,
        status: StatusCode,
        info: &RequestInfo,
        connection: &Connection,
        (shows_token, known): (bool, Option<Recalled>),
    ) {
        let is_success = status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
        // Browsers ask without credentials whether they may ask, and are told.
        let is_accepted = is_success && shows_token && info.is_resource && info.verb != Verb::None;
        if is_accepted {
            connection.confirmed();
        }
        if let Some(token) = known.filter(|_| is_accepted || status == StatusCode::UNAUTHORIZED) {
            self.parts.access.said(&token, is_accepted).await;
        }
    }
}
