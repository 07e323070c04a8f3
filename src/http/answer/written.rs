//! Bodies of gets and lists. Decides which are compressed, which are sent with their length, and which are written
//! while they are sent.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::request::Parts;
use http::{HeaderValue, Response, Version};
use hyper::upgrade::OnUpgrade;

use super::body::{self, Body};
use super::copies::Copies;
use super::error::{another_server, short};
use super::framing;
use super::gzip::{self, Compressed, Gzip, Key};
use super::handshake::Handshake;
use super::list_body::{ListBody, Rest, Sent};
use super::list_writer::{BodyStep, ListWriter};
use super::wanted::WantedFormat;
use super::watch_body::WatchBody;
use super::writer::Writer;
use crate::auth::Lease;
use crate::auth::audit::Entry;
use crate::codec::{Form, Slices};
use crate::http::door::Connection;
use crate::http::record::HttpMetrics;
use crate::lifecycle::ending::Ending;
use crate::memory::{Cut, Ledger, Reservation, StallGuards};
use crate::meta::{Encoding, Status, errors};
use crate::reads::{GetAnswer, ListAnswer, Rent, Served, WatchAnswer};

/// Produces the bodies of answers from a cache.
pub(in crate::http) struct Bodies {
    gzip: Gzip,
    ledger: Ledger,
    stall_guards: StallGuards,
    metrics: Arc<HttpMetrics>,
}

/// How the client accepts bodies.
pub(in crate::http) struct BodyOptions {
    pub(in crate::http) wanted: WantedFormat,
    gzip: bool,
    /// Bodies up to this size are sent with their length.
    short: usize,
    /// A stream keeps what its client does not take, and the connection goes on.
    is_stream: bool,
    /// The connection that the answer goes over.
    pub(in crate::http) connection: Arc<Connection>,
    /// Present if a watch goes over a WebSocket.
    pub(in crate::http) socket: Option<Socket>,
    /// The memory of the request, as far as it is not small.
    pub(in crate::http) room: Option<Arc<Reservation>>,
}

/// A connection that is upgraded to a WebSocket.
pub(in crate::http) struct Socket {
    pub(in crate::http) handshake: Handshake,
    pub(in crate::http) client: OnUpgrade,
}

/// An answer from a cache.
pub(in crate::http) struct Answered {
    /// With the headers that describe its body.
    pub(in crate::http) response: Response<Body>,
    pub(in crate::http) served: Served,
}

/// A body, and how it can be cut.
struct Written {
    body: Body,
    cut: Option<Cut>,
    gzip: bool,
}

/// So many bytes of an answer are not worth to be looked after: small gets are cheap.
const LITTLE: usize = 4 << 10;

// === impl Bodies ===

impl Bodies {
    pub(in crate::http) fn new(
        gzip_bytes: u64,
        ledger: &Ledger,
        stall_guards: StallGuards,
        metrics: &Arc<HttpMetrics>,
    ) -> Self {
        let (ledger, metrics) = (ledger.clone(), Arc::clone(metrics));
        Self { gzip: Gzip::new(gzip_bytes, ledger.clone(), Arc::clone(&metrics)), ledger, stall_guards, metrics }
    }

    /// # Errors
    /// The bytes of the object are damaged, or memory is short.
    pub(in crate::http) async fn object(
        &self,
        mut answer: GetAnswer,
        taken: &BodyOptions,
    ) -> Result<Answered, Box<Status>> {
        answer.shape = answer.shape.as_of_now();
        let rent = answer.rent.take();
        let GetAnswer { form, shape, object, served, .. } = &answer;
        let indent = taken.indents(form);
        let (mut copies, bytes) = (Copies::new(&self.ledger), form.copied(object, None, *shape));
        if bytes > LITTLE {
            copies.reserve(bytes).map_err(|_| self.refused())?;
        }
        let body = form.object_body(object, *shape).map_err(errors::damaged)?;
        let writer = Writer::object(body, indent, copies);
        let written = self.written(Key::object(&answer, indent), writer, taken, |metrics| &metrics.get_bytes).await?;
        Ok(Answered::new(form, written, *served, rent))
    }

    /// # Errors
    /// The bytes of one of the first objects are damaged, or memory is short. Those of a later one end the body with an
    /// error.
    pub(in crate::http) async fn list(
        &self,
        mut answer: ListAnswer,
        taken: &BodyOptions,
    ) -> Result<Answered, Box<Status>> {
        answer.shape = answer.shape.as_of_now();
        let (form, served, rent) = (Arc::clone(&answer.form), answer.served, answer.rent.take());
        let indent = taken.indents(&form);
        let (key, writer) = (Key::list(&answer, indent), Writer::list(ListWriter::new(answer), indent, &self.ledger));
        let written = self.written(key, writer, taken, |metrics| &metrics.list_bytes).await?;
        Ok(Answered::new(&form, written, served, rent))
    }

