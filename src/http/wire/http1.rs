//! Connections over HTTP/1.1. The library reads requests and writes answers. Once it has written the head of a watch,
//! the connection is taken from it, with its buffers, until the watch has ended.
//!
//! The library does not say when it reads a head. It does so from the beginning of the connection, and after each answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io::Bounded;
use super::parting::LastAnswer;
use super::serving::Serving;
use super::watch_shards::{Sharded, WatchShards};
use super::watch_writer::WatchWriter;
use crate::codec::Slices;
use crate::http::answer::{Body, BoxError, error};
use crate::http::door::{FREE, OpenHead, READ};
use crate::lifecycle::multiplexer::IsWatch;
use crate::lifecycle::turn::Turn;
use crate::memory::Cut;

/// One connection.
pub(super) struct Http1<'a, S, V: HttpService<Incoming>> {
    builder: &'a Builder,
    shards: &'a WatchShards,
    service: V,
    handover: Arc<Handover>,
    stage: Http1Stage<S, V>,
    /// No request is accepted after the running one.
    is_closing: bool,
}

/// Who has the connection.
enum Http1Stage<S, V: HttpService<Incoming>> {
    Library(Box<UpgradeableConnection<TokioIo<Handed<S>>, V>>),
    /// A watch that has something to write.
    Watch(Box<WatchWriter<S>>),
    /// A watch that waits for events.
    Sharded(Sharded<S>),
    Closing(Bounded<S>),
    /// A request was refused before it was complete.
    Parting(Box<LastAnswer<S>>, Option<BoxError>),
    Over,
}

/// The body of a watch, from the answer of the service until the library has written the head.
pub(in crate::http) struct Handover {
    watch: Mutex<Option<HandoverWatch>>,
    /// Gives up the last answer.
    cut: Mutex<Option<Cut>>,
    reading: Mutex<Reading>,
}

/// What the library reads.
struct Reading {
    head: OpenHead,
    stage: ReadStage,
}

#[derive(Clone, Copy)]
enum ReadStage {
    /// A head, of which so many bytes have come.
    Head(usize),
    /// The body of a request, or the bytes of an upgraded connection. Of a further request, the library reads one part at
    /// most.
    Request,
    /// Nothing more.
    Last,
}

/// An answer that is not a watch.
struct RunningAnswer {
    body: Body,
    _answering: Answering,
}

/// The library drops it when it needs no more of the answer.
struct Answering(Arc<Handover>);

/// A watch that is being handed over: what the [`WatchWriter`] will write.
struct HandoverWatch {
    body: Body,
    /// The client wants no further answer on this connection.
    is_last: bool,
    head: Head,
}

#[derive(Clone, Copy, PartialEq)]
enum Head {
    /// The library may not have taken all of it.
    Given,
    /// The library holds it, and nothing else.
    Taken,
    /// The library holds nothing.
    Written,
}

/// What decides about a handover in a request.
pub(in crate::http) struct HandoverRequest {
    may_hand_over: bool,
    is_last: bool,
}

/// The body that the library gets instead. It never has a frame.
struct InPlace(Answering);

/// The socket for the library.
struct Handed<S> {
    io: Bounded<S>,
    handover: Arc<Handover>,
    /// The library has nothing to write.
    is_flushed: bool,
}

// === impl Http1 ===

