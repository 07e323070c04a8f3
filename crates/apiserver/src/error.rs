//! Errors between the daemon and the apiserver. They can be cloned, so that readers that share one upstream read also
//! share its error.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use informerd_codec::CodecError;
use informerd_codec::table::Unprintable;
use informerd_meta::Status;

/// The member that the decoders name in their errors.
const REVISION: &str = "metadata.resourceVersion";

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// The source of an error, shared.
#[derive(Clone)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

/// The stream of a body was reset before the end of the body, without an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its stream was reset before its end")]
pub(crate) struct CutOff;

/// An object that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the object {object:?} cannot be decoded: {error}")]
struct OddObject {
    object: String,
    error: CodecError,
}

/// An exchange with the apiserver that gave no usable answer. An HTTP error status becomes an [`UpstreamError::Status`]
/// only if this module reads the answer itself; the client passes error responses on unchanged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The configuration cannot be read or used (kubeconfig, in-cluster files, an unsupported proxy).
    #[error("upstream configuration: {0}")]
    Config(Cause),
    /// No usable credentials: an exec plugin failed, or a token cannot be read.
    #[error("upstream credentials: {0}")]
    Auth(Cause),
    /// No TCP connection could be made.
    #[error("cannot connect to {authority}: {cause}")]
    Connect { authority: Arc<str>, cause: Cause },
    /// The TLS handshake failed.
    #[error("tls handshake with {authority} failed: {cause}")]
    Tls { authority: Arc<str>, cause: Cause },
    /// No answer arrived in time.
    #[error("{what} took longer than {after:?}")]
    Timeout { what: &'static str, after: Duration },
    /// The connection broke before the head of the response.
    #[error("request failed: {0}")]
    Request(Cause),
    /// The connection broke in the middle of the response's body.
    #[error("response body broke off: {0}")]
    Body(Cause),
    /// All connections are full and no place became free in time.
    #[error("too many requests to the apiserver are in flight")]
    Busy,
    /// The apiserver refused.
    #[error("apiserver answered {}: {}", .0.code, .0.message)]
    Status(Box<Status>),
    /// The cells of a table cannot be printed again by the daemon.
    #[error("tables: {0}")]
    Table(Unprintable),
    /// There is not enough memory for the answer.
    #[error("{0}")]
    Memory(Cause),
    /// The answer does not follow the protocol.
    #[error("unexpected answer: {0}")]
    Decode(Cause),
}

// === impl Cause ===

impl Cause {
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(Arc::from(error.into()))
    }

    pub fn get(&self) -> &(dyn StdError + 'static) {
        &*self.0
    }

    /// The error, and what has caused it, down to the first cause.
    fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        std::iter::successors(Some(self.get()), |&error| error.source())
    }

    /// Whether this says nothing about the apiserver, which has spoken: the request's own body broke off, its stream was
    /// reset, or what was said over the connection ended that. Clients and pods can bring all of it about.
    pub(crate) fn is_of_peer(&self) -> bool {
        if self.0.is::<CutOff>() {
            return true;
        }
        let Some(error) = self.0.downcast_ref::<hyper::Error>() else { return false };
        let said = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        let is_said =
            |error: &h2::Error| error.is_reset() || error.is_go_away() && error.reason() != Some(h2::Reason::NO_ERROR);
        error.is_user() || said.is_some_and(is_said)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Prints the whole chain: the outermost error of hyper says little ("connection error"), and the reason is further
/// down.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = plain(self.0.to_string());
        f.write_str(&last)?;
        for error in self.chain().skip(1) {
            let text = plain(error.to_string());
            if !last.contains(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
        }
        Ok(())
    }
}

/// Removes the documentation URL that a library appends for programmers.
fn plain(mut text: String) -> String {
    if let Some(at) = text.find(": https://docs.rs/") {
        text.truncate(at);
    }
    text
}

// === impl UpstreamError ===

