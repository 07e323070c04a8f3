//! Accept loops and connections. Each is one task (watches over HTTP/1.1 that wait for events share tasks), each wait has a
//! timeout, and all are part of the drain.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::answer::{Handler, RequestBody, SmallAnswers};
use super::door::{
    Accepted, Accounts, BACKLOG, BindError, Certificates, Connection, ConnectionLimits, HttpConfig, ListenAddr,
    Listener, Newcomers, OpenHeads, Places, Protocol, Socket, Stage, Tcp, TlsServer, accept_tls, is_of_one_connection,
};
use super::record::HttpMetrics;
use super::wire::{
    Answered, Bounded, Handlers, Handover, Protocols, Serving, Unreserved, at_once, default_limits, largest_head,
};
use crate::auth::Mode;
use crate::lifecycle::drain::{DrainGuard, DrainWatch};
use crate::lifecycle::quiet::Quiet;
use crate::lifecycle::slots::Slots;
use crate::lifecycle::{Failure, Fatal, spawn, spawn_supervised};
use crate::memory::{Ledger, Pressure};

/// The most connections that wait for a place among the newcomers, but at most a quarter of all connections. For a
/// further one, one of the address that has the most is closed.
const WAITING: usize = 1024;
/// How long they may wait.
const WAIT: Duration = Duration::from_secs(32);
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Bound sockets to which nobody can connect yet.
#[derive(Debug)]
pub struct Server {
    config: HttpConfig,
    listeners: Vec<Listener>,
    certificates: Option<Arc<Certificates>>,
    ledger: Ledger,
    newcomers: Arc<Newcomers>,
    waiting: Arc<Slots>,
    metrics: Arc<HttpMetrics>,
}

struct SharedServer {
    config: HttpConfig,
    handler: Arc<dyn Handler>,
    protocols: Protocols,
    certificates: Option<Arc<Certificates>>,
    places: Arc<Places>,
    newcomers: Arc<Newcomers>,
    waiting: Arc<Slots>,
    heads: Arc<OpenHeads>,
    accounts: Accounts,
    small_answers: Arc<SmallAnswers>,
    pressure: Pressure,
    /// See [`handlers::at_once`].
    at_once: usize,
    unreserved: Unreserved,
    limits: ConnectionLimits,
    metrics: Arc<HttpMetrics>,
    drain: DrainWatch,
}

/// Why a connection takes no more requests.
enum Stop {
    /// The client was not authenticated in time: the connection ends at once.
    Away,
    Closing,
}

// === impl Server ===

impl Server {
    /// Binds every listener. Loads the certificate if a listener needs it.
    ///
    /// # Errors
    /// The first listener that cannot be bound, or a certificate that is not available.
    pub fn bind(config: HttpConfig, metrics: Arc<HttpMetrics>) -> Result<Self, BindError> {
        let listeners = config.listen.iter().map(|at| Listener::bind(at, &config)).collect::<Result<Vec<_>, _>>()?;
        let tls: Vec<IpAddr> = listeners.iter().filter_map(|listener| listener.address().tls_ip()).collect();
        let certificates = if tls.is_empty() { None } else { Some(Arc::new(Certificates::load(&config.tls, &tls)?)) };
        let newcomers = Newcomers::new(config.max_connections, Arc::clone(&metrics));
        let most_waiting = WAITING.min(config.max_connections / 4).max(1);
        let waiting = Slots::new(most_waiting, metrics.connections_refused.clone());
        Ok(Self { config, listeners, certificates, ledger: Ledger::default(), newcomers, waiting, metrics })
    }

    /// Has the heads of requests reserved in this ledger while they arrive. Otherwise they have no limit together.
    pub(crate) fn reserving(self, ledger: Ledger) -> Self {
        Self { ledger, ..self }
    }

