//! The environment variables of the OpenTelemetry specification: which signals are exported, where, and how. They are
//! the same for every program, so they have no flags and no keys in the file.

use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::parse::choice;
use super::{Mistake, Origin, Source};
use crate::telemetry::otel::{MetricsExport, OtelConfig, OtlpTarget, Protocol, SpansExport, TraceSampler};

/// The allowed values of the exporter variables. `/metrics` is always served.
const EXPORTERS: &[(&str, bool)] = &[("otlp", true), ("none", false), ("prometheus", false)];
/// Headers that OTLP itself sets.
const RESERVED: &[&str] = &["content-type", "content-length", "content-encoding", "te", "host", "transfer-encoding"];

/// Reads the variables and collects their mistakes.
struct Variables<'a> {
    source: &'a dyn Source,
    mistakes: &'a mut Vec<Mistake>,
    warnings: Vec<String>,
}

/// The variables `OTEL_EXPORTER_OTLP_…` of one signal.
#[derive(Clone, Copy)]
struct Signal {
    name: &'static str,
    /// Appended to an endpoint that is for all signals.
    path: &'static str,
}

const TRACES: Signal = Signal { name: "TRACES", path: "v1/traces" };
const METRICS: Signal = Signal { name: "METRICS", path: "v1/metrics" };

/// Reads the export settings and warnings from the variables. Without any of them, nothing is exported.
pub(super) fn read(source: &dyn Source, mistakes: &mut Vec<Mistake>) -> (OtelConfig, Vec<String>) {
    let mut variables = Variables { source, mistakes, warnings: Vec::new() };
    if variables.parse("OTEL_SDK_DISABLED", boolean).unwrap_or(false) {
        return (OtelConfig::default(), Vec::new());
    }
    let config = OtelConfig { resource: variables.resource(), spans: variables.spans(), metrics: variables.metrics() };
    variables.ignored();
    (config, variables.warnings)
}

// === impl Variables ===

