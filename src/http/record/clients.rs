//! Statistics of the clients, by address, program and protocol, for the administrator. The table is bounded and
//! contains no credentials.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Version};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::reads::{ForwardReason, Rent};
use crate::telemetry::stripes::StripedCounter;

/// The most clients in the table. Clients that do not fit share one entry.
pub(super) const MOST: usize = 200;
/// A client with nothing open that was silent for this long can be replaced by a new one.
const SILENT: Duration = Duration::from_secs(60);
/// The name of a program is cut to this length.
const LONGEST: usize = 64;

/// All clients that were seen. The table is bounded by [`MOST`].
#[derive(Debug, Default)]
pub struct Clients {
    clients: Mutex<HashMap<ClientKey, Arc<ClientStats>>>,
    others: Arc<ClientStats>,
    /// Bytes sent to clients that are no longer in the table.
    departed_bytes: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClientKey {
    address: Box<str>,
    program: Box<str>,
    protocol: &'static str,
}

/// Counts of one client.
#[derive(Debug, Default)]
pub(crate) struct ClientStats {
    /// The last user of this client on a delegated listener; empty if none was authenticated.
    user: Mutex<Arc<str>>,
    requests: AtomicU64,
    watches: AtomicI64,
    /// Responses in progress, including watches.
    open: AtomicI64,
    bytes: StripedCounter,
    /// Reads that were forwarded to the apiserver, in the order of [`ForwardReason::ALL`].
    forwarded: [AtomicU64; ForwardReason::ALL.len()],
    last: Mutex<Option<Instant>>,
    /// The client is no longer in the table.
    gone: AtomicBool,
}

/// The client of a connection's last request, with its program. The name is copied and short: the header is a slice of the
/// buffer that the whole request was read into, and that buffer would otherwise live as long as the connection.
pub(in crate::http) type Last = Mutex<Option<(Box<str>, Arc<ClientStats>)>>;

/// One client, as displayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// `unix` for a Unix socket; empty for the entry that several clients share.
    pub address: String,
    pub user: String,
    pub program: String,
    pub protocol: &'static str,
    pub requests: u64,
    pub watches: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Reads that were forwarded to the apiserver, by reason. Reasons with a count of zero are left out.
    pub forwarded: Vec<(ForwardReason, u64)>,
}

/// Counts the bytes of an answer for a client. The answer counts as open until this is dropped.
#[derive(Debug)]
pub(in crate::http) struct Counting {
    stats: Arc<ClientStats>,
    watch: bool,
    /// Books the bytes as well.
    rent: Option<Rent>,
}

// === impl Clients ===

impl Clients {
    /// The statistics of the client that sent a request; the request is counted. `peer` is `None` for a Unix socket.
    /// `last` is that of its connection: the next request of the same program needs no look-up in the table.
    pub(in crate::http) fn find(
        &self,
        last: &Last,
        peer: Option<SocketAddr>,
        headers: &HeaderMap,
        version: Version,
        grpc: bool,
    ) -> Arc<ClientStats> {
        let program = program(headers.get(USER_AGENT));
        let mut last = last.lock();
        let stats = match &*last {
            Some((of, stats)) if **of == *program && !stats.gone.load(Ordering::Relaxed) => Arc::clone(stats),
            _ => {
                let stats = self.stats(ClientKey {
                    address: peer.map_or_else(|| "unix".into(), |peer| peer.ip().to_string().into()),
                    program: program.into(),
                    protocol: match version {
                        _ if grpc => "gRPC",
                        Version::HTTP_2 => "HTTP/2",
                        _ => "HTTP/1.1",
                    },
                });
                *last = Some((program.into(), Arc::clone(&stats)));
                stats
            }
        };
        drop(last);
        stats.requests.fetch_add(1, Ordering::Relaxed);
        *stats.last.lock() = Some(Instant::now());
        stats
    }

    fn stats(&self, key: ClientKey) -> Arc<ClientStats> {
        let mut clients = self.clients.lock();
        if let Some(stats) = clients.get(&key) {
            return Arc::clone(stats);
        }
        if clients.len() >= MOST && !self.make_place(&mut clients) {
            return Arc::clone(&self.others);
        }
        let stats = Arc::<ClientStats>::default();
        clients.insert(key, Arc::clone(&stats));
        stats
    }

