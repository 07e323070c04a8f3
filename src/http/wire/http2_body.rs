//! The body of an answer over HTTP/2.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use h2::{Reason, SendStream};
use http::HeaderMap;
use http_body::Body as _;

use crate::codec::Slices;
use crate::http::answer::Body;
use crate::lifecycle::contained;
use crate::lifecycle::multiplexer::Multiplexed;
use crate::lifecycle::turn::{FRAMES, Turn};
use crate::memory::Cut;

/// Sends a body on its stream. It asks the body for more only when the last frame was sent, or waits for a window of the client
/// in the buffer of its stream (flow control, back-pressure). Ready when the body has ended, the client wants no more of it, or
/// its answer was given up. If it is dropped before, the stream is reset.
#[derive(Debug)]
pub(super) struct Http2Body {
    body: Body,
    stream: SendStream<Slices>,
    /// Boxed, because it is seldom there, and an idle watch should be small.
    waiting: Option<Box<WaitingFrame>>,
    /// The end of the answer from outside. Its stream ends once the client has taken all of it: a stream that has ended earlier,
    /// with data that its client does not take, could no longer be reset.
    cut: Option<Cut>,
}

/// What is sent next.
#[derive(Debug)]
enum WaitingFrame {
    /// There is no window for it.
    Data(Slices),
    /// The end, which waits for what the client has not taken.
    End,
    Trailers(HeaderMap),
}

// === impl Http2Body ===

impl Http2Body {
    pub(super) fn new(body: Body, stream: SendStream<Slices>, cut: Option<Cut>) -> Self {
        Self { body, stream, waiting: None, cut }
    }

    pub(super) async fn send(mut self) {
        poll_fn(|cx| {
            while ready!(self.poll_frame(cx)).is_some() {}
            Poll::Ready(())
        })
        .await;
    }

    /// Sends the next frame, and returns its size; 0 if others should run before it goes on, as only watches say. `None` if it was the
    /// last one.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        if self.cut.as_ref().is_some_and(|cut| cut.poll_cut(cx).is_ready()) {
            return self.fail(Reason::INTERNAL_ERROR);
        }
        let next = match self.waiting.take() {
            Some(waiting) => *waiting,
            None => match self.poll_next(cx) {
                Poll::Ready(Ok(next)) => next,
                Poll::Ready(Err(reason)) => return self.fail(reason),
                // The client may have cancelled it.
                Poll::Pending => return self.stream.poll_reset(cx).map(|_| None),
            },
        };
        match next {
            // The client may have cancelled it.
            WaitingFrame::Data(data) if data.is_empty() => match self.stream.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => Poll::Ready(Some(0)),
            },
            WaitingFrame::Data(data) => self.poll_data(cx, data),
            last if self.cut.as_ref().is_some_and(|cut| cut.poll_taken(cx).is_pending()) => {
                self.waiting = Some(Box::new(last));
                self.stream.poll_reset(cx).map(|_| None)
            }
            WaitingFrame::End => self.sent(|stream| stream.send_data(Slices::new(), true)),
            WaitingFrame::Trailers(trailers) => self.sent(|stream| stream.send_trailers(trailers)),
        }
    }

    /// What the body has next.
    ///
    /// # Errors
    /// It fails. Its own error may be a code; that of the apiserver's stream is wrapped in another error, and does not count.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WaitingFrame, Reason>> {
        // The other streams of the connection go on.
        let polled = contained("body", || Pin::new(&mut self.body).poll_frame(cx));
        let frame = ready!(polled.unwrap_or_else(|| Poll::Ready(Some(Err("the body has panicked".into())))));
        Poll::Ready(match frame {
            None => Ok(WaitingFrame::End),
            Some(Err(error)) => {
                tracing::debug!(%error, "the body of an answer has failed");
                Err(error.downcast_ref().and_then(h2::Error::reason).unwrap_or(Reason::INTERNAL_ERROR))
            }
            Some(Ok(frame)) => Ok(match frame.into_data() {
                Ok(data) => WaitingFrame::Data(data),
                Err(frame) => WaitingFrame::Trailers(frame.into_trailers().unwrap_or_default()),
            }),
        })
    }

    fn poll_data(&mut self, cx: &mut Context<'_>, data: Slices) -> Poll<Option<usize>> {
        // The reservation wakes whoever polled the stream last. That would be this future, which runs already, and polls the stream
        // again before it waits.
        if self.stream.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Poll::Ready(None);
        }
        // One byte, so that a stream that waits takes nothing of the connection's window from the others.
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.waiting = Some(Box::new(WaitingFrame::Data(data)));
                    return self.stream.poll_reset(cx).map(|_| None);
                }
            }
        }
        let (size, is_last) = (data.len(), self.cut.is_none() && self.body.is_end_stream());
        let sent = self.stream.send_data(data, is_last);
        Poll::Ready((sent.is_ok() && !is_last).then_some(size))
    }

    fn sent(&mut self, send: impl FnOnce(&mut SendStream<Slices>) -> Result<(), h2::Error>) -> Poll<Option<usize>> {
        if send(&mut self.stream).is_err() { self.fail(Reason::INTERNAL_ERROR) } else { Poll::Ready(None) }
    }

    /// It must say so: some clients take a stream that is cancelled, or reset without an error, for one that has ended.
    fn fail(&mut self, reason: Reason) -> Poll<Option<usize>> {
        self.stream.send_reset(reason);
        Poll::Ready(None)
    }
}

impl Multiplexed for Http2Body {
    fn poll(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()> {
        for _ in 0..FRAMES {
            if turn.is_over() {
                break;
            }
            match ready!(self.poll_frame(cx)) {
                Some(0) => {
                    turn.pauses();
                    break;
                }
                Some(size) => turn.wrote(size),
                None => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "http2_body_tests.rs"]
mod tests;
