//! Config maps in a cache that the test fills, and their encoded form.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, coop};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::answer::{Body, Handler, WatchBody};
use super::door::{HttpConfig, ListenAddr};
use super::server::Server;
pub(crate) use crate::apiserver::testing::until;
use crate::auth::Lease;
use crate::cache::{self, CacheConfig, Walk, WatchCache, WatchSpec, WatchStart, Writer};
use crate::codec::json::{self, Style};
use crate::codec::{Form, ListMetaOut, Shape};
use crate::lifecycle::drain::{self, Drain, DrainWatch};
use crate::lifecycle::ending::Ending;
use crate::lifecycle::{Fatal, spawn};
use crate::memory::Ledger;
use crate::meta::{Encoding, EventType, FieldTable, Gvr, Object, ResourceVersion, Scope};
use crate::packing::{MOST_READS, Packing, PackingConfig, PackingForm};
use crate::reads::{ListAnswer, ListIdentity, ListItems, Served, WatchAnswer, WatchSource};
use crate::selector::{CompiledFields, LabelSelector, Predicate};

/// The revision of the first state, and the number of the first object that comes after it.
pub(crate) const FIRST: usize = 20_000;
/// More objects than one step looks at.
const SKIPPED: usize = 2500;

/// A cache and its writer. Objects with a label `skipped` are in no list.
pub(crate) struct World {
    pub(crate) writer: Writer,
    pub(crate) cache: WatchCache,
}

/// A socket that sends what is in it, and takes everything at once, in turns as those of tokio or without.
pub(super) struct Takes<T> {
    says: Bytes,
    has_turns: bool,
    /// It takes nothing.
    pub(super) is_full: Arc<AtomicBool>,
    /// Is told what was taken with each call that would be a system call.
    took: T,
}

/// A socket that takes everything, and counts the bytes.
pub(super) fn counted(got: Arc<AtomicUsize>, has_turns: bool) -> Takes<impl FnMut(&[u8]) + Send + Unpin> {
    let took = move |bytes: &[u8]| _ = got.fetch_add(bytes.len(), Ordering::Relaxed);
    Takes::new(Bytes::new(), has_turns, took)
}

/// The most by which a count grows until another task has its turn, before it comes to this.
pub(super) async fn largest_turn(count: &Arc<AtomicUsize>, all: usize) -> usize {
    let count = Arc::clone(count);
    let turns = spawn("other", async move {
        let (mut largest, mut before) = (0, 0);
        std::future::poll_fn(move |cx| {
            let now = count.load(Ordering::Relaxed);
            largest = largest.max(now - before);
            before = now;
            // At the end of the queue.
            cx.waker().wake_by_ref();
            if now < all { Poll::Pending } else { Poll::Ready(largest) }
        })
        .await
    });
    tokio::time::timeout(Duration::from_secs(60), turns).await.expect("all is written").unwrap()
}

pub(super) fn form() -> Form {
    Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList")
}

/// The item of a config map, without kind and apiVersion. The first two are in the namespace `a`, the others in `b`.
pub(crate) fn item(number: usize, size: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"c{number:05}","namespace":"{}","uid":"u{number}","resourceVersion":"{}"}},"data":{{"k":"{}"}}}}"#,
        if number < 2 { "a" } else { "b" },
        number + 1,
        "x".repeat(size)
    )
}

pub(crate) fn object(number: usize, size: usize) -> Arc<Object> {
    parse(&item(number, size))
}

pub(crate) fn objects(objects: usize, size: usize) -> Vec<Arc<Object>> {
    (0..objects).map(|number| object(number, size)).collect()
}

/// Objects that are packed, and stay so.
pub(crate) fn packed(length: usize, size: usize) -> Vec<Arc<Object>> {
    let objects = objects(length, size);
    let config = PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes: 0 };
    let packer = Packing::new(config).packer(None);
    packer.train(&objects.iter().map(|object| object.raw().unwrap().framed()).collect::<Vec<_>>(), 1 << 20);
    for object in &objects {
        object.pack(&packer, MOST_READS);
        assert!(object.is_packed());
    }
    objects
}

pub(crate) fn parse(item: &str) -> Arc<Object> {
    Arc::new(json::parse_item(item.as_bytes(), &FieldTable::default()).unwrap().0)
}

/// An object that is in no list. It sorts before or after all others.
fn skipped(number: usize) -> Arc<Object> {
    let namespace = if number.is_multiple_of(2) { "Z" } else { "z" };
    parse(&format!(
        r#"{{"metadata":{{"name":"s{number}","namespace":"{namespace}","uid":"s{number}","resourceVersion":"1","labels":{{"skipped":""}}}}}}"#
    ))
}

/// Gives a cache its first state.
pub(super) async fn fill(writer: &mut Writer, objects: Vec<Arc<Object>>) {
    writer.set_form(form());
    writer.replace(objects, ResourceVersion(FIRST as u64)).await.unwrap();
}

// === impl World ===

impl World {
    pub(crate) async fn new(objects: Vec<Arc<Object>>) -> Self {
        let (mut writer, cache) = cache::new(CacheConfig::new(Gvr::new("", "v1", "configmaps")));
        fill(&mut writer, objects).await;
        spawn("dispatcher", cache.run_dispatcher());
        Self { writer, cache }
    }

    /// A cache with many objects that do not match, at the beginning and at the end.
    pub(super) async fn sparse(mut objects: Vec<Arc<Object>>) -> Self {
        objects.extend((0..2 * SKIPPED).map(skipped));
        Self::new(objects).await
    }

    /// The next object: `FIRST`, `FIRST + 1` and so on.
    pub(super) async fn add(&mut self, number: usize, size: usize) {
        let object = Arc::into_inner(object(number, size)).unwrap();
        self.writer.apply(EventType::Added, object).await.unwrap();
    }