    /// The addresses of the listeners, with the ports that were assigned, in the order of the configuration.
    pub fn addresses(&self) -> Vec<ListenAddr> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// The certificate of the TLS listeners, if there are any.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.certificates.clone()
    }

    /// The CA that clients have to trust if the certificate is self-issued.
    pub fn ca_file(&self) -> Option<PathBuf> {
        self.certificates.as_ref().and_then(|certificates| certificates.ca_file()).map(Into::into)
    }

    /// Starts to listen and to accept; over TLS, once there is a certificate. When the drain starts, listeners close, and
    /// connections end after their last request.
    ///
    /// # Errors
    /// Another process has bound the address of a listener at the same time, and listens.
    pub fn serve(self, handler: Arc<dyn Handler>, drain: &DrainWatch, fatal: &Fatal) -> Result<(), BindError> {
        if let Some(certificates) = self.certificates.clone() {
            spawn_supervised("certificates", certificates.keep_fresh(), fatal);
        }
        let largest = largest_head(self.config.limits);
        let memory = self.ledger.limit();
        let shared = Arc::new(SharedServer {
            handler,
            protocols: Protocols::new(&self.config),
            certificates: self.certificates.clone(),
            places: Places::new(
                self.config.max_connections,
                self.config.evicts,
                self.config.listen.iter(),
                Arc::clone(&self.metrics),
            ),
            newcomers: self.newcomers,
            waiting: self.waiting,
            accounts: Accounts::new(memory, largest, &self.metrics),
            small_answers: SmallAnswers::new(memory, Arc::clone(&self.metrics)),
            pressure: self.ledger.pressure().clone(),
            at_once: at_once(memory),
            unreserved: Unreserved::new(memory),
            heads: OpenHeads::new(self.ledger, largest, Arc::clone(&self.metrics)),
            limits: self.config.limits.unwrap_or_else(|| default_limits(memory)),
            metrics: self.metrics,
            drain: drain.clone(),
            config: self.config,
        });
        let watch = Arc::clone(&shared.small_answers).watch(shared.config.write_stall_timeout, shared.pressure.clone());
        spawn_supervised("small-answers", watch, fatal);
        for listener in self.listeners {
            let address = listener.address();
            let (shared, failed) = (Arc::clone(&shared), fatal.clone());
            let begin = move || -> Result<(), BindError> {
                spawn_supervised("accept", shared.accept(listener.listen()?), &failed);
                Ok(())
            };
            let certificates = self.certificates.as_ref().filter(|_| address.tls_ip().is_some());
            let Some(certificates) = certificates.filter(|awaited| awaited.chain().is_empty()) else {
                begin()?;
                continue;
            };
            let fatal = fatal.clone();
            certificates.once_there(move || match begin() {
                Ok(()) => tracing::info!(%address, "listening, there is a certificate"),
                Err(error) => {
                    tracing::error!(%error, "cannot listen");
                    fatal.report(Failure { task: "accept", reason: "cannot listen" });
                }
            });
        }
        Ok(())
    }
}

// === impl SharedServer ===

