//! Why the export does not start.

/// Errors at the start, before anything is sent.
#[derive(Debug, thiserror::Error)]
pub enum OtelError {
    #[error("starting the thread that sends telemetry: {0}")]
    Thread(std::io::Error),
    #[error("{0}")]
    Tls(String),
    #[error("the export of traces: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}
