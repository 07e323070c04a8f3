//! The only place that converts failures to gRPC: every error gets a code, a message, and details that a client can
//! act on.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};
use tonic_types::pb::{ErrorInfo, RetryInfo, Status as RpcStatus};

use super::reason::Reason;
use crate::grpc::pb::v1::{Failure, KubernetesStatus};
use crate::meta::{self, Damaged, Gvr, errors};
use crate::reads::{ForwardReason, Refusal};
use crate::workqueue::Full;

const DOMAIN: &str = "informerd.io";

/// An error for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    reason: Reason,
    message: String,
    retry_after: Option<Duration>,
    status: Option<Box<meta::Status>>,
}

// === impl Error ===

impl Error {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None, status: None }
    }

    pub(in crate::grpc) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Reason::INVALID, message)
    }

    /// The deadline of the client has passed.
    pub(super) fn deadline() -> Self {
        Self::new(Reason::DEADLINE, "the deadline of the call has passed")
    }

    /// Nothing of the request has come for this time. This is no mistake of the client: its machine or its network may have
    /// stood still.
    pub(super) fn silent(time: Duration) -> Self {
        Self::new(Reason::DEADLINE, format!("nothing of the request has come for {} s", time.as_secs()))
    }

    pub(in crate::grpc) fn draining() -> Self {
        Self::new(Reason::DRAINING, "informerd is about to stop").after(Duration::from_secs(1))
    }

    /// For a stream that has no goodbye frame, when its connection must end.
    pub(in crate::grpc) fn retired() -> Self {
        Self::new(Reason::CONNECTION_AGE, "the connection is as old as it may become").after(Duration::ZERO)
    }

    /// Nobody can say whether the right to a stream is still there.
    pub(super) fn unconfirmed() -> Self {
        let message = "informerd cannot have the right to the stream confirmed: the apiserver gives no answer";
        Self::new(Reason::UNAVAILABLE, message).after(Duration::from_secs(1))
    }

    pub(in crate::grpc) fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Reason::UNIMPLEMENTED, message)
    }

    /// An error of the gRPC library itself; `None` if the client did not cause it. The library's code for a message
    /// that is too large is the code that this API uses for a revision that is too old.
    pub(in crate::grpc) fn of_library(status: &Status) -> Option<Self> {
        match status.code() {
            Code::Unimplemented => Some(Self::unimplemented(status.message())),
            Code::OutOfRange | Code::Internal => Some(Self::invalid(status.message())),
            _ => None,
        }
    }

    /// The workers of a group have named other selections.
    pub(in crate::grpc) fn selections_differ(group: &str, workers: usize) -> Self {
        let message = format!("the {workers} workers of group {group:?} have named other selections");
        Self::new(Reason::SELECTIONS_DIFFER, message)
    }

    /// A limit of this informerd is reached. There may be room later.
    pub(in crate::grpc) fn too_many(message: impl Into<String>) -> Self {
        Self::new(Reason::TOO_MANY, message).after(Duration::from_secs(10))
    }

    /// There is not enough memory for the request.
    pub(in crate::grpc) fn no_memory(message: impl Into<String>) -> Self {
        Self::new(Reason::TOO_MANY, message).after(Duration::from_secs(1))
    }

    /// A work queue that was ended because of too many deletions.
    pub(in crate::grpc) fn overflow(full: Full) -> Self {
        let message = format!("{full}; the queue begins anew with every object");
        Self::new(Reason::QUEUE_OVERFLOW, message).after(Duration::from_secs(1))
    }

    pub(in crate::grpc) fn no_informer(gvr: &Gvr) -> Self {
        Self::new(Reason::NO_INFORMER, format!("no informer of {} runs", gvr.group_resource()))
    }

    fn after(self, retry: Duration) -> Self {
        Self { retry_after: Some(retry), ..self }
    }

    fn with_status(self, status: meta::Status) -> Self {
        Self { status: Some(Box::new(status)), ..self }
    }

    /// The error for a read of this resource that is not served.
    pub(in crate::grpc) fn refusal(gvr: &Gvr, refusal: Refusal) -> Self {
        let name = gvr.group_resource();
        let second = Duration::from_secs(1);
        match refusal {
            Refusal::Invalid(message) => {
                let status = errors::bad_request(message.clone());
                Self::invalid(message).with_status(status)
            }
            Refusal::UnknownResource => {
                let status = errors::resource_not_found();
                let named = if gvr.version.is_empty() { name } else { gvr.to_string() };
                let message = format!("the apiserver has no resource {named}");
                Self::new(Reason::UNKNOWN_RESOURCE, message).with_status(status)
            }
            Refusal::Unreachable(error) => {
                let message = format!("the apiserver cannot be asked for its resources: {error}");
                Self::new(Reason::UPSTREAM, message).after(second)
            }
            Refusal::NotServed(reason) => Self::not_served(&name, reason),
            Refusal::Expired(status) => Self::new(Reason::EXPIRED, status.message.clone()).with_status(*status),
            Refusal::TooLarge(rv) => {
                let message = format!("the cluster has not reached resource version {rv}");
                Self::new(Reason::TOO_LARGE_RESOURCE_VERSION, message).after(second)
            }
            Refusal::Stale(silence) => {
                let message = format!("nothing was heard of the apiserver about {name} for {} s", silence.as_secs());
                Self::new(Reason::STALE, message)
            }
            Refusal::Refused(status) => Self::status(*status),
        }
    }

    fn not_served(name: &str, reason: ForwardReason) -> Self {
        let soon = |reason, message| Self::new(reason, message).after(Duration::from_secs(1));
        match reason {
            ForwardReason::Excluded if name == "secrets" => {
                let message = "secrets are excluded from the caches by default; a rule in `resources` that names them \
                               changes that: {resource: secrets}";
                Self::new(Reason::EXCLUDED, message)
            }
            ForwardReason::Excluded => {
                Self::new(Reason::EXCLUDED, format!("{name} is excluded from the caches by a rule in `resources`"))
            }
            ForwardReason::NotReadable => {
                Self::new(Reason::NOT_READABLE, format!("{name} cannot be listed and watched, so it has no cache"))
            }
            ForwardReason::Aggregated => {
                let message = format!(
                    "an aggregated API server serves {name}, or may do so, and its answers may depend on who asks; \
                     ask the apiserver, or have the operator name the group in `authorization.sharedAggregatedGroups`"
                );
                Self::new(Reason::AGGREGATED, message)
            }
            ForwardReason::OutOfScope => {
                Self::new(Reason::OUT_OF_SCOPE, format!("no cache is configured that covers this selection of {name}"))
            }
            ForwardReason::TooManyInformers => {
                let message = format!("informerd has no room for one more informer, of {name}: `limits.maxInformers`");
                Self::new(Reason::OUT_OF_SCOPE, message)
            }
            ForwardReason::Forbidden => {
                let message = format!("the apiserver does not let informerd itself list {name}");
                Self::new(Reason::UPSTREAM_FORBIDDEN, message)
            }
            ForwardReason::Memory => {
                Self::new(Reason::MEMORY, format!("the memory of informerd's caches has no room for {name}"))
            }
            ForwardReason::Undecodable => {
                soon(Reason::UNDECODABLE, format!("an object of {name} cannot be decoded, so it is not cached for now"))
            }
            ForwardReason::NotSynced => soon(Reason::NOT_SYNCED, format!("the cache of {name} is not synced yet")),
            ForwardReason::NotFresh => {
                soon(Reason::NOT_FRESH, format!("the cache of {name} could not be proved to be fresh enough in time"))
            }
            ForwardReason::OutsideWindow => {
                Self::new(Reason::EXPIRED, format!("the window of {name} no longer reaches back so far"))
            }
            ForwardReason::Encoding => {
                let message = format!("{name} cannot be had in Kubernetes protobuf; ask for JSON, or for any encoding");
                Self::new(Reason::NOT_ACCEPTABLE, message)
            }
            // Only the apiserver can serve these. A typed request has no way to ask for it.
            ForwardReason::Consistent
            | ForwardReason::Invalid
            | ForwardReason::Seldom
            | ForwardReason::TableCells
            | ForwardReason::Unversioned
            | ForwardReason::Unsupported
            | ForwardReason::Unauthorized => {
                Self::new(Reason::UNSUPPORTED, format!("this read of {name} can only be answered by the apiserver"))
            }
        }
    }

    /// A response of the apiserver, or an error in its wording.
    pub(super) fn status(status: meta::Status) -> Self {
        let reason = match status.code {
            400 | 422 => Reason::INVALID,
            401 => Reason::UNAUTHENTICATED,
            403 => Reason::FORBIDDEN,
            404 => Reason::NOT_FOUND,
            410 => Reason::EXPIRED,
            429 => Reason::TOO_MANY_REQUESTS,
            503 => Reason::UNAVAILABLE,
            504 => Reason::TIMEOUT,
            _ => Reason::INTERNAL,
        };
        let retry = status.retry_after_seconds();
        let error = Self::new(reason, status.message.clone()).with_status(status);
        if retry > 0 { error.after(Duration::from_secs(u64::from(retry))) } else { error }
    }

    /// The error as the apiserver would write it, for the audit log.
    pub(super) fn kubernetes(&self) -> meta::Status {
        if let Some(status) = &self.status {
            return meta::Status::clone(status);
        }
        let (code, reason) = match self.reason.0 {
            Code::InvalidArgument | Code::FailedPrecondition => (400, "BadRequest"),
            Code::NotFound => (404, "NotFound"),
            Code::OutOfRange => (410, "Expired"),
            Code::ResourceExhausted => (429, "TooManyRequests"),
            Code::Unimplemented => (501, ""),
            Code::Unavailable => (503, "ServiceUnavailable"),
            _ => (500, "InternalError"),
        };
        meta::Status::failure(code, reason, self.message.clone())
    }

    fn details(&self) -> Vec<Any> {
        let info = ErrorInfo { reason: self.reason.1.into(), domain: DOMAIN.into(), metadata: Default::default() };
        let retry = self.retry_after.map(|retry| RetryInfo { retry_delay: Some(duration(retry)) });
        let status = self.status.as_ref().map(|status| KubernetesStatus { json: Bytes::from(status.to_json()) });
        let mut details = vec![any("google.rpc.ErrorInfo", &info)];
        details.extend(retry.map(|retry| any("google.rpc.RetryInfo", &retry)));
        details.extend(status.map(|status| any("informerd.v1.KubernetesStatus", &status)));
        details
    }
}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Self {
        Self::status(errors::damaged(damaged))
    }
}