impl SharedServer {
    /// Accepts until the drain starts, and then who has connected before.
    async fn accept(self: Arc<Self>, listener: Listener) {
        let (address, _guard) = (listener.address(), self.drain.guard());
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.draining() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => Arc::clone(&self).take(accepted, &address),
                Err(error) => {
                    self.metrics.accept_errors.inc();
                    // An error of one peer needs no pause. An error of ours (no file descriptors left) would repeat at
                    // once.
                    if !is_of_one_connection(&error) {
                        tracing::warn!(%error, listener = %address, "cannot accept connections");
                        tokio::time::sleep(ACCEPT_BACKOFF).await;
                    }
                }
            }
        }
        // The runtime learns of connections when a task yields.
        tokio::task::yield_now().await;
        for _ in 0..BACKLOG {
            match tokio::task::unconstrained(listener.accept()).now_or_never() {
                Some(Ok(accepted)) => Arc::clone(&self).take(accepted, &address),
                Some(Err(error)) if is_of_one_connection(&error) => _ = self.metrics.accept_errors.inc(),
                _ => return,
            };
        }
    }

    fn take(self: Arc<Self>, (socket, peer): (Accepted, Option<SocketAddr>), address: &ListenAddr) {
        self.metrics.connections_total.inc();
        let Some(place) = self.places.take(address, peer.map(|peer| peer.ip())) else {
            self.metrics.connections_refused.inc();
            return;
        };
        let connection = Connection { place: Some(place), ..Connection::new(address.clone(), peer) };
        match peer.filter(|_| address.mode() == Mode::Delegated) {
            None => self.start(socket, connection),
            Some(peer) => match self.newcomers.try_place(peer.ip()) {
                Ok(newcomer) => self.start(socket, Connection { newcomer: Some(newcomer), ..connection }),
                Err(_) => self.start_later(socket, connection, peer.ip()),
            },
        }
    }

    /// Starts a connection for which there is no room among the newcomers yet. The accept loop does not wait for it,
    /// because the next connections may be from other clients.
    fn start_later(self: Arc<Self>, socket: Accepted, connection: Connection, address: IpAddr) {
        let (waits, guard) = (self.waiting.take(address), self.drain.guard());
        spawn("connection", async move {
            let _guard = guard;
            let place = tokio::time::timeout(WAIT, self.newcomers.place(address));
            let newcomer = tokio::select! {
                placed = place => placed.ok(),
                () = waits.lost() => return,
                () = self.is_idle(&connection) => return,
            };
            drop(waits);
            match newcomer {
                Some(_) => self.start(socket, Connection { newcomer, ..connection }),
                None => _ = self.metrics.connections_refused.inc(),
            }
        });
    }

    /// A connection over TLS is a task of its own type, so that thousands of other tasks have no room for a handshake.
    fn start(self: Arc<Self>, socket: Accepted, connection: Connection) {
        let (must_be_tls, guard) = (connection.listener.tls_ip().is_some(), self.drain.guard());
        let certificates = self.certificates.as_ref().filter(|_| must_be_tls);
        let acceptor = certificates.map(|certificates| match connection.listener.mode() {
            Mode::Trust => certificates.server(),
            Mode::Delegated => certificates.delegated_server(),
        });
        match (socket, acceptor) {
            (Accepted::Left(stream), Some(acceptor)) => {
                spawn("connection", async move {
                    if let Some((stream, connection)) = Box::pin(self.handshake(stream, acceptor, connection)).await {
                        self.http(Socket::Left(stream), connection, guard).await;
                    }
                });
            }
            // Certificates are loaded for the listeners that need them. Without a certificate, nothing is sent in plain
            // text.
            _ if must_be_tls => self.handshake_failed(&connection, &"no certificate"),
            (socket, _) => {
                spawn("connection", async move { self.http(Socket::Right(socket), connection, guard).await });
            }
        }
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        acceptor: TlsServer,
        mut connection: Connection,
    ) -> Option<(Box<TlsStream<Tcp>>, Connection)> {
        let timeout = self.config.handshake_timeout;
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(timeout, accept_tls(acceptor, stream, &connection)) => accepted,
            () = connection.sent_away() => return None,
            () = self.is_idle(&connection) => return None,
        };
        match accepted {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().filter(|shown| !shown.is_empty());
                connection.certificates = shown.map(|shown| shown.iter().cloned().collect());
                connection.reached(Stage::Encrypted);
                return Some((Box::new(stream), connection));
            }
            Ok(Err(error)) => self.handshake_failed(&connection, &error),
            Err(_) => self.handshake_failed(&connection, &"timed out"),
        }
        None
    }

    fn handshake_failed(&self, connection: &Connection, error: &dyn std::fmt::Display) {
        self.metrics.tls_handshake_errors.inc();
        tracing::debug!(peer = ?connection.peer, %error, "tls handshake failed");
    }

    async fn http(&self, stream: Socket, connection: Connection, _guard: DrainGuard) {
        let connection = Arc::new(connection);
        let upgraded = Arc::clone(&connection.upgraded);
        let mut stream = Bounded::new(stream, self.config.write_stall_timeout, upgraded, connection.newcomer.as_ref());
        stream.hurries(self.pressure.clone());
        let opened = tokio::select! {
            biased;
            opened = stream.open(self.config.handshake_timeout) => opened,
            () = self.is_idle(&connection) => return,
            () = connection.sent_away() => return,
        };
        let head = self.heads.of(connection.peer.map(|peer| peer.ip()));
        match opened {
            Ok(None) => {}
            Ok(Some(Protocol::Http1)) => {
                let handover = Handover::new(head);
                let service = service_fn(|request: Request<Incoming>| {
                    connection.used();
                    let asked = handover.asked(&request, self.drain.is_draining());
                    let request = request.map(RequestBody::Http1);
                    let (response, handover) = (self.handler.handle(request, &connection), Arc::clone(&handover));
                    async move { Ok::<_, Infallible>(handover.answer(&asked, response.await)) }
                });
                self.run(self.protocols.http1(stream, Arc::clone(&handover), service), &connection).await;
            }
            Ok(Some(Protocol::Http2)) => {
                let of = &connection;
                let (handler, [requests, answers]) = (Arc::clone(&self.handler), self.accounts.of(of));
                let (unreserved, metrics) = (self.unreserved.clone(), Arc::clone(&self.metrics));
                let handlers = &Handlers::new(handler, self.at_once, unreserved, requests, metrics);
                let unread = &self.small_answers.of_connection(answers);
                let begin = |request: Request<RequestBody>, is_worn| {
                    of.used();
                    if is_worn {
                        of.close();
                    }
                    let (is_read, unread) = (request.method().is_safe(), Arc::clone(unread));
                    let handled = handlers.handle(request, of)?;
                    let answered = async move {
                        let (response, _place) = handled.await;
                        match unread.looked_after(response, is_read) {
                            Ok(response) => Ok(response),
                            Err(later) => later.await,
                        }
                    };
                    Some(Box::pin(answered) as Answered)
                };
                // Boxed, because HTTP/1.1 has a connection for each watch, while hundreds of HTTP/2 streams share one.
                Box::pin(self.run(Protocols::http2(stream, head, &self.metrics, self.limits, begin), &connection))
                    .await;
            }
            Err(error) => self.failed(&connection, &error),
        }
    }

    /// Waits until the drain ends a connection that has sent no request.
    async fn is_idle(&self, connection: &Connection) {
        self.drain.draining().await;
        tokio::select! {
            () = connection.age.is_at_least(self.config.drain_patience) => {}
            () = self.drain.forced() => {}
        }
    }

    async fn run(&self, http: impl Serving, connection: &Connection) {
        let mut http = pin!(http);
        let stop = tokio::select! {
            biased;
            result = http.as_mut() => Err(result),
            stop = Quiet::new(Box::pin(self.stop(connection))) => Ok(stop),
        };
        let result = match stop {
            Err(result) => result,
            Ok(Stop::Away) => return,
            Ok(Stop::Closing) => {
                // HTTP/2 sends GOAWAY; HTTP/1.1 closes after the running request.
                http.as_mut().graceful_shutdown();
                // Boxed: thousands of connections that are open would otherwise have room for their end.
                let cut = Box::pin(async {
                    tokio::select! {
                        () = connection.sent_away() => {}
                        () = self.drain.forced() => {}
                        never = self.retire(connection) => match never {},
                    }
                });
                tokio::select! {
                    result = http => result,
                    () = cut => return,
                }
            }
        };
        if let Err(error) = result {
            self.failed(connection, &error);
        }
    }

    /// Ends the long calls of a connection that takes no more requests, once it is old enough.
    async fn retire(&self, connection: &Connection) -> Infallible {
        connection.age.reached(self.config.age).await;
        connection.age.retire(self.config.age).await
    }

    /// Waits until the connection has to take no more requests.
    async fn stop(&self, connection: &Connection) -> Stop {
        tokio::select! {
            () = connection.sent_away() => Stop::Away,
            () = self.drain.draining() => Stop::Closing,
            () = connection.closing.notified() => Stop::Closing,
            () = connection.age.reached(self.config.age) => Stop::Closing,
        }
    }

    fn failed(&self, connection: &Connection, error: &dyn std::fmt::Display) {
        self.metrics.connection_errors.inc();
        tracing::debug!(peer = ?connection.peer, listener = %connection.listener, %error, "connection failed");
    }
}

#[cfg(test)]
#[path = "listening_tests.rs"]
mod listening_tests;
#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
