//! The multiplexer of HTTP/2: one connection carries many streams. Each stream is a task of its own until its answer has begun.
//! The task of the connection runs the bodies of its watches ([`Multiplexer`]), and writes what all streams have sent.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use futures_util::task::AtomicWaker;
use h2::Reason;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use http::{Method, Request, Response};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::unconstrained;

use super::http2_body::Http2Body;
use super::http2_socket::Http2Socket;
use super::keep_alive::KeepAlive;
use super::response_head;
use super::serving::Serving;
use crate::codec::Slices;
use crate::http::answer::{Body, BoxError, BoxFuture, RequestBody};
use crate::lifecycle::multiplexer::{IsWatch, Multiplexer, MultiplexerHandle};
use crate::lifecycle::spawn;
use crate::lifecycle::turn::Turn;
use crate::memory::Cut;

/// An answer, or the code with which its stream is reset.
pub(in crate::http) type Answered = BoxFuture<Result<Response<Body>, Reason>>;

/// One connection.
pub(super) struct Http2<S, F> {
    // Dropped first: a watch tells the connection of its end.
    watches: Multiplexer<Http2Body>,
    stage: StreamStage<S>,
    library: Arc<LibraryWaker>,
    socket: Http2Socket<S>,
    /// Begins to answer a request. `None` if its stream has to be reset at once: nothing has been made for it.
    begin: F,
    is_closing: bool,
}

enum StreamStage<S> {
    Handshake(Box<Handshake<Http2Socket<S>, Slices>>),
    Serving(Box<Connection<Http2Socket<S>, Slices>>, KeepAlive),
}

/// Wakes the task of a connection for the library, which the task polls after its watches. A watch that sends something wakes the
/// library: the task must not be scheduled once more for that.
///
/// No wake is lost. If one finds `is_next` set, the task has been woken and has not polled the library since, or it runs its
/// watches. In both cases it polls the library later. It clears `is_next` before, by a swap: so it sees what was done before each
/// of these wakes.
#[derive(Default)]
struct LibraryWaker {
    task: AtomicWaker,
    is_next: AtomicBool,
}

// === impl LibraryWaker ===

impl Wake for LibraryWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_next.swap(true, Ordering::AcqRel) {
            self.task.wake();
        }
    }
}

// === impl Http2 ===

impl<S, F> Http2<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Request<RequestBody>, bool) -> Option<Answered>,
{
    /// `begin` gets a request, and whether the connection should take no more.
    pub(super) fn new(builder: &Builder, socket: Http2Socket<S>, begin: F) -> Self {
        let stage = StreamStage::Handshake(Box::new(builder.handshake(Http2Socket(Arc::clone(&socket.0)))));
        Self { watches: Multiplexer::new(), stage, library: Arc::default(), socket, begin, is_closing: false }
    }

    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            let (connection, keep_alive) = match &mut self.stage {
                StreamStage::Serving(connection, keep_alive) => (connection, keep_alive),
                StreamStage::Handshake(handshake) => {
                    let mut connection = ready!(Pin::new(&mut **handshake).poll(cx))?;
                    let Some(pings) = connection.ping_pong() else { return Poll::Ready(Ok(())) };
                    if self.is_closing {
                        connection.graceful_shutdown();
                    }
                    self.stage = StreamStage::Serving(Box::new(connection), KeepAlive::new(pings));
                    continue;
                }
            };
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, response)))) => self.accept(request, response),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                // All that the client has sent was read.
                Poll::Pending => {
                    let heard = self.socket.0.lock().reads;
                    return keep_alive.poll(cx, heard).map(|()| Err("client does not answer a ping".into()));
                }
            }
        }
    }

    fn accept(&mut self, request: Request<h2::RecvStream>, mut response: SendResponse<Slices>) {
        let (head, stream) = request.into_parts();
        let is_head = head.method == Method::HEAD;
        let body = RequestBody::http2(stream, &head.headers);
        let is_worn = self.socket.0.lock().is_worn();
        match (self.begin)(Request::from_parts(head, body), is_worn) {
            None => response.send_reset(Reason::REFUSED_STREAM),
            Some(answered) => _ = spawn("stream", answer(answered, is_head, response, self.watches.handle())),
        }
    }
}

/// Sends an answer, unless the client cancels the request before. The connection has the body of a watch.
async fn answer(
    mut answered: Answered,
    is_head: bool,
    mut stream: SendResponse<Slices>,
    watches: MultiplexerHandle<Http2Body>,
) {
    let answered = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Pending => stream.poll_reset(cx).map(|_| None),
        answered => answered.map(Some),
    });
    let mut response = match answered.await {
        None => return,
        Some(Err(reason)) => return stream.send_reset(reason),
        Some(Ok(response)) => response,
    };
    let cut = response.extensions_mut().remove::<Cut>();
    let is_watch = response.extensions().get::<IsWatch>().is_some();
    let (mut head, body) = response.into_parts();
    response_head::complete(&mut head, &body);
    // The answer to a HEAD tells the length of a body that does not follow.
    let is_over = is_head || body.is_end_stream();
    let sent = match stream.send_response(Response::from_parts(head, ()), is_over) {
        Ok(sent) if !is_over => sent,
        Ok(_) => return,
        Err(error) => {
            tracing::debug!(%error, "an answer cannot be sent");
            return stream.send_reset(Reason::INTERNAL_ERROR);
        }
    };
    let has_length = body.size_hint().exact().is_some();
    let body = Http2Body::new(body, sent, cut);
    if is_watch && !has_length { watches.run(body) } else { body.send().await }
}

impl<S, F> Future for Http2<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Request<RequestBody>, bool) -> Option<Answered> + Unpin,
{
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.library.task.register(cx.waker());
        self.library.is_next.swap(true, Ordering::AcqRel);
        // A turn bounds what they do. The budget of the task is for what the connection reads and writes.
        let watches = &mut self.watches;
        let run = poll_fn(|cx| Poll::Ready(watches.poll(cx, &mut Turn::new())));
        let _ = pin!(unconstrained(run)).poll(cx);
        let library = Waker::from(Arc::clone(&self.library));
        self.library.is_next.swap(false, Ordering::AcqRel);
        let polled = self.poll_stage(&mut Context::from_waker(&library));
        // The library has given its frames to the socket, which has gathered them for one write.
        let written = self.socket.poll_drain(cx);
        match (polled, written) {
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
            (polled, _) => polled,
        }
    }
}

impl<S, F> Serving for Http2<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Request<RequestBody>, bool) -> Option<Answered> + Unpin,
{
    fn graceful_shutdown(mut self: Pin<&mut Self>) {
        self.is_closing = true;
        if let StreamStage::Serving(connection, _) = &mut self.stage {
            connection.graceful_shutdown();
        }
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