    /// Waits until all events have reached the watchers.
    pub(super) async fn settle(&self) {
        while self.cache.stats().dispatched_rv < self.cache.resource_version() {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn list(&self) -> ListAnswer {
        let (snapshot, labels) = (self.cache.snapshot().unwrap(), LabelSelector::parse("!skipped").unwrap());
        let predicate = Predicate::new(Scope::default(), labels, CompiledFields::default());
        ListAnswer {
            form: self.cache.form().unwrap(),
            shape: Shape::Full,
            meta: ListMetaOut { rv: snapshot.rv(), ..ListMetaOut::default() },
            served: Served::default(),
            rent: None,
            identity: ListIdentity { state: snapshot.id(), predicate: predicate.clone(), after: None, limit: None },
            items: ListItems::new(Walk::new(snapshot, predicate, None), None),
        }
    }

    pub(super) fn watch(&self, start: WatchStart) -> WatchAnswer {
        watch(&self.cache, start)
    }

    /// The body of a watch.
    pub(super) fn body(&self, start: WatchStart) -> Body {
        body(self.watch(start))
    }
}

// === impl Takes ===

impl<T: FnMut(&[u8]) + Unpin> Takes<T> {
    pub(super) fn new(says: impl Into<Bytes>, has_turns: bool, took: T) -> Self {
        Self { says: says.into(), has_turns, is_full: Arc::default(), took }
    }
}

impl<T: FnMut(&[u8]) + Unpin> AsyncRead for Takes<T> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let now = self.says.len().min(buf.remaining());
        buf.put_slice(&self.says.split_to(now));
        if now == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<T: FnMut(&[u8]) + Unpin> AsyncWrite for Takes<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.has_turns {
            std::task::ready!(coop::poll_proceed(cx)).made_progress();
        }
        if self.is_full.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        (self.took)(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, &bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<_>>())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

pub(super) fn watch(cache: &WatchCache, start: WatchStart) -> WatchAnswer {
    watch_of(cache, start, Predicate::everything())
}

/// A watch of what the predicate selects.
pub(super) fn watch_of(cache: &WatchCache, start: WatchStart, predicate: Predicate) -> WatchAnswer {
    let deadline = Instant::now() + Duration::from_secs(1800);
    let spec = WatchSpec { predicate, start, bookmarks: true, initial_end: true, deadline };
    let source = WatchSource::Cache { watcher: cache.watch(spec).unwrap(), cache: cache.clone() };
    WatchAnswer {
        form: cache.form().unwrap(),
        shape: Shape::Full,
        source,
        served: Served::default(),
        rent: None,
        proof: None,
    }
}

/// The body of a watch that nothing but its cache ends.
pub(super) fn body(watch: WatchAnswer) -> Body {
    let ending = Ending::new(&DrainWatch::never(), Duration::ZERO, Duration::ZERO);
    Body::new(WatchBody::new(watch, Lease::all([]), None, ending, &Arc::default(), &Ledger::default()))
}

pub(crate) fn inflate(compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(compressed), &mut plain).unwrap();
    plain
}

/// The expected text of the list of these objects.
pub(super) fn list_text(objects: usize, size: usize) -> String {
    let items: Vec<String> = (0..objects).map(|number| item(number, size)).collect();
    format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{FIRST}\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
}

/// The expected text of the event for an object.
pub(super) fn added_text(number: usize, size: usize) -> String {
    let item = item(number, size);
    format!("{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{}}}\n", &item[1..])
}

/// The beginning of the bookmark at the revision of this object.
pub(super) fn bookmark(number: usize) -> String {
    let rv = number + 1;
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{rv}\""
    )
}

/// A certificate for `localhost` that signs itself, and its key.
pub(super) fn self_signed() -> (rcgen::Certificate, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    (params.self_signed(&key).unwrap(), key.serialize_pem())
}

/// TLS of a client that trusts these, and offers these protocols.
pub(super) fn trusting<const N: usize>(cas: [CertificateDer<'static>; N], alpn: &[Vec<u8>]) -> TlsConnector {
    trusting_with(rustls::crypto::aws_lc_rs::default_provider(), rustls::ALL_VERSIONS, cas, alpn)
}

/// The same of a client that speaks these versions.
pub(super) fn trusting_with<const N: usize>(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
    cas: [CertificateDer<'static>; N],
    alpn: &[Vec<u8>],
) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    cas.into_iter().for_each(|ca| roots.add(ca).unwrap());
    let client = rustls::ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions);
    let mut client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = alpn.to_vec();
    TlsConnector::from(Arc::new(client))
}

/// A server with one listener on a free port.
pub(super) fn serve(handler: impl Handler) -> (SocketAddr, Drain, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let config = HttpConfig::new(vec!["http://127.0.0.1:0".parse().unwrap()], directory.path().join("state"));
    let listener = Server::bind(config, Arc::default()).unwrap();
    let ListenAddr::Http(address) = listener.addresses().remove(0) else { panic!("not of this kind") };
    let (drain, watch) = drain::channel();
    listener.serve(Arc::new(handler), &watch, &Fatal::new()).unwrap();
    (address, drain, directory)
}

/// A client over HTTP/2 on this stream, and the task of its connection.
pub(super) async fn http2_client<S>(stream: S) -> (http2::SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    (client, spawn("client", connection))
}

/// A client over HTTP/1.1.
pub(super) async fn http1_client<S>(stream: S) -> http1::SendRequest<Empty<Bytes>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    spawn("client", connection);
    client
}

/// Sends raw bytes and reads until the server closes.
pub(super) async fn raw(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The head of a message, to its empty line.
pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}
