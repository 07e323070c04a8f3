//! Produces the answer to a request: by the guard, the read path, or the apiserver.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, WARNING};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use tracing::{Instrument as _, Span};

use super::access_log::AccessLog;
use super::answer::{
    AUDIT_ID, Answered, Bodies, Body, BodyOptions, BoxFuture, Handler, NO_CACHE, Parsed, Patient, RequestBody,
    SHORTEST, Socket, audit_id, body, draining, framing, head, of_ourselves, read, respond, too_many_waiting, wanted,
    websocket,
};
use super::door::{Connection, Guard, ListenAddr};
use super::record::{HttpMetrics, NOT_FORWARDED, Plan};
use super::request_record::RequestRecord;
use super::spans;
use super::wire::NoRoom;
use crate::auth::audit::{self, Audit, Entry};
use crate::auth::{self, Access, Attributes, Grant, Lease, Mode, Subject, Term, Verdict};
use crate::codec::json;
use crate::codec::negotiate::StatusForm;
use crate::lifecycle::{Fatal, drain::DrainWatch, ending::Ending, multiplexer::IsWatch, spawn, spawn_supervised};
use crate::memory::{Ledger, Reservation, StallGuards};
use crate::meta::{RequestInfo, Status, Verb, errors};
use crate::passthrough::{Forward, ForwardError, Tunnel, VIA, warn};
use crate::reads::{ForwardReason, Outcome, ReadRequest, Reads, WatchAnswer, refusal};
use crate::telemetry::gauge::Raised;
use crate::telemetry::seldom::Seldom;

/// Answers every request of the listeners.
#[derive(Clone)]
pub struct Service {
    inner: Arc<ServiceInner>,
}

pub(super) struct ServiceInner {
    pub(super) parts: ServiceParts,
    pub(super) reads: Reads,
    trusted: Reads,
    bodies: Bodies,
    /// Everybody who knows the value of [`VIA`] can cause this line.
    loops: Seldom,
}

/// The parts of the service, besides the read path.
pub struct ServiceParts {
    pub guard: Guard,
    /// Authorization: which clients may read what.
    pub access: Access,
    /// The audit log: which clients read what.
    pub audit: Audit,
    /// The access log: all requests.
    pub access_log: AccessLog,
    pub forward: Forward,
    pub drain: DrainWatch,
    /// When a drain starts, the ends of open watches are spread over this time.
    pub drain_spread: Duration,
    /// An answer is abandoned if its client reads nothing of it for this long.
    pub stall_timeout: Duration,
    pub stall_guards: StallGuards,
    /// Accounts for the memory of compressed answers, and decides whether there is memory for one more answer.
    pub ledger: Ledger,
    /// Whether every answer carries a header that explains how it was produced.
    pub explain: bool,
    /// Whether trusted clients over TCP may open sessions in pods with the daemon's identity, where it is lent.
    pub lend_sessions: bool,
    /// The value of the [`VIA`] header in our own requests to the apiserver.
    pub via: HeaderValue,
    /// Answers gRPC calls. Without it, they are handled like any other request.
    pub grpc: Option<Arc<dyn Handler>>,
    pub gzip_bytes: u64,
    pub metrics: Arc<HttpMetrics>,
}

// === impl Service ===

impl Service {
    /// Must be called inside a runtime: it starts the task that ends stalled lists.
    pub fn start(reads: Reads, parts: ServiceParts, fatal: &Fatal) -> Self {
        let (stall_guards, metrics) = (parts.stall_guards.clone(), Arc::clone(&parts.metrics));
        let count = move |stalled| _ = metrics.lists_stalled.inc_by(stalled);
        let watch = stall_guards.clone().watch(parts.stall_timeout, parts.ledger.pressure().clone(), count);
        spawn_supervised("stalled-lists", watch, fatal);
        let bodies = Bodies::new(parts.gzip_bytes, &parts.ledger, stall_guards, &parts.metrics);
        let (trusted, loops) = (reads.for_trusted(), Seldom::new(Duration::from_secs(60)));
        Self { inner: Arc::new(ServiceInner { parts, reads, trusted, bodies, loops }) }
    }
}