    /// Removes the client that was silent for the longest time.
    fn make_place(&self, clients: &mut HashMap<ClientKey, Arc<ClientStats>>) -> bool {
        let silent =
            |stats: &Arc<ClientStats>| (stats.open.load(Ordering::Relaxed) <= 0).then(|| *stats.last.lock()).flatten();
        let oldest =
            clients.iter().filter_map(|(key, stats)| Some((silent(stats)?, key))).min_by_key(|(last, _)| *last);
        let Some(key) = oldest.filter(|(last, _)| last.elapsed() >= SILENT).map(|(_, key)| key.clone()) else {
            return false;
        };
        if let Some(stats) = clients.remove(&key) {
            stats.gone.store(true, Ordering::Relaxed);
            self.departed_bytes.fetch_add(stats.bytes.get(), Ordering::Relaxed);
        }
        true
    }

    /// Bytes of the bodies of all responses, over all clients.
    pub fn sent_bytes(&self) -> u64 {
        let clients = self.clients.lock();
        let bytes = |stats: &Arc<ClientStats>| stats.bytes.get();
        clients.values().map(bytes).sum::<u64>() + bytes(&self.others) + self.departed_bytes.load(Ordering::Relaxed)
    }

    /// All clients, sorted by open watches and then by requests. The entry that several clients share comes last.
    pub fn list(&self) -> Vec<Client> {
        let clients = self.clients.lock();
        let mut all: Vec<_> = clients.iter().map(|(key, stats)| stats.show(key)).collect();
        drop(clients);
        all.sort_by(|a, b| {
            let rank = |client: &Client| (u64::MAX - client.watches, u64::MAX - client.requests);
            (rank(a), &a.address, &a.program).cmp(&(rank(b), &b.address, &b.program))
        });
        if self.others.requests.load(Ordering::Relaxed) > 0 {
            let key = ClientKey { address: "".into(), program: "others".into(), protocol: "" };
            all.push(self.others.show(&key));
        }
        all
    }
}

/// For example `kubectl/v1.36.3` for `kubectl/v1.36.3 (linux/amd64) kubernetes/abcdef`.
pub(in crate::http) fn program(agent: Option<&HeaderValue>) -> &str {
    let text = agent.and_then(|agent| agent.to_str().ok()).unwrap_or("–");
    let name = text.split(' ').next().filter(|name| !name.is_empty()).unwrap_or(text);
    // `to_str` returns visible ASCII only, so any index is a character boundary.
    name.get(..LONGEST).unwrap_or(name)
}

// === impl ClientStats ===

impl ClientStats {
    /// Sets the user of this client.
    pub(crate) fn is(&self, user: &str) {
        let mut known = self.user.lock();
        if **known != *user {
            *known = user.into();
        }
    }

