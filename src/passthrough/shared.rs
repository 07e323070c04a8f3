//! One upstream read for several clients: the key that makes reads equal, and the answer that they share.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, ORIGIN, RANGE, USER_AGENT,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use parking_lot::Mutex;

use super::places::Client;
use super::{BoxError, ForwardBody};
use crate::apiserver::client::Identity;
use crate::auth::impersonates;
use crate::memory::{Ledger, Reservation};
use crate::meta::{RequestInfo, Verb, is_indented_for};

pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Everything that the answer to a get or list depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    identity: Identity,
    authorization: Option<HeaderValue>,
    target: Box<str>,
    accept: Option<HeaderValue>,
    accept_encoding: Option<HeaderValue>,
    /// The apiserver indents for some user agents.
    pretty: bool,
    /// Set if the reads of one client are kept apart from those of others.
    pub(super) client: Option<Client>,
}

/// The result that the members of a batch get.
#[derive(Clone)]
pub(super) enum SharedRead {
    Whole(Arc<Whole>),
    /// For the first member that takes it.
    Alone(Arc<Mutex<Option<Response<ForwardBody>>>>),
    /// The client that was to read has its share. That is nothing to the members of others: each reads with those of its
    /// own client.
    Apart,
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Whole {
    status: StatusCode,
    pub(super) headers: HeaderMap,
    parts: Vec<Bytes>,
    /// A client has got it.
    is_given: AtomicBool,
    /// `None` if it goes with the parts.
    held: Option<Reservation>,
}

/// All of an answer, with its reservation.
struct Joined {
    data: Vec<u8>,
    _held: Option<Reservation>,
}

/// In the extensions of an answer that another client has got, too: it has cost the apiserver nothing more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared;

pub(super) enum Buffered {
    Whole(Whole),
    /// Over the limit. The answer includes what was already read of it.
    TooLarge(Response<ForwardBody>),
}

/// Parts that were already read, and then the rest.
struct Resumed {
    parts: VecDeque<Bytes>,
    rest: ForwardBody,
    held: Reservation,
}

/// Parts that are shared between clients.
struct Replayed {
    whole: Arc<Whole>,
    next: usize,
}

// === impl ReadKey ===

impl ReadKey {
    /// `None` if the request is not a plain get or list, or has headers that an equal request might not have.
    pub(super) fn of(request: &Parts, info: &RequestInfo, identity: Identity) -> Option<Self> {
        let headers = &request.headers;
        let plain = request.method == Method::GET && info.is_plain_read() && info.verb != Verb::Watch;
        // A proxy in front of the apiserver may identify a user by a cookie. An origin may be repeated in the answer.
        let special = [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, AUDIT_ID, COOKIE, ORIGIN];
        let unusual =
            special.iter().any(|name| headers.contains_key(name)) || impersonates(headers) || has_repeated(headers);
        if !plain || unusual {
            return None;
        }
        let value = |name: HeaderName| headers.get(name).cloned();
        let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        Some(Self {
            identity,
            authorization: value(AUTHORIZATION),
            target: request.uri.path_and_query().map_or("/", |target| target.as_str()).into(),
            accept: value(ACCEPT),
            accept_encoding: value(ACCEPT_ENCODING),
            pretty: is_indented_for(agent),
            client: None,
        })
    }
}

/// Whether a header that is part of keys has several lines. They are too rare to be part of a key.
pub(super) fn has_repeated(headers: &HeaderMap) -> bool {
    [ACCEPT, ACCEPT_ENCODING, AUTHORIZATION].iter().any(|name| headers.get_all(name).iter().count() > 1)
}

// === impl SharedRead ===

impl SharedRead {
    pub(super) fn alone(response: Response<ForwardBody>) -> Self {
        Self::Alone(Arc::new(Mutex::new(Some(response))))
    }
}

// === impl Whole ===

impl Whole {
    /// The size of the body.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// In one piece, without the buffers that it was read into: they may be larger. Each slice of it keeps all of it, also one
    /// that waits to be sent when the answer has ended. So its memory is reserved until the last of them is dropped.
    pub(super) fn joined(mut self) -> Self {
        let joined = Joined { data: self.parts.concat::<u8>(), _held: self.held.take() };
        self.parts = vec![Bytes::from_owner(joined)];
        self
    }

    pub(super) fn body(self: &Arc<Self>) -> ForwardBody {
        Replayed { whole: Arc::clone(self), next: 0 }.boxed_unsync()
    }

    pub(super) fn response(self: &Arc<Self>) -> Response<ForwardBody> {
        let mut response = Response::new(self.body());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        if self.is_given.swap(true, Ordering::Relaxed) {
            response.extensions_mut().insert(Shared);
        }
        response
    }
}

/// Reads a body to its end, unless it exceeds the limit or there is no memory to spare.
pub(super) async fn collect(
    response: Response<ForwardBody>,
    limit: usize,
    ledger: &Ledger,
) -> Result<Buffered, BoxError> {
    let Ok(mut held) = ledger.spare(0) else { return Ok(Buffered::TooLarge(response)) };
    let (head, mut body) = response.into_parts();
    let mut parts = Vec::new();
    while let Some(frame) = body.frame().await {
        // Trailers do not occur in the Kubernetes API.
        let Ok(part) = frame?.into_data() else { continue };
        let fits = held.grow(part.len()).is_ok() && held.bytes() <= limit;
        parts.push(part);
        if !fits {
            let resumed = Resumed { parts: parts.into(), rest: body, held };
            return Ok(Buffered::TooLarge(Response::from_parts(head, resumed.boxed_unsync())));
        }
    }
    let (is_given, held) = (AtomicBool::new(false), Some(held));
    Ok(Buffered::Whole(Whole { status: head.status, headers: head.headers, parts, is_given, held }))
}

// === impl Joined ===

impl AsRef<[u8]> for Joined {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

// === impl Resumed ===

impl Body for Resumed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.parts.pop_front() {
            Some(part) => {
                self.held.shrink(part.len());
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

// === impl Replayed ===

impl Body for Replayed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let part = self.whole.parts.get(self.next).cloned();
        self.next += 1;
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.next >= self.whole.parts.len()
    }
}
