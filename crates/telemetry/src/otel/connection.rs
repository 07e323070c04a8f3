//! The connection to a collector, by gRPC or by HTTP with protobuf, over informerd's TLS configuration.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{HttpClient, HttpError, ResponseExt};
use opentelemetry_otlp::{
    ExporterBuildError, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use super::{OtlpTarget, Protocol};

/// Sends the messages of one signal. It connects when it sends the first message.
#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    headers: HeaderMap,
    endpoint: Uri,
    gzip: bool,
}

#[derive(Debug)]
enum Wire {
    Grpc(Channel),
    Http(Box<HyperClient<HttpsConnector<HttpConnector>>>),
}

/// Adds the configured headers to every request unchanged. The exporter's own setting would decode them a second
/// time.
#[derive(Debug)]
struct WithHeaders<C> {
    client: C,
    headers: HeaderMap,
}

// === impl Connection ===

impl Connection {
    /// Must be called inside the runtime.
    pub(super) fn new(target: &OtlpTarget) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(target.timeout));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(target)?).https_or_http();
        let wire = match target.protocol {
            Protocol::Grpc => {
                let endpoint = Endpoint::from(target.endpoint.clone()).timeout(target.timeout);
                Wire::Grpc(endpoint.connect_with_connector_lazy(connector.enable_http2().wrap_connector(tcp)))
            }
            Protocol::Http => {
                let connector = connector.enable_all_versions().wrap_connector(tcp);
                Wire::Http(Box::new(HyperClient::new(connector, target.timeout, None)))
            }
        };
        let mut headers = target.headers.clone();
        let agent = concat!("informerd/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(Self { wire, headers, endpoint: target.endpoint.clone(), gzip: target.gzip })
    }

    /// Creates the SDK's exporter on this connection. It retries until the timeout for all attempts.
    pub(super) fn span_exporter(self, timeout: Duration) -> Result<SpanExporter, ExporterBuildError> {
        let patience = RetryPolicy::default()
            .with_max_retries(4)
            .with_initial_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(8))
            .with_max_jitter(Duration::from_millis(500));
        let gzip = opentelemetry_otlp::Compression::Gzip;
        match self.wire {
            Wire::Grpc(channel) => {
                let builder = SpanExporter::builder().with_tonic().with_channel(channel);
                let builder = builder.with_metadata(MetadataMap::from_headers(self.headers));
                let builder = if self.gzip { builder.with_compression(gzip) } else { builder };
                builder.with_retry_policy(patience).with_timeout(timeout).build()
            }
            Wire::Http(client) => {
                let client = WithHeaders { client: *client, headers: self.headers };
                let builder = SpanExporter::builder().with_http().with_http_client(client);
                let builder = builder.with_endpoint(self.endpoint.to_string());
                let builder = builder.with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
                let builder = if self.gzip { builder.with_compression(gzip) } else { builder };
                builder.with_retry_policy(patience).with_timeout(timeout).build()
            }
        }
    }

    /// Sends a reading once, without retries: the next reading contains the same data and more.
    pub(super) async fn send_metrics(&self, message: ExportMetricsServiceRequest) -> Result<(), HttpError> {
        match &self.wire {
            Wire::Grpc(channel) => {
                let mut client = MetricsServiceClient::new(channel.clone());
                if self.gzip {
                    // grpc-go uses the encoding of the request for its response.
                    let gzip = CompressionEncoding::Gzip;
                    client = client.send_compressed(gzip).accept_compressed(gzip);
                }
                let mut request = tonic::Request::new(message);
                *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
                client.export(request).await?;
            }
            Wire::Http(client) => {
                let mut request = Request::post(self.endpoint.clone());
                let mut body = message.encode_to_vec();
                if self.gzip {
                    request = request.header(CONTENT_ENCODING, "gzip");
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                    encoder.write_all(&body)?;
                    body = encoder.finish()?;
                }
                let request = request.header(CONTENT_TYPE, "application/x-protobuf").body(body.into())?;
                let client = WithHeaders { client: (**client).clone(), headers: self.headers.clone() };
                client.send_bytes(request).await?.error_for_status()?;
            }
        }
        Ok(())
    }
}

// === impl WithHeaders ===

#[tonic::async_trait]
impl<C: HttpClient> HttpClient for WithHeaders<C> {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().extend(self.headers.clone());
        self.client.send_bytes(request).await
    }
}

/// Creates the TLS configuration, with the only cryptographic provider of the process.
fn tls(target: &OtlpTarget) -> Result<ClientConfig, String> {
    let wrong = |what: &str, error: &dyn fmt::Display| format!("{what} for {}: {error}", target.endpoint);
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