    /// Counts a read that went to the apiserver.
    pub(crate) fn forwarded(&self, reason: ForwardReason) {
        if let Some(index) = ForwardReason::ALL.iter().position(|known| *known == reason) {
            self.forwarded[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an answer as open, and then its bytes.
    pub(in crate::http) fn counting(self: Arc<Self>, watch: bool, rent: Option<Rent>) -> Counting {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.watches.fetch_add(i64::from(watch), Ordering::Relaxed);
        Counting { stats: self, watch, rent }
    }

    fn show(&self, key: &ClientKey) -> Client {
        let counts = self.forwarded.iter().map(|counter| counter.load(Ordering::Relaxed));
        let forwarded = ForwardReason::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        Client {
            address: key.address.to_string(),
            user: self.user.lock().to_string(),
            program: key.program.to_string(),
            protocol: key.protocol,
            requests: self.requests.load(Ordering::Relaxed),
            watches: u64::try_from(self.watches.load(Ordering::Relaxed)).unwrap_or(0),
            bytes: self.bytes.get(),
            forwarded,
        }
    }
}

// === impl Counting ===

impl Counting {
    pub(in crate::http) fn sent(&self, bytes: usize) {
        self.stats.bytes.inc_by(bytes as u64);
        if let Some(rent) = &self.rent {
            rent.sent(bytes);
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.stats.open.fetch_sub(1, Ordering::Relaxed);
        self.stats.watches.fetch_sub(i64::from(self.watch), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::http::answer::body;
    use crate::http::door::{Connection, ListenAddr};
    use crate::lifecycle::multiplexer::IsWatch;

    fn of(clients: &Clients, connection: &Connection, headers: &HeaderMap, version: Version) -> Arc<ClientStats> {
        clients.find(&connection.last, connection.peer, headers, version, false)
    }

    fn seen(clients: &Clients, host: u8, agent: &'static str) -> Arc<ClientStats> {
        let listener = ListenAddr::Http(([127, 0, 0, 1], 1).into());
        let connection = Connection::new(listener, Some(([10, 0, 0, host], 5).into()));
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
        of(clients, &connection, &headers, Version::HTTP_2);
        of(clients, &connection, &headers, Version::HTTP_2)
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_bounded() {
        let clients = Clients::default();
        for host in 0..MOST {
            seen(&clients, u8::try_from(host).unwrap(), "kubectl/v1 (linux/amd64) kubernetes/abc");
        }
        let first = &clients.list()[0];
        assert_eq!((first.program.as_str(), first.protocol, first.requests), ("kubectl/v1", "HTTP/2", 2));
        // All clients were active a moment ago, so none is replaced.
        seen(&clients, 1, "late");
        let all = clients.list();
        assert_eq!((all.len(), all[MOST].program.as_str(), all[MOST].requests), (MOST + 1, "others", 2));
        // A client with an open response stays.
        let open = seen(&clients, 0, "kubectl/v1 x").count(Response::new(body::full(bytes::Bytes::new())));
        tokio::time::advance(SILENT).await;
        for _ in 0..MOST {
            seen(&clients, 1, "late");
        }
        let all = clients.list();
        assert_eq!(all.len(), MOST + 1);
        assert!(all.iter().any(|client| client.program == "late" && client.address == "10.0.0.1"));
        assert!(all.iter().any(|client| client.address == "10.0.0.0"));
        drop(open);
    }

    #[tokio::test]
    async fn a_connection_keeps_a_short_name_of_its_program() {
        let clients = Clients::default();
        let connection = Connection::new(ListenAddr::Http(([127, 0, 0, 1], 1).into()), None);
        for agent in ["x".repeat(700_000), format!("short {}", "x".repeat(700_000))] {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
            let (first, again) = (
                of(&clients, &connection, &headers, Version::HTTP_11),
                of(&clients, &connection, &headers, Version::HTTP_11),
            );
            assert!(Arc::ptr_eq(&first, &again));
            assert!(connection.last.lock().as_ref().is_some_and(|(program, _)| program.len() <= LONGEST));
        }
        assert_eq!(clients.list().len(), 2);
    }

    #[tokio::test]
    async fn what_is_sent_is_counted() {
        let clients = Clients::default();
        let stats = seen(&clients, 1, "a");
        stats.is("system:serviceaccount:a:b");
        stats.forwarded(ForwardReason::Encoding);
        stats.forwarded(ForwardReason::Unauthorized);
        stats.forwarded(ForwardReason::Encoding);
        let mut response = Response::new(body::full(bytes::Bytes::from_static(b"12345")));
        response.extensions_mut().insert(IsWatch);
        let response = stats.count(response);
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(5), "the length is still known");
        assert_eq!((clients.list()[0].watches, clients.list()[0].bytes), (1, 0));
        response.into_body().collect().await.unwrap();
        let shown = &clients.list()[0];
        assert_eq!(shown.forwarded, [(ForwardReason::Encoding, 2), (ForwardReason::Unauthorized, 1)]);
        assert_eq!(clients.sent_bytes(), 5);
        assert_eq!((shown.watches, shown.bytes, shown.user.as_str()), (0, 5, "system:serviceaccount:a:b"));
    }
}