/// The longest message in bytes. It is sent in a header, once readable and twice in the details, and may quote what the
/// client sent. Some libraries accept no more than 8 KiB of headers.
const MAX_MESSAGE: usize = 1 << 10;

/// The most bytes of what a client has sent that a message quotes. No name of Kubernetes is longer.
const MAX_QUOTE: usize = 256;

/// What a client has sent, for a message that quotes it.
pub(in crate::grpc) fn quotable(sent: &str) -> Cow<'_, str> {
    let mut sent = Cow::from(sent);
    if sent.len() > MAX_QUOTE {
        cut(sent.to_mut(), MAX_QUOTE);
    }
    sent
}

/// Cuts the message of a call that another library has written, in a head or in trailers.
pub(super) fn shorten(headers: &mut HeaderMap) {
    let is_long = headers.get(Status::GRPC_MESSAGE).is_some_and(|message| message.len() > MAX_MESSAGE);
    let Some(status) = Status::from_header_map(headers).filter(|_| is_long) else { return };
    let mut message = status.message().to_owned();
    cut(&mut message, MAX_MESSAGE);
    // The header is as readable as the one before.
    Status::new(status.code(), message).add_header(headers).ok();
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
}

/// Cuts what a status of the apiserver's form quotes.
fn cut_status(status: &mut meta::Status) {
    cut(&mut status.message, MAX_MESSAGE);
    let Some(details) = &mut status.details else { return };
    cut(&mut details.name, MAX_QUOTE);
    for cause in &mut details.causes {
        cut(&mut cause.message, MAX_QUOTE);
        cut(&mut cause.field, MAX_QUOTE);
    }
}