impl Handler for Service {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let (inner, connection) = (Arc::clone(&self.inner), Arc::clone(connection));
        let (request, span) = spans::begin(request, &connection);
        let within = span.clone();
        let heard = match connection.hear(&request) {
            Ok(heard) => heard,
            Err(why) => {
                connection.close();
                return Box::pin(std::future::ready(respond(&Status::from(why), StatusForm::default())));
            }
        };
        let answer = async move {
            let _heard = heard;
            let version = request.version();
            let ServiceParts { grpc, metrics, access_log, .. } = &inner.parts;
            let is_grpc = grpc.is_some() && framing::is_grpc(version, request.headers());
            let client = RequestRecord::begin(&request, &connection, is_grpc, metrics, access_log);
            if let Some(refused) = framing::refused(&request) {
                return client.answered(refused);
            }
            let upgrades = auth::wants_upgrade(request.headers());
            let answer = inner.answer(request, &connection, &span, &client).await;
            let response = connection.left_by(framing::for_version(answer, version), version, upgrades);
            spans::answered(&span, &response);
            client.answered(response)
        };
        Box::pin(answer.instrument(within))
    }
}

// === impl ServiceInner ===

impl ServiceInner {
    async fn answer(
        &self,
        request: Request<RequestBody>,
        connection: &Arc<Connection>,
        span: &Span,
        client: &Arc<RequestRecord>,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let audit_id = audit_id(&head.headers);
        let form = || wanted::status(&head.headers, &head.uri).unwrap_or_default();
        if head.extensions.get::<NoRoom>().is_some() {
            return self.refuse(&too_many_waiting(), form(), audit_id);
        }
        if let Err(error) = self.parts.guard.check(&head, &connection.listener) {
            return self.refuse(&Status::from(&error), StatusForm::default(), audit_id);
        }
        if head.headers.get_all(VIA).iter().any(|via| *via == self.parts.via) {
            if let Some(left_out) = self.loops.turn() {
                tracing::error!(listener = %connection.listener, left_out, "the kubeconfig leads to informerd itself");
            }
            return self.refuse(&of_ourselves(), StatusForm::default(), audit_id);
        }
        if let Err(status) = self.welcome(&head.headers, connection).await {
            return self.refuse(&status, form(), audit_id);
        }
        if let Some(grpc) = self.parts.grpc.as_ref().filter(|_| framing::is_grpc(head.version, &head.headers)) {
            let lasting = connection.lasting(head.uri.path()).map_err(|why| Box::new(why.into()));
            let room = head::room(&self.parts.ledger, &head, None, || self.paying(&head.headers, connection)).await;
            let (lasting, _room) = match lasting.and_then(|lasting| Ok((lasting, room?))) {
                Ok(lasting) => lasting,
                Err(status) => return self.refuse(&status, StatusForm::default(), audit_id),
            };
            let mut request = Request::from_parts(head, body);
            // The user is only known once the call is authenticated.
            request.extensions_mut().insert(Arc::clone(client));
            return grpc.handle(request, connection).await.map(|body| body::with(body, lasting));
        }
        let info = RequestInfo::parse(head.method.as_str(), head.uri.path(), head.uri.query().unwrap_or_default());
        if info.is_resource && info.verb == Verb::Watch && self.parts.drain.is_draining() {
            return self.refuse(&draining(), form(), audit_id);
        }
        let paying = || self.paying(&head.headers, connection);
        let room = match head::room(&self.parts.ledger, &head, Some(&info), paying).await {
            Ok(room) => room,
            Err(why) => return self.refuse(&why, form(), audit_id),
        };
        let mut asked = None;
        let (answered, mut plan) = match read::parse(&head, &info, connection.listener.mode()) {
            Parsed::Read(mut read, wanted) => match self.authorize(&head, &info, connection, &audit_id).await {
                Ok(Some((grant, entry))) => {
                    // Only the newest state is kept from strangers.
                    let is_newest = read.options.resource_version.is_empty();
                    let mut reads = self.reads_of(connection);
                    if read.own_credentials && is_newest && self.reads.minds_credentials(&read.gvr, info.verb) {
                        read.own_credentials = !self.parts.access.is_ours(&head.headers).await;
                        if read.own_credentials && self.may_read(&head, &info, &mut asked).await {
                            // It has a user, so nothing is answered that may depend on who asks.
                            (read.own_credentials, reads) = (false, &self.reads);
                        }
                    }
                    client.allowed_by(&grant);
                    let taken = BodyOptions::of(&head, wanted, connection).within(room.clone());
                    self.read(reads, (*read, info.verb), (grant, entry), &taken, &audit_id).await
                }
                Ok(None) => {
                    self.reads.metrics().forwarded(ForwardReason::Unauthorized);
                    (None, Plan::Forwarded(Some(ForwardReason::Unauthorized)))
                }
                Err(status) => {
                    (Some(self.refuse(&status, wanted.status, audit_id.clone())), Plan::Refused("unauthorized"))
                }
            },
            Parsed::Forward(reason) => {
                self.reads.metrics().forwarded(reason);
                (None, Plan::Forwarded(Some(reason)))
            }
            Parsed::Other => (None, Plan::Forwarded(None)),
        };
        let mut response = match answered {
            Some(response) => response,
            None => {
                let (again, of_part) = (self.in_case(&head, &info), Self::lists_part(&head, &info));
                let status_form = form();
                self.forward_not_older(&mut head, &info, connection, plan);
                let forwarded = match self.fails_anyway(again.as_ref(), connection) {
                    Some(error) => Err(error),
                    None => {
                        let request = Request::from_parts(head, body);
                        self.forward(request, &info, connection, &audit_id, room.as_ref()).await
                    }
                };
                match forwarded {
                    Ok(response) => self.heard(self.booked(response, &info, plan, of_part), asked).await,
                    Err(error) => {
                        let old = Box::pin(self.while_away(&error, again, &info, connection, &audit_id, client)).await;
                        let refused = || (self.refuse(&Status::from(&error), status_form, audit_id), NOT_FORWARDED);
                        let (response, otherwise) = old.unwrap_or_else(refused);
                        plan = otherwise;
                        response
                    }
                }
            }
        };
        spans::planned(span, plan);
        client.planned(plan);
        if self.parts.explain {
            plan.write(response.headers_mut());
        }
        if info.is_resource && info.verb == Verb::Watch && response.status() == StatusCode::OK {
            response.extensions_mut().insert(IsWatch);
            return response.map(|body| body::with(body, room));
        }
        response
    }