impl<'a, S, V> Http1<'a, S, V>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Clone,
    V::Error: Into<BoxError>,
{
    /// The service must pass its answers through [`Handover::answer`].
    pub(super) fn new(
        builder: &'a Builder,
        shards: &'a WatchShards,
        io: Bounded<S>,
        handover: Arc<Handover>,
        service: V,
    ) -> Self {
        let mut http1 = Self { builder, shards, service, handover, stage: Http1Stage::Over, is_closing: false };
        http1.stage = http1.library(io);
        http1
    }

    fn library(&self, io: Bounded<S>) -> Http1Stage<S, V> {
        let io = TokioIo::new(Handed { io, handover: Arc::clone(&self.handover), is_flushed: true });
        Http1Stage::Library(Box::new(self.builder.serve_connection(io, self.service.clone()).with_upgrades()))
    }

    /// Takes the connection from the library if it has written the head of a watch.
    fn take_over(&mut self) -> bool {
        let written = self.handover.watch.lock().take_if(|watch| watch.head == Head::Written);
        let Some(watch) = written else { return false };
        let Http1Stage::Library(library) = std::mem::replace(&mut self.stage, Http1Stage::Over) else { return false };
        // There are no parts after an upgrade, and then there is no watch.
        let Some(parts) = library.into_parts() else { return false };
        self.is_closing |= watch.is_last;
        // A copy, so that the buffer of the library is not kept.
        let early = parts.read_buf.to_vec();
        let io = parts.io.into_inner().io;
        self.handover.reading.lock().start_over();
        self.stage = Http1Stage::Watch(Box::new(WatchWriter::new(io, watch.body, early)));
        true
    }

    /// The library has failed. If it has refused a request, or reads no more of it, the client gets to read why.
    fn part(&mut self, error: hyper::Error) -> Result<(), BoxError> {
        // The answer is dropped with the library, as if it had ended.
        let is_head = matches!(self.handover.reading.lock().stage, ReadStage::Head(_));
        let parts = match std::mem::replace(&mut self.stage, Http1Stage::Over) {
            Http1Stage::Library(library) => library.into_parts(),
            _ => None,
        };
        let Some(parts) = parts else { return Err(error.into()) };
        let Handed { io, is_flushed, .. } = parts.io.into_inner();
        let answer = match error.is_parse() {
            true => Bytes::new(),
            false if io.is_refused() && is_flushed && is_head => error::large_head(),
            false => return Err(error.into()),
        };
        self.stage = Http1Stage::Parting(Box::new(LastAnswer::new(io, answer)), Some(error.into()));
        Ok(())
    }

    /// Hands a watch that has nothing to write now over to a shard.
    fn wait(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Http1Stage::Over);
        let Http1Stage::Watch(writer) = stage else { return };
        self.stage = Http1Stage::Sharded(self.shards.run(*writer));
    }

    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>>
    where
        V: Unpin,
    {
        loop {
            match &mut self.stage {
                Http1Stage::Library(library) => {
                    match Pin::new(library).poll(cx) {
                        Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                        Poll::Ready(Err(error)) => {
                            self.part(error)?;
                            continue;
                        }
                        Poll::Pending => {}
                    }
                    if !self.take_over() {
                        return Poll::Pending;
                    }
                }
                Http1Stage::Watch(writer) => match writer.poll(cx, &mut Turn::new()) {
                    Poll::Pending if writer.waits => self.wait(),
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(result) => {
                        result?;
                        if let Http1Stage::Watch(writer) = std::mem::replace(&mut self.stage, Http1Stage::Over) {
                            self.go_on(writer.into_io());
                        }
                    }
                },
                Http1Stage::Sharded(watch) => {
                    let writer = ready!(watch.poll(cx))?;
                    self.go_on(writer.into_io());
                }
                Http1Stage::Closing(io) => return Pin::new(io).poll_shutdown(cx).map_err(Into::into),
                Http1Stage::Parting(answer, error) => {
                    ready!(answer.poll(cx));
                    return Poll::Ready(error.take().map_or(Ok(()), Err));
                }
                Http1Stage::Over => return Poll::Ready(Ok(())),
            }
        }
    }

    /// After a watch.
    fn go_on(&mut self, io: Bounded<S>) {
        self.stage = if self.is_closing { Http1Stage::Closing(io) } else { self.library(io) };
    }
}

impl<S, V> Future for Http1<'_, S, V>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Clone + Unpin,
    V::Error: Into<BoxError>,
{
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_stage(cx);
        if polled.is_pending() {
            return self.handover.poll_cut(cx).map(|()| Err("an answer was given up".into()));
        }
        polled
    }
}

impl<S, V> Serving for Http1<'_, S, V>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: HttpService<Incoming, ResBody = Body> + Clone + Unpin,
    V::Error: Into<BoxError>,
{
    fn graceful_shutdown(mut self: Pin<&mut Self>) {
        self.is_closing = true;
        if let Http1Stage::Library(library) = &mut self.stage {
            Pin::new(&mut **library).graceful_shutdown();
        }
    }
}

// === impl Handover ===