impl Variables<'_> {
    /// An empty variable counts as missing.
    fn get(&mut self, name: &str) -> Option<String> {
        match self.source.variable(name) {
            Ok(text) => text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
            Err(reason) => {
                self.wrong(name, reason);
                None
            }
        }
    }

    /// Reports each mistake once, even if a variable for all signals is read for each signal.
    fn wrong(&mut self, name: &str, message: String) {
        let mistake = Mistake::new(Origin::Variable(name.to_owned()), message);
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }

    fn parse<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.get(name)?;
        parse(&text).map_err(|message| self.wrong(name, message)).ok()
    }

    /// Parses the variable of the signal, or the one for all signals.
    fn of<T>(&mut self, signal: Signal, what: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name);
        if self.get(&own).is_some() {
            return self.parse(&own, parse);
        }
        self.parse(&format!("OTEL_EXPORTER_OTLP_{what}"), parse)
    }

    fn spans(&mut self) -> Option<SpansExport> {
        let target = self.target(TRACES)?;
        let queue = self.parse("OTEL_BSP_MAX_QUEUE_SIZE", count).unwrap_or(2048);
        let batch = self.parse("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", count);
        if batch.is_some_and(|batch| batch > queue) {
            self.wrong("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", format!("is more than the {queue} that the queue holds"));
        }
        Some(SpansExport {
            target,
            sampler: self.sampler(),
            queue,
            batch: batch.unwrap_or(512).min(queue),
            delay: self.parse("OTEL_BSP_SCHEDULE_DELAY", milliseconds).unwrap_or(Duration::from_secs(5)),
            timeout: self.parse("OTEL_BSP_EXPORT_TIMEOUT", milliseconds).unwrap_or(Duration::from_secs(30)),
        })
    }

    fn metrics(&mut self) -> Option<MetricsExport> {
        let target = self.target(METRICS)?;
        let interval = self.parse("OTEL_METRIC_EXPORT_INTERVAL", milliseconds).unwrap_or(Duration::from_secs(60));
        let timeout = self.parse("OTEL_METRIC_EXPORT_TIMEOUT", milliseconds).unwrap_or(Duration::from_secs(30));
        Some(MetricsExport { target, interval, timeout })
    }

    fn sampler(&mut self) -> TraceSampler {
        let name = self.get("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        let part = self.parse("OTEL_TRACES_SAMPLER_ARG", |text| {
            let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
            part.ok_or_else(|| format!("{text:?} is no part of all: want a number from 0 to 1"))
        });
        let part = part.unwrap_or(1.0);
        let known = [
            ("always_on", TraceSampler::All),
            ("always_off", TraceSampler::Nothing),
            ("traceidratio", TraceSampler::Ratio(part)),
            ("parentbased_always_on", TraceSampler::ParentOrAll),
            ("parentbased_always_off", TraceSampler::ParentOrNothing),
            ("parentbased_traceidratio", TraceSampler::ParentOrRatio(part)),
        ];
        choice(&name, &known).unwrap_or_else(|message| {
            self.wrong("OTEL_TRACES_SAMPLER", message);
            TraceSampler::ParentOrAll
        })
    }

    /// The target of the signal; `None` if it is not exported.
    fn target(&mut self, signal: Signal) -> Option<OtlpTarget> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.name);
        let said = self.parse(&exporter, |text| {
            let each: Result<Vec<bool>, _> = text.split(',').map(|one| choice(one.trim(), EXPORTERS)).collect();
            each.map(|each| each.contains(&true))
        });
        let own = self.get(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name)).is_some();
        let any = own || self.get("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
        if !said.unwrap_or(any) {
            return None;
        }
        let protocols = [("grpc", Protocol::Grpc), ("http/protobuf", Protocol::Http)];
        let protocol = self.of(signal, "PROTOCOL", |text| choice(text, &protocols)).unwrap_or(Protocol::Http);
        let endpoint = self.of(signal, "ENDPOINT", endpoint).unwrap_or_else(|| match protocol {
            Protocol::Grpc => Uri::from_static("http://localhost:4317"),
            Protocol::Http => Uri::from_static("http://localhost:4318"),
        });
        let endpoint = match protocol {
            Protocol::Http if !own => below(&endpoint, signal.path),
            _ => endpoint,
        };
        let compressions = [("gzip", true), ("none", false)];
        let (source, pem) = (self.source, "CERTIFICATE");
        let file = |path: &str| source.read(Path::new(path)).map_err(|error| format!("{path}: {error}"));
        let certificates = |path: &str| {
            let text = file(path)?;
            let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
            match found {
                Ok(found) if !found.is_empty() => Ok(text),
                _ => Err(format!("{path}: there is no certificate in it")),
            }
        };
        let key = |path: &str| {
            let text = file(path)?;
            PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| format!("{path}: there is no key in it"))?;
            Ok(text)
        };
        let ca = self.of(signal, pem, certificates);
        let client = (self.of(signal, "CLIENT_CERTIFICATE", certificates), self.of(signal, "CLIENT_KEY", key));
        let client = match client {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                self.wrong("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "needs its key beside it".to_owned());
                None
            }
            (None, Some(_)) => {
                self.wrong("OTEL_EXPORTER_OTLP_CLIENT_KEY", "needs its certificate beside it".to_owned());
                None
            }
        };
        Some(OtlpTarget {
            endpoint,
            protocol,
            headers: self.of(signal, "HEADERS", headers).unwrap_or_default(),
            timeout: self.of(signal, "TIMEOUT", milliseconds).unwrap_or(Duration::from_secs(10)),
            gzip: self.of(signal, "COMPRESSION", |text| choice(text, &compressions)).unwrap_or(false),
            ca,
            client,
        })
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let mut resource = self.parse("OTEL_RESOURCE_ATTRIBUTES", pairs).unwrap_or_default();
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            resource.push(("service.name".to_owned(), name));
        }
        resource
    }

    /// Warns about variables that informerd ignores. Other programs of the same pod may need them.
    fn ignored(&mut self) {
        if self.get("OTEL_LOGS_EXPORTER").is_some_and(|exporter| exporter != "none") {
            self.warnings.push("OTEL_LOGS_EXPORTER: log lines are written to standard error only".to_owned());
        }
        let known = ["tracecontext", "baggage"];
        let others = self.get("OTEL_PROPAGATORS").filter(|all| !all.split(',').all(|one| known.contains(&one.trim())));
        if let Some(others) = others {
            self.warnings.push(format!("OTEL_PROPAGATORS: {others}: only tracecontext and baggage are known"));
        }
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    choice(&text.to_ascii_lowercase(), &[("true", true), ("false", false)])
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    count.ok_or_else(|| format!("{text:?} is no count: want a number from 1 to 1000000"))
}

/// Parses milliseconds, the unit of all durations in the specification.
fn milliseconds(text: &str) -> Result<Duration, String> {
    let given = text.parse().ok().filter(|given| (1..=86_400_000).contains(given));
    given.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is no time: want milliseconds, as in 5000"))
}

fn endpoint(text: &str) -> Result<Uri, String> {
    // What is before it may be a password, and endpoints are logged.
    if text.contains('@') {
        return Err(
            "must have no @: a user and a password are sent as a header of OTEL_EXPORTER_OTLP_HEADERS".to_owned()
        );
    }
    let wrong = || format!("{text:?} is no endpoint: want http://HOST:PORT or https://HOST:PORT");
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let good = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    if good { Ok(uri) } else { Err(wrong()) }
}

fn below(base: &Uri, path: &str) -> Uri {
    let whole = format!("{}/{path}", base.to_string().trim_end_matches('/'));
    // If the base is a valid URI, the result is, too.
    whole.parse().unwrap_or_else(|_| base.clone())
}

/// Parses `a=b,c=d` with percent-encoded values.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let one = |pair: &str| {
        // The text may be a secret, so the message does not repeat it.
        let (name, value) = pair.split_once('=').ok_or_else(|| "want NAME=VALUE,NAME=VALUE".to_owned())?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| format!("{name}: is no UTF-8"))?;
        if name.trim().is_empty() {
            Err("want NAME=VALUE".to_owned())
        } else {
            Ok((name.trim().to_owned(), value.into()))
        }
    };
    text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(one).collect()
}

fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(text)? {
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a header"))?;
        if RESERVED.contains(&known.as_str()) {
            return Err(format!("{name} is not to be set"));
        }
        let mut value = HeaderValue::from_str(&value).map_err(|_| format!("{name}: its value cannot be sent"))?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

#[cfg(test)]
#[path = "otel_tests.rs"]
mod tests;