    /// Authorizes a read. Returns the grant and the audit entry, or `None` if only the apiserver can decide.
    pub(super) async fn authorize(
        &self,
        head: &Parts,
        info: &RequestInfo,
        connection: &Connection,
        audit_id: &HeaderValue,
    ) -> Result<Option<(Grant, Option<Entry>)>, Box<Status>> {
        let query = head.uri.query().unwrap_or_default();
        let attributes = Arc::new(Attributes::of(head.method.as_str(), head.uri.path(), query, info));
        let begin = |subject: Option<&Subject>, is_kept: bool| {
            self.parts.audit.begin(|| audit::Request {
                audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
                uri: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                attributes: &attributes,
                user: subject.map(|subject| &*subject.user),
                impersonated: subject.and_then(|subject| subject.impersonated.as_deref()),
                source: connection.peer.map(|peer| peer.ip()),
                user_agent: audit::user_agent(&head.headers),
                is_kept,
            })
        };
        match self.parts.access.check(&connection.caller(&head.headers), &attributes).await {
            Verdict::Allowed(grant) => {
                let entry = begin(grant.subject().as_ref(), grant.is_kept());
                Ok(Some((grant, entry)))
            }
            Verdict::Forward(_) => Ok(None),
            Verdict::Refused { status, subject, .. } => {
                if let Some(entry) = begin(Some(&subject.unwrap_or_default()), false) {
                    entry.refuse(&status);
                }
                Err(status)
            }
        }
    }

