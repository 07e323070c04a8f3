//! OTLP on the wire: one message to one collector, by gRPC or by HTTP with protobuf, over our own TLS.

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic_prost::ProstCodec;

use super::{OtelError, OtlpTarget, Protocol};
use crate::lifecycle;

pub(super) const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
pub(super) const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// An answer tells at most how much was rejected, and why.
const MAX_ANSWER: usize = 1 << 20;
/// A server may ask for patience, but not for too much of it.
const MOST_PATIENCE: Duration = Duration::from_secs(30);

/// Sends the messages of one signal.
pub(super) struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    endpoint: Uri,
    protocol: Protocol,
    /// The method of gRPC.
    method: PathAndQuery,
    headers: HeaderMap,
    gzip: bool,
    timeout: Duration,
}

/// Why a message was not taken.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may be taken later.
    Retry {
        after: Option<Duration>,
        reason: String,
    },
    Final(String),
}

/// Tasks of the connections.
#[derive(Clone, Copy, Debug)]
struct Executor;

// === impl Sender ===

impl Sender {
    /// Connects with the first message.
    pub(super) fn new(target: &OtlpTarget, method: &'static str) -> Result<Self, OtelError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(target.timeout));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(target)?).https_or_http();
        let connector = match target.protocol {
            Protocol::Grpc => connector.enable_http2().wrap_connector(tcp),
            Protocol::Http => connector.enable_all_versions().wrap_connector(tcp),
        };
        let client = Client::builder(Executor).http2_only(target.protocol == Protocol::Grpc).build(connector);
        let mut headers = target.headers.clone();
        let agent = concat!("informerd/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(Self {
            client,
            endpoint: target.endpoint.clone(),
            protocol: target.protocol,
            method: PathAndQuery::from_static(method),
            headers,
            gzip: target.gzip,
            timeout: target.timeout,
        })
    }

    /// Tells how many spans were rejected.
    pub(super) async fn send_spans(&self, message: &ExportTraceServiceRequest) -> Result<u64, Failure> {
        let answer: ExportTraceServiceResponse = self.send(message).await?;
        let partial = answer.partial_success.unwrap_or_default();
        warn_of(&partial.error_message);
        Ok(u64::try_from(partial.rejected_spans).unwrap_or(0))
    }

    /// Tells how many points were rejected.
    pub(super) async fn send_metrics(&self, message: &ExportMetricsServiceRequest) -> Result<u64, Failure> {
        let answer: ExportMetricsServiceResponse = self.send(message).await?;
        let partial = answer.partial_success.unwrap_or_default();
        warn_of(&partial.error_message);
        Ok(u64::try_from(partial.rejected_data_points).unwrap_or(0))
    }

    async fn send<M, A>(&self, message: &M) -> Result<A, Failure>
    where
        M: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let sent = async {
            match self.protocol {
                Protocol::Grpc => self.call(message).await,
                Protocol::Http => self.post(message).await,
            }
        };
        let late = || Failure::Retry { after: None, reason: "no answer in time".to_owned() };
        timeout(self.timeout, sent).await.unwrap_or_else(|_| Err(late()))
    }

    async fn call<M, A>(&self, message: &M) -> Result<A, Failure>
    where
        M: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        // grpc-go answers in the encoding of the request without asking who reads it.
        let gzip = CompressionEncoding::Gzip;
        let mut grpc = Grpc::with_origin(self.client.clone(), self.endpoint.clone()).accept_compressed(gzip);
        if self.gzip {
            grpc = grpc.send_compressed(gzip);
        }
        grpc.ready().await.map_err(|error| Failure::retry(&error))?;
        let mut request = tonic::Request::new(message.clone());
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        let codec = ProstCodec::<M, A>::default();
        match grpc.unary(request, self.method.clone(), codec).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                let reason = format!("{:?}: {}", status.code(), status.message());
                // As OTLP lists them; without a connection the code is unknown.
                let passing = matches!(
                    status.code(),
                    Code::Cancelled
                        | Code::DeadlineExceeded
                        | Code::Aborted
                        | Code::OutOfRange
                        | Code::Unavailable
                        | Code::DataLoss
                        | Code::ResourceExhausted
                        | Code::Unknown
                );
                Err(if passing { Failure::Retry { after: None, reason } } else { Failure::Final(reason) })
            }
        }
    }

    async fn post<M: Message, A: Message + Default>(&self, message: &M) -> Result<A, Failure> {
        let mut body = message.encode_to_vec();
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if self.gzip {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            let compressed = encoder.write_all(&body).and_then(|()| encoder.finish());
            body = compressed.map_err(|error| Failure::Final(error.to_string()))?;
            request.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        *request.body_mut() = Body::new(Full::from(body));
        let response = self.client.request(request).await.map_err(|error| Failure::retry(&error))?;
        let (status, after) = (response.status(), retry_after(response.headers()));
        if !status.is_success() {
            let reason = status.to_string();
            let passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
            return Err(if passing { Failure::Retry { after, reason } } else { Failure::Final(reason) });
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| Failure::Retry { after: None, reason: error.to_string() })?.to_bytes();
        // It was taken, whatever else it says.
        Ok(A::decode(body).unwrap_or_default())
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({})", self.endpoint)
    }
}

fn warn_of(message: &str) {
    if !message.is_empty() {
        tracing::debug!(message, "the collector has a remark");
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MOST_PATIENCE))
}

/// With our one cryptographic provider.
fn tls(target: &OtlpTarget) -> Result<ClientConfig, OtelError> {
    let wrong =
        |what: &str, error: &dyn fmt::Display| OtelError::Tls(format!("{what} for {}: {error}", target.endpoint));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong("TLS", &error))?;
    let is_plain = target.endpoint.scheme_str() != Some("https");
    let builder = match &target.ca {
        Some(pem) => builder.with_root_certificates(roots(pem).map_err(|error| wrong("CA", &error))?),
        None if is_plain => builder.with_root_certificates(rustls::RootCertStore::empty()),
        None => builder.with_native_roots().map_err(|error| wrong("the system's CAs", &error))?,
    };
    let Some((certificate, key)) = &target.client else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| wrong("client certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong("client key", &error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| wrong("client certificate", &error))
}

fn roots(pem: &str) -> Result<rustls::RootCertStore, String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

// === impl Failure ===

impl Failure {
    fn retry(error: &dyn std::error::Error) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        Self::Retry { after: None, reason }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { reason, .. } | Self::Final(reason) => f.write_str(reason),
        }
    }
}

// === impl Executor ===

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        lifecycle::spawn("telemetry-connection", future);
    }
}