    pub(in crate::http) fn watch(
        &self,
        mut answer: WatchAnswer,
        mut lease: Lease,
        entry: Option<Entry>,
        ending: Ending,
    ) -> WatchBody {
        if let Some(proof) = answer.proof.take() {
            lease = lease.bound_by(async {
                let _ = proof.over().await;
                Box::new(another_server())
            });
        }
        WatchBody::new(answer, lease, entry, ending, &self.metrics, &self.ledger).guarded(&self.stall_guards)
    }

    async fn written(
        &self,
        key: Key,
        mut writer: Writer,
        taken: &BodyOptions,
        sent: Sent,
    ) -> Result<Written, Box<Status>> {
        let gzip = taken.gzip;
        let mut first = Slices::new();
        loop {
            match writer.step().map_err(errors::damaged)? {
                BodyStep::Frame(frame) => first.append(frame),
                // It must be known before the headers are sent whether the body is large enough to be compressed.
                BodyStep::Again if gzip => tokio::task::yield_now().await,
                BodyStep::Wait if first.is_empty() => return Err(self.refused()),
                // The rest waits for memory while the body is sent.
                BodyStep::Wait => break,
                // A search without a match so far goes on while the body is sent.
                BodyStep::Again | BodyStep::End => {}
            }
            // A short list fits into one frame.
            if writer.is_done() || !gzip || first.len() > gzip::THRESHOLD {
                break;
            }
        }
        if gzip && first.len() > gzip::THRESHOLD {
            match self.gzip.get(key, first, writer).await {
                Ok(compressed) => {
                    let (body, cut) = self.compressed(compressed, taken, sent).await;
                    return Ok(Written { body, cut, gzip: true });
                }
                // Without memory for compression the answer is sent uncompressed. A client that accepts gzip accepts
                // that too.
                Err(uncompressed) => (first, writer) = *uncompressed,
            }
        }
        self.metrics.list_objects.inc_by(writer.objects());
        if writer.is_done() {
            let (body, cut) = self.whole(first, taken.is_stream || writer.copies.any(), taken, sent);
            return Ok(Written { body, cut, gzip: false });
        }
        let (body, cut) = self.begun(first, Rest::Plain(Box::new(writer)), sent);
        Ok(Written { body, cut, gzip: false })
    }

    fn refused(&self) -> Box<Status> {
        self.ledger.note_refused();
        short().into()
    }

    async fn compressed(&self, compressed: Arc<Compressed>, taken: &BodyOptions, sent: Sent) -> (Body, Option<Cut>) {
        if let Some(all) = compressed.if_short(taken.short).await {
            self.metrics.list_objects.inc_by(compressed.objects());
            return self.whole(all, taken.is_stream, taken, sent);
        }
        self.begun(Slices::new(), Rest::Compressed(compressed, 0, Copies::new(&self.ledger)), sent)
    }

    fn begun(&self, first: Slices, rest: Rest, sent: Sent) -> (Body, Option<Cut>) {
        let body = ListBody::new(first, rest, &self.stall_guards, &self.metrics, sent);
        let cut = body.cut();
        (Body::new(body), Some(cut))
    }

    /// `looks_after`: it may stay in memory for as long as its client wants.
    fn whole(&self, all: Slices, looks_after: bool, taken: &BodyOptions, sent: Sent) -> (Body, Option<Cut>) {
        let is_short = all.len() <= taken.short;
        if !looks_after || all.len() <= LITTLE {
            sent(&self.metrics).inc_by(all.len() as u64);
            return (if is_short { body::full(all) } else { body::chunked(all) }, None);
        }
        let body = ListBody::new(all, Rest::Nothing, &self.stall_guards, &self.metrics, sent);
        let body = if is_short { body.sized() } else { body };
        let cut = body.cut();
        (Body::new(body), Some(cut))
    }
}

// === impl BodyOptions ===

impl BodyOptions {
    pub(in crate::http) fn of(request: &Parts, wanted: WantedFormat, connection: &Arc<Connection>) -> Self {
        let socket = |handshake| {
            let client = request.extensions.get::<OnUpgrade>()?.clone();
            Some(Socket { handshake, client })
        };
        Self {
            wanted,
            gzip: gzip::is_accepted(&request.headers),
            short: framing::short(request.version),
            is_stream: request.version == Version::HTTP_2,
            connection: Arc::clone(connection),
            socket: Handshake::of(request).and_then(socket),
            room: None,
        }
    }

    /// With the memory of the request.
    pub(in crate::http) fn within(self, room: Option<Arc<Reservation>>) -> Self {
        Self { room, ..self }
    }

    fn indents(&self, form: &Form) -> bool {
        self.wanted.indent && form.encoding() != Encoding::Protobuf
    }
}

// === impl Answered ===

impl Answered {
    fn new(form: &Form, written: Written, served: Served, rent: Option<Rent>) -> Self {
        let Written { body, cut, gzip } = written;
        let mut response = Response::new(body);
        if let Some(cut) = cut {
            response.extensions_mut().insert(cut);
        }
        if let Some(rent) = rent {
            response.extensions_mut().insert(rent.compressed(gzip));
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.media_type(false)));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        Self { response, served }
    }
}

#[cfg(test)]
#[path = "damaged_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "unread_tests.rs"]
mod unread_tests;