    /// The read path for the clients of a connection.
    pub(super) fn reads_of(&self, connection: &Connection) -> &Reads {
        match connection.listener.mode() {
            Mode::Trust => &self.trusted,
            Mode::Delegated => &self.reads,
        }
    }

    /// The read path's answer, or `None` if the request has to be forwarded, and how it was produced.
    pub(super) async fn read(
        &self,
        reads: &Reads,
        (mut request, verb): (ReadRequest, Verb),
        (grant, mut entry): (Grant, Option<Entry>),
        taken: &BodyOptions,
        audit_id: &HeaderValue,
    ) -> (Option<Response<Body>>, Plan) {
        request.local = !grant.may_forward();
        let (gvr, local, stale) = (request.gvr.clone(), request.local, request.stale);
        let outcome = match verb {
            Verb::Get => reads.get(&request).await.written(|answer| self.bodies.object(answer, taken)).await,
            Verb::List => reads.list(&request).await.written(|answer| self.bodies.list(answer, taken)).await,
            _ => {
                let answer = reads.watch(&request).await;
                let opened = |answer| async {
                    let audit_entry = entry.take().map(Entry::start);
                    self.watch(answer, grant.lease(), audit_entry, taken)
                };
                answer.then(opened).await
            }
        };
        let outcome = match outcome {
            // The cache can answer soon, and the request cannot be forwarded.
            Outcome::Forward(reason @ (ForwardReason::NotSynced | ForwardReason::NotFresh))
                if local && !stale && !self.gives_old(&gvr) =>
            {
                let message = format!(
                    "informerd cannot answer yet ({}), and cannot forward a client certificate",
                    reason.as_str()
                );
                Outcome::Refuse(Box::new(errors::service_unavailable(message, Some(1))))
            }
            outcome => outcome,
        };
        let (mut response, plan) = match outcome {
            Outcome::Forward(reason) => return (None, Plan::Forwarded(Some(reason))),
            Outcome::Refuse(status) => {
                if let Some(entry) = entry {
                    entry.refuse(&status);
                }
                (self.refuse(&status, taken.wanted.status, audit_id.clone()), Plan::Refused(refusal(&status)))
            }
            Outcome::Serve(Answered { mut response, served }) => {
                self.parts.metrics.requests_served.inc();
                if let Some(entry) = entry {
                    entry.complete(200);
                }
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return (Some(response), Plan::Served(served));
                }
                let headers = response.headers_mut();
                headers.insert(AUDIT_ID, audit_id.clone());
                headers.insert(CACHE_CONTROL, NO_CACHE);
                if stale {
                    warn(headers, served.age().unwrap_or_default());
                }
                (response, if stale { Plan::Old(served) } else { Plan::Served(served) })
            }
        };
        for warning in &*self.reads.warnings(&gvr) {
            response.headers_mut().append(WARNING, warning.clone());
        }
        (Some(response), plan)
    }

    fn watch(&self, mut answer: WatchAnswer, lease: Lease, entry: Option<Entry>, taken: &BodyOptions) -> Answered {
        let (media_type, served, rent) = (answer.form.media_type(true), answer.served, answer.rent.take());
        let ending = Ending::new(&self.parts.drain, self.parts.drain_spread, SHORTEST);
        let body = self.bodies.watch(answer, lease, entry, ending).over(&taken.connection);
        if let Some(Socket { handshake, client }) = &taken.socket {
            let session = websocket::serve(client.clone(), body.into_messages(), rent);
            let room = taken.room.clone();
            self.open("websocket", Arc::clone(&taken.connection), async move { (session.await, room).0 });
            return Answered { response: handshake.accept(), served };
        }
        let cut = body.cut();
        let mut response = Response::new(Body::new(body));
        response.extensions_mut().insert(cut);
        if let Some(rent) = rent {
            response.extensions_mut().insert(rent);
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Answered { response, served }
    }

    async fn forward(
        &self,
        request: Request<RequestBody>,
        info: &RequestInfo,
        connection: &Arc<Connection>,
        audit_id: &HeaderValue,
        room: Option<&Arc<Reservation>>,
    ) -> Result<Response<Body>, ForwardError> {
        let (mut term, mut token) = (None, None);
        let status_form = wanted::status(request.headers(), request.uri()).unwrap_or_default();
        let shows_token = auth::shows_token(request.headers());
        let request = request.map(|body| Patient::new(body, info));
        let spoilt = request.body().spoilt();
        let sessions = self.parts.lend_sessions || matches!(connection.listener, ListenAddr::Unix(_));
        let forwarded = match connection.listener.mode() {
            Mode::Trust => self.parts.forward.forward(request, info, connection.sender(None, true, sessions)).await,
            Mode::Delegated => {
                let caller = connection.caller(request.headers());
                let is_judged = connection.is_judged(request.headers(), request.uri());
                if let Err(status) = self.parts.access.pass(&caller, is_judged).await {
                    return Ok(self.refuse(&status, status_form, audit_id.clone()));
                }
                // A write with an unknown outcome counts as one that may have happened, if its client is known.
                let known = !info.verb.is_read() && self.parts.access.recognize(&caller).await.is_ok();
                let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
                if info.is_resource && info.may_watch() {
                    let attributes = Attributes::of(request.method().as_str(), path, query, info);
                    term = self.parts.access.term(&caller, attributes);
                }
                token = self.parts.access.recall(&caller).await;
                let sender = connection.sender(token.as_ref(), known, sessions);
                self.parts.forward.forward_as_client(request, info, sender).await
            }
        };
        let answer = match (forwarded, spoilt.get()) {
            // The apiserver received less of the body than the client believes to have sent.
            (Err(_), Some(why)) => {
                let status = errors::bad_request(format!("informerd cannot read the request's body: {why}"));
                return Ok(self.refuse(&status, status_form, audit_id.clone()));
            }
            (forwarded, _) => forwarded?,
        };
        let status = answer.response.status();
        self.learn(status, info, connection, (shows_token, token)).await;
        self.parts.metrics.requests_forwarded.inc();
        if let Some(term) = &mut term
            && [StatusCode::OK, StatusCode::SWITCHING_PROTOCOLS].contains(&answer.response.status())
        {
            term.begin();
        }
        if let Some(tunnel) = answer.tunnel {
            self.run(tunnel, Arc::clone(connection), term.take().map(|term| (term, room.cloned())));
        }
        Ok(self.relayed(answer.response, info, term))
    }

    /// Runs a session until its sides end it, until a drain is forced, or until the right to it is lost.
    fn run(&self, tunnel: Tunnel, connection: Arc<Connection>, term: Option<(Term, Option<Arc<Reservation>>)>) {
        connection.set_upgraded();
        self.open("tunnel", connection, async move {
            match term {
                None => tunnel.run().await,
                Some((term, _room)) => {
                    let over = async { term.over().await.map(|status| json::error_frame(&status)) };
                    tunnel.run_until(over).await
                }
            }
        });
    }

    /// Runs the session of an upgraded connection, until a drain is forced at the latest.
    fn open<F>(&self, name: &'static str, connection: Arc<Connection>, session: F)
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let drain = self.parts.drain.clone();
        let (open, guard) = (Raised::new(&self.parts.metrics.upgrades_open), drain.guard());
        spawn(name, async move {
            let _kept = (open, guard, connection);
            tokio::select! {
                result = session => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "upgraded connection broke");
                    }
                }
                () = drain.forced() => {}
            }
        });
    }

    pub(super) fn refuse(&self, status: &Status, form: StatusForm, audit_id: HeaderValue) -> Response<Body> {
        self.parts.metrics.requests_refused.inc();
        let mut response = respond(status, form);
        response.headers_mut().insert(AUDIT_ID, audit_id);
        response
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
