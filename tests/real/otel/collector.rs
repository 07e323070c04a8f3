//! A collector for tests: takes OTLP by gRPC and by HTTP, and keeps everything.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tower::ServiceExt;

use crate::support::serve::answering;

#[derive(Default)]
pub(super) struct Kept {
    pub spans: Vec<ExportTraceServiceRequest>,
    pub metrics: Vec<ExportMetricsServiceRequest>,
    /// Of every message.
    pub headers: Vec<HeaderMap>,
}

#[derive(Clone)]
pub(super) struct Collector {
    pub url: String,
    kept: Arc<Mutex<Kept>>,
    /// Messages that are still to be refused, as a collector does that is overloaded.
    refusals: Arc<AtomicU32>,
}

/// Attributes as texts.
pub(super) type Attributes = BTreeMap<String, String>;

impl Collector {
    pub(super) async fn start() -> Self {
        let mut collector = Self { url: String::new(), kept: Arc::default(), refusals: Arc::default() };
        let all = collector.clone();
        let answer = move |request| {
            let all = all.clone();
            async move { all.answer(request).await }
        };
        collector.url = format!("http://localhost:{}", answering(None, answer).await.port());
        collector
    }

    /// Refuses so many messages first.
    pub(super) fn refuse(&self, count: u32) {
        self.refusals.store(count, Ordering::SeqCst);
    }

    pub(super) fn refusals_left(&self) -> u32 {
        self.refusals.load(Ordering::SeqCst)
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Kept) -> T) -> T {
        look(&self.kept.lock())
    }

    pub(super) fn spans(&self) -> Vec<Span> {
        let kept = self.kept.lock();
        let resources = kept.spans.iter().flat_map(|message| &message.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    pub(super) fn resource(&self) -> Attributes {
        self.look(|kept| attributes(&kept.spans[0].resource_spans[0].resource.as_ref().unwrap().attributes))
    }

    fn is_refused(&self) -> bool {
        self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.kept.lock().headers.push(request.headers().clone());
        let grpc = request.headers().get("content-type").is_some_and(|kind| kind == "application/grpc");
        let path = request.uri().path().to_owned();
        if grpc {
            let gzip = CompressionEncoding::Gzip;
            return match path.as_str() {
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => {
                    TraceServiceServer::new(self.clone()).accept_compressed(gzip).oneshot(request).await.unwrap()
                }
                _ => MetricsServiceServer::new(self.clone()).accept_compressed(gzip).oneshot(request).await.unwrap(),
            };
        }
        assert_eq!(request.headers()["content-type"], "application/x-protobuf");
        if self.is_refused() {
            return Response::builder().status(503).body(Body::empty()).unwrap();
        }
        let gzip = request.headers().get("content-encoding").is_some();
        let mut bytes = request.into_body().collect().await.unwrap().to_bytes().to_vec();
        if gzip {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            bytes = plain;
        }
        match path.as_str() {
            "/v1/traces" => self.kept.lock().spans.push(Message::decode(&bytes[..]).unwrap()),
            "/v1/metrics" => self.kept.lock().metrics.push(Message::decode(&bytes[..]).unwrap()),
            _ => return Response::builder().status(404).body(Body::empty()).unwrap(),
        }
        Response::new(Body::new(Full::new(Bytes::new())))
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        if self.is_refused() {
            return Err(tonic::Status::unavailable("later"));
        }
        self.kept.lock().spans.push(request.into_inner());
        Ok(tonic::Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, tonic::Status> {
        self.kept.lock().metrics.push(request.into_inner());
        Ok(tonic::Response::new(Default::default()))
    }
}

pub(super) fn attributes(pairs: &[KeyValue]) -> Attributes {
    let text = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    pairs.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}