impl Handover {
    pub(in crate::http) fn new(head: OpenHead) -> Arc<Self> {
        let reading = Mutex::new(Reading { head, stage: ReadStage::Head(0) });
        Arc::new(Self { watch: Mutex::default(), cut: Mutex::default(), reading })
    }

    /// Must be called with each request, before the service gets it. `is_last`: the connection takes no further one.
    pub(in crate::http) fn asked(&self, request: &Request<Incoming>, is_last: bool) -> HandoverRequest {
        use http_body::Body as _;
        let plain = request.version() == Version::HTTP_11 && request.method() == Method::GET;
        let is_last = self.reading.lock().end_head() || is_last || says_close(request.headers());
        HandoverRequest { may_hand_over: plain && request.body().is_end_stream(), is_last }
    }

    /// The answer for the library. The body of a watch is kept back.
    pub(in crate::http) fn answer(
        self: &Arc<Self>,
        asked: &HandoverRequest,
        mut response: Response<Body>,
    ) -> Response<Body> {
        *self.cut.lock() = response.extensions_mut().remove();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        if asked.is_last {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let headers = response.headers();
        let is_watch = response.status() == StatusCode::OK && response.extensions().get::<IsWatch>().is_some();
        let is_framed = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        if !asked.may_hand_over || !is_watch || is_framed {
            return response.map(|body| Body::new(RunningAnswer { body, _answering: Answering(Arc::clone(self)) }));
        }
        let is_last = says_close(headers);
        let (head, body) = response.into_parts();
        *self.watch.lock() = Some(HandoverWatch { body, is_last, head: Head::Given });
        Response::from_parts(head, Body::new(InPlace(Answering(Arc::clone(self)))))
    }

    /// Ready once the answer is given up: then the connection ends, because it may be stuck within the answer.
    fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.cut.lock().as_ref().map_or(Poll::Pending, |cut| cut.poll_cut(cx))
    }

    /// Notes what the library has done with the head of the watch, if there is one.
    fn advance_head(&self, before: Head, now: Head) {
        if let Some(watch) = &mut *self.watch.lock()
            && watch.head == before
        {
            watch.head = now;
        }
    }
}

// === impl Reading ===

impl Reading {
    /// A head is complete. Returns whether it was large. The library's buffer then keeps its memory as long as the
    /// connection lasts. So the connection takes no further request, and the reservation stays.
    fn end_head(&mut self) -> bool {
        let is_large = matches!(self.stage, ReadStage::Head(read) if read > FREE);
        if !is_large {
            self.head.close();
        }
        self.stage = ReadStage::Request;
        is_large
    }

    /// The library, with its buffer, is gone.
    fn start_over(&mut self) {
        self.head.close();
        self.stage = ReadStage::Head(0);
    }

    /// The bytes that may be read now.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.stage {
            ReadStage::Head(read) => self.head.poll_room(cx, read),
            ReadStage::Request => Poll::Ready(Ok(READ)),
            // The library ends the connection.
            ReadStage::Last => Poll::Pending,
        }
    }
}

// === impl Answering ===

impl Drop for Answering {
    fn drop(&mut self) {
        let mut reading = self.0.reading.lock();
        reading.stage = if reading.head.is_open() { ReadStage::Last } else { ReadStage::Head(0) };
    }
}

fn says_close(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

// === impl RunningAnswer ===

impl http_body::Body for RunningAnswer {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        // The library would ask again at once.
        if let Some(Ok(frame)) = &frame
            && frame.data_ref().is_some_and(Slices::is_empty)
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl InPlace ===

impl http_body::Body for InPlace {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        // The library asks for the body, so it has taken the head.
        self.0.0.advance_head(Head::Given, Head::Taken);
        Poll::Pending
    }
}

// === impl Handed ===

impl<S: AsyncRead + Unpin> AsyncRead for Handed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let size = ready!(self.handover.reading.lock().poll_room(cx))?.min(buf.remaining());
        // The library's buffer grows with the size of a read, and does not shrink.
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(size));
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        if let ReadStage::Head(all) = &mut self.handover.reading.lock().stage {
            *all += read;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Handed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.is_flushed = true;
        // The library flushes only when it holds nothing else to write.
        self.handover.advance_head(Head::Taken, Head::Written);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "http1_tests.rs"]
mod tests;
