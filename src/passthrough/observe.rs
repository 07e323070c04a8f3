//! Reports to the read path which revisions clients have been shown and have written, before the clients know them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HeaderMap;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::{Body, Frame};

use super::revision::Finder;
use super::{BoxError, ForwardBody};
use crate::meta::{Query, RequestInfo, ResourceVersion, Verb};

/// Records the revisions that pass through. It is called before the part of the body that shows them, or the end of the
/// body, reaches the client. So a read that the client sends afterwards finds them recorded.
pub trait RevisionObserver: Send + Sync + 'static {
    /// A write of this resource succeeded and left an object at `rv`.
    fn wrote(&self, info: &RequestInfo, rv: ResourceVersion);

    /// A write succeeded, and its revision is not known.
    fn wrote_unknown(&self, info: &RequestInfo);

    /// A write may have succeeded: its outcome is unknown.
    fn may_have_written(&self, info: &RequestInfo);

    /// What clients may know of the resource.
    fn shown(&self, _info: &RequestInfo) -> ResourceVersion {
        ResourceVersion::ZERO
    }

    /// A read showed the resource at `rv`. `known`: what clients might know of it when the store itself was asked for a list;
    /// zero for all other answers.
    fn showed(&self, info: &RequestInfo, rv: ResourceVersion, known: ResourceVersion);

    /// A read showed the resource at a revision that is unknown.
    fn showed_unknown(&self, info: &RequestInfo);

    /// The answer to a read or a write of an object was that there is none.
    fn showed_none(&self, _info: &RequestInfo) {}

    /// The apiserver has waited in vain for the revision that a read was made to ask for.
    fn unreached(&self, _info: &RequestInfo) {}
}

/// Observes one forwarded request. If this is dropped before the outcome is known, a write counts as one that may have
/// happened: its client may be gone, but other clients read too. A write whose credentials were not accepted here
/// counts only after the apiserver has answered it with success. Otherwise anyone could delay readers.
pub(super) struct Observation {
    observer: Arc<dyn RevisionObserver>,
    info: RequestInfo,
    kind: BodyKind,
    told: bool,
    /// The revision in the answer may be one that its client has made up.
    tells_nothing: bool,
    /// A watch that was made to ask for a revision, until its first event came.
    is_raised: bool,
    /// The apiserver has answered with success.
    succeeded: bool,
    /// See [`RevisionObserver::showed`].
    shown: ResourceVersion,
}

/// In the extensions of a read that asks for a revision which its client did not ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsksForMore;

/// A body that is scanned as it passes. The last part is held back until its version was reported or the body has
/// ended, because with that part the client has all it needs to go on.
pub(super) struct Observed {
    inner: ForwardBody,
    finder: Finder,
    observation: Observation,
    held: Option<Frame<Bytes>>,
    /// The error of the inner body. It is passed on after the held part.
    failed: Option<BoxError>,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyKind {
    Write,
    Read,
    Watch,
}

// === impl Observation ===

impl Observation {
    /// `None` for requests that neither change nor show objects. `known`: the credentials were accepted.
    pub(super) fn begin(
        observer: &Arc<dyn RevisionObserver>,
        info: &RequestInfo,
        request: &Parts,
        known: bool,
    ) -> Option<Self> {
        let kind = kind(info, &request.method)?;
        // A dry run changes nothing, and its answer has any revision that its client sends. A deletion may have its options in
        // the body.
        let may_be_dry = matches!(info.verb, Verb::Create | Verb::Update | Verb::Patch);
        let query = request.uri.query().unwrap_or_default();
        if may_be_dry && Query::parse(query).bytes("dryRun").is_some() {
            return None;
        }
        // It may be a dry run, which cannot be seen here.
        let tells_nothing = may_be_dry && Query::is_too_long(query);
        let told = kind != BodyKind::Write || !known;
        let is_raised = kind == BodyKind::Watch && request.extensions.get::<AsksForMore>().is_some();
        // The store itself answers a list that names no revision.
        let is_newest = info.verb == Verb::List && !Query::is_too_long(query) && {
            let query = Query::parse(query);
            ["resourceVersion", "continue"].iter().all(|name| query.bytes(name).is_none())
        };
        let shown = if is_newest { observer.shown(info) } else { ResourceVersion::ZERO };
        let (observer, info) = (Arc::clone(observer), info.clone());
        Some(Self { observer, info, kind, told, tells_nothing, is_raised, succeeded: false, shown })
    }

    /// Records that nothing was sent, so nothing has happened.
    pub(super) fn unsent(mut self) {
        self.told = true;
    }