impl From<Error> for Status {
    fn from(mut error: Error) -> Self {
        cut(&mut error.message, MAX_MESSAGE);
        error.status.as_deref_mut().into_iter().for_each(cut_status);
        let Reason(code, _) = error.reason;
        let details = RpcStatus { code: code as i32, message: error.message.clone(), details: error.details() };
        Self::with_details(code, error.message, details.encode_to_vec().into())
    }
}

/// Converts an error of the library about a client's messages to an error of this API.
pub(in crate::grpc) fn understood(status: Status) -> Status {
    Error::of_library(&status).map_or(status, Status::from)
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// An error in the form of a stream frame, and when to retry.
pub(in crate::grpc) fn failure(status: &Status) -> (Failure, Option<prost_types::Duration>) {
    let details = RpcStatus::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let retry = details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"));
    let retry = retry.and_then(|detail| RetryInfo::decode(&*detail.value).ok()).and_then(|info| info.retry_delay);
    (Failure { code: status.code() as i32, message: status.message().to_owned(), details }, retry)
}

/// A duration in its protobuf form. A value that does not fit becomes the largest possible one.
pub(in crate::grpc) fn duration(duration: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(error: Error) -> (Code, RpcStatus) {
        let status = Status::from(error);
        (status.code(), RpcStatus::decode(status.details()).unwrap())
    }

    #[test]
    fn a_missing_object_has_the_apiservers_own_status() {
        let gvr = Gvr::new("", "v1", "pods");
        let refusal = Refusal::Refused(Box::new(errors::not_found(&gvr, "p")));
        let (code, status) = decoded(Error::refusal(&gvr, refusal));
        assert_eq!((code, status.code), (Code::NotFound, Code::NotFound as i32));
        assert_eq!(status.message, r#"pods "p" not found"#);
        assert_eq!(status.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        let info = ErrorInfo::decode(&*status.details[0].value).unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("NOT_FOUND", "informerd.io"));
        assert_eq!(status.details[1].type_url, "type.googleapis.com/informerd.v1.KubernetesStatus");
        let json = KubernetesStatus::decode(&*status.details[1].value).unwrap().json;
        assert!(json.starts_with(br#"{"kind":"Status","apiVersion":"v1""#));
    }

    #[test]
    fn a_message_has_a_bound_whatever_it_quotes() {
        let long = "\u{e9}".repeat(1 << 20);
        for error in [
            Error::invalid(long.clone()),
            Error::refusal(&Gvr::new("", "v1", "pods"), Refusal::Invalid(long.clone())),
            Error::status(errors::bad_request(long.clone())),
            Error::status(errors::not_found(&Gvr::new("", "v1", "pods"), &long)),
        ] {
            let status = Status::from(error);
            assert!(status.message().ends_with("é…") && status.message().len() <= MAX_MESSAGE + 3);
            assert!(status.details().len() < 4 * MAX_MESSAGE);
            assert_eq!(quotable(&long).len(), MAX_QUOTE + 3);
            assert_eq!(quotable("short"), "short");
        }
    }

    #[test]
    fn the_message_of_another_library_is_cut_and_all_else_stays() {
        let mut headers = HeaderMap::new();
        Status::unimplemented("\u{e9}".repeat(5000)).add_header(&mut headers).unwrap();
        headers.insert("grpc-accept-encoding", "gzip".parse().unwrap());
        shorten(&mut headers);
        let status = Status::from_header_map(&headers).unwrap();
        assert_eq!((status.code(), status.message().len()), (Code::Unimplemented, MAX_MESSAGE + 3));
        assert_eq!(headers["grpc-accept-encoding"], "gzip");
        let before = headers.clone();
        shorten(&mut headers);
        assert_eq!(headers, before);
    }

    #[test]
    fn what_may_be_tried_again_says_when() {
        let gvr = Gvr::new("apps", "v1", "deployments");
        for reason in ForwardReason::ALL {
            let (code, status) = decoded(Error::refusal(&gvr, reason.into()));
            assert_ne!(code, Code::Unknown);
            assert!(status.message.contains("deployments.apps"), "{}", status.message);
            let retries = status.details.iter().any(|detail| detail.type_url.ends_with("RetryInfo"));
            assert_eq!(retries, code == Code::Unavailable, "{reason:?}");
        }
    }
}
