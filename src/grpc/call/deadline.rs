//! `grpc-timeout`: a call fails with DEADLINE_EXCEEDED when the deadline of its client has passed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::body::{Body, BoxError, trailers};
use super::status::Error;
use crate::codec::Slices;

/// A body that ends with DEADLINE_EXCEEDED at its deadline.
struct Limited {
    body: Body,
    /// `None` once it has passed.
    deadline: Option<Pin<Box<Sleep>>>,
}

/// The deadline of the client; `None` if the client sets none.
pub(in crate::grpc) fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    };
    Instant::now().checked_add(timeout)
}

pub(in crate::grpc) fn exceeded() -> Status {
    Error::deadline().into()
}

/// Ends a body at the deadline.
pub(in crate::grpc) fn limit(body: Body, deadline: Instant) -> Body {
    Limited { body, deadline: Some(Box::pin(sleep_until(deadline))) }.boxed_unsync()
}

// === impl Limited ===

impl http_body::Body for Limited {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let this = &mut *self;
        if this.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            // Nothing follows the trailers.
            (this.body, this.deadline) = (Body::default(), None);
            return Poll::Ready(Some(trailers(&exceeded())));
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<f64> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", text.parse().unwrap());
        let now = Instant::now();
        deadline(&headers).map(|deadline| (deadline - now).as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts() {
        assert_eq!(seconds("2H"), Some(7200.0));
        assert_eq!(seconds("99999999S"), Some(99_999_999.0));
        assert_eq!(seconds("1500m"), Some(1.5));
        for bad in ["", "S", "1", "123456789S", "-1S", "1x", "1 S"] {
            assert_eq!(seconds(bad), None, "{bad:?}");
        }
    }
}