impl UpstreamError {
    /// The status code, if the apiserver gave one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the apiserver itself refused, with a reason. A refusal by a proxy before it has no reason.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(status) if !status.reason.is_empty())
    }

    /// Whether the apiserver could not be reached or did not answer, as opposed to having answered.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Tls { .. } | Self::Timeout { .. } => true,
            Self::Request(cause) | Self::Body(cause) => !cause.is_of_peer(),
            _ => false,
        }
    }

    /// An answer that cannot be decoded, and the object in it at which that failed, if it has a name.
    pub fn decode(error: CodecError, object: Option<String>) -> Self {
        Self::Decode(match object {
            Some(object) => Cause::new(OddObject { object, error }),
            None => Cause::new(error),
        })
    }

    fn codec(&self) -> Option<&CodecError> {
        let Self::Decode(cause) = self else { return None };
        let odd = cause.get().downcast_ref::<OddObject>().map(|odd| &odd.error);
        odd.or_else(|| cause.get().downcast_ref::<CodecError>())
    }

    /// Whether the answer is well-formed, but a resourceVersion in it is missing or is no number.
    pub fn is_about_revisions(&self) -> bool {
        matches!(self.codec(), Some(CodecError::Missing(REVISION) | CodecError::Invalid(REVISION)))
    }

    /// Whether the same bytes would fail again. An answer that was cut off would not come again as it was.
    pub fn is_undecodable(&self) -> bool {
        self.codec().is_some_and(|error| *error != CodecError::Truncated)
    }

    /// A short name for the kind of error, from a small fixed set.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Config(_) => "configuration",
            Self::Auth(_) => "credentials",
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Timeout { .. } => "timeout",
            Self::Request(_) => "request",
            Self::Body(_) => "body",
            Self::Busy => "busy",
            Self::Status(_) => "status",
            Self::Table(_) => "table",
            Self::Memory(_) => "memory",
            Self::Decode(_) => "decode",
        }
    }

    /// How long the apiserver asks to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Status(status) = self else { return None };
        let seconds = Some(status.retry_after_seconds()).filter(|seconds| *seconds > 0);
        seconds.map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Whether TLS failed. If so, certificates may have been rotated.
    pub(crate) fn is_about_certificates(&self) -> bool {
        matches!(self, Self::Tls { .. }) || self.is_of_tls_peer()
    }

    /// Whether there was no file descriptor for a connection. So many clients say nothing about the apiserver.
    pub(crate) fn is_of_this_process(&self) -> bool {
        /// `EMFILE` and `ENFILE`.
        const NO_DESCRIPTOR: [i32; 2] = [24, 23];
        let Self::Connect { cause, .. } = self else { return false };
        cause.chain().any(|error| {
            let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
            code.is_some_and(|code| NO_DESCRIPTOR.contains(&code))
        })
    }

    /// Whether a peer that speaks TLS was refused, or has refused us. Whoever it is, the address does answer.
    pub(crate) fn is_of_tls_peer(&self) -> bool {
        // If TLS 1.3 refuses our certificate, this shows only on the first read after the handshake.
        let (Self::Tls { cause, .. } | Self::Request(cause) | Self::Body(cause)) = self else { return false };
        cause.chain().any(|error| {
            let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            error.is::<rustls::Error>() || inner.is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_cause_shows_its_whole_chain() {
        let error = UpstreamError::Request(Cause::new(Outer(std::io::Error::other("connection reset"))));
        assert_eq!(error.to_string(), "request failed: outer: connection reset");
        assert!(error.is_unreachable() && !error.is_about_certificates());
    }

    #[test]
    fn finds_a_refused_certificate_inside_an_io_error() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::BadCertificate);
        let error = UpstreamError::Request(Cause::new(Outer(std::io::Error::other(alert))));
        assert!(error.is_about_certificates() && error.is_of_tls_peer());
    }

    #[test]
    fn a_process_without_file_descriptors_has_asked_nobody() {
        for (code, is_ours) in [(24, true), (23, true), (111, false)] {
            let cause = Cause::new(Outer(std::io::Error::from_raw_os_error(code)));
            let error = UpstreamError::Connect { authority: "a".into(), cause };
            assert_eq!((error.is_of_this_process(), error.is_unreachable()), (is_ours, true), "{code}");
        }
    }

    #[test]
    fn a_handshake_that_ends_early_is_of_no_peer() {
        let of = |cause: std::io::Error| UpstreamError::Tls { authority: "a".into(), cause: Cause::new(cause) };
        let ended = of(std::io::ErrorKind::UnexpectedEof.into());
        assert!(ended.is_about_certificates() && !ended.is_of_tls_peer());
        assert!(of(std::io::Error::other(rustls::Error::UnsupportedNameType)).is_of_tls_peer());
    }
}