    /// Evaluates the headers of the answer, and observes the body if it can show more.
    pub(super) fn answered(mut self, status: StatusCode, headers: &HeaderMap, body: ForwardBody) -> ForwardBody {
        if !status.is_success() {
            // A client error is a refusal. After a server error the write may still have been executed.
            self.told |= !status.is_server_error();
            // A type may lack the subresource, which says nothing about the object.
            let is_of_object = !self.info.name.is_empty() && self.info.subresource.is_empty();
            if status == StatusCode::NOT_FOUND && is_of_object && self.kind != BodyKind::Watch {
                self.observer.showed_none(&self.info);
            }
            return body;
        }
        (self.told, self.succeeded) = (false, true);
        // The object in the answer to a deletion may be its last state, older than the deletion.
        if self.tells_nothing || matches!(self.info.verb, Verb::Delete | Verb::DeleteCollection) {
            return body;
        }
        let finder = Finder::new(headers, self.kind == BodyKind::Watch);
        // A list or an object is not newer than its headers, so record it now. A watch goes on to show newer revisions.
        if finder.is_blind() && self.kind != BodyKind::Watch {
            return body;
        }
        // A watch in which no revision is found has shown nothing. What cannot be read is told as it comes.
        self.told = self.kind == BodyKind::Watch;
        ForwardBody::new(Observed { inner: body, finder, observation: self, held: None, failed: None, ended: false })
    }

    /// Observes a session that cannot be parsed. The revisions that it has shown are unknown when it ends.
    pub(super) fn upgraded(mut self) -> Self {
        (self.told, self.succeeded) = (false, true);
        self
    }

    /// A watch whose revision the apiserver has waited for in vain is answered with 200 and one event: of this type, and with
    /// this cause. In protobuf, the type stands behind the length of the event, its tag and its own length.
    fn began(&mut self, first: &[u8]) {
        let is_error = first.starts_with(br#"{"type":"ERROR","#)
            || first.get(4..).is_some_and(|event| event.starts_with(b"\n\x05ERROR"));
        let is_late = || memchr::memmem::find(first, b"ResourceVersionTooLarge").is_some();
        if std::mem::take(&mut self.is_raised) && is_error && is_late() {
            self.observer.unreached(&self.info);
        }
    }

    fn tell(&mut self, rv: ResourceVersion) {
        self.told = true;
        match self.kind {
            BodyKind::Write => self.observer.wrote(&self.info, rv),
            BodyKind::Read | BodyKind::Watch => self.observer.showed(&self.info, rv, self.shown),
        }
    }

    fn tell_unknown(&mut self) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        match self.kind {
            BodyKind::Write if self.succeeded => self.observer.wrote_unknown(&self.info),
            BodyKind::Write => self.observer.may_have_written(&self.info),
            BodyKind::Read | BodyKind::Watch => self.observer.showed_unknown(&self.info),
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.tell_unknown();
    }
}

fn kind(info: &RequestInfo, method: &Method) -> Option<BodyKind> {
    if !info.is_resource {
        return None;
    }
    match info.verb {
        Verb::Watch if *method == Method::GET && info.subresource.is_empty() => Some(BodyKind::Watch),
        Verb::Get | Verb::List if *method == Method::GET => {
            matches!(info.subresource.as_str(), "" | "status" | "scale").then_some(BodyKind::Read)
        }
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            // These connect to a pod or create a token. The object itself is not changed.
            let connects = matches!(info.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy" | "token");
            (!connects).then_some(BodyKind::Write)
        }
        _ => None,
    }
}

// === impl Observed ===

impl Body for Observed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let watch = this.observation.kind == BodyKind::Watch;
            if (this.observation.told || watch || this.ended)
                && let Some(held) = this.held.take()
            {
                return Poll::Ready(Some(Ok(held)));
            }
            if this.ended {
                return Poll::Ready(this.failed.take().map(Err));
            }
            match std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Some(first) = frame.data_ref() {
                        this.observation.began(first);
                    }
                    if let Some(rv) = frame.data_ref().and_then(|part| this.finder.push(part)) {
                        this.observation.tell(rv);
                    }
                    if watch && this.finder.is_blind() {
                        this.observation.told = false;
                        this.observation.tell_unknown();
                    }
                    // The new part replaces the held one. At most one part is delayed.
                    if let Some(held) = this.held.replace(frame) {
                        return Poll::Ready(Some(Ok(held)));
                    }
                }
                Some(Err(error)) => {
                    this.ended = true;
                    this.failed = Some(error);
                    this.observation.tell_unknown();
                }
                None => {
                    this.ended = true;
                    this.observation.tell_unknown();
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
