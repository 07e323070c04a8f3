//! What a pattern costs the kube-apiserver.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use super::client::{Protocol, Target};
use super::cpu::Meter as Cpu;
use super::wire::Wire;

/// Requests by verb, and TokenReviews by themselves. A watch counts when it begins.
type Requests = BTreeMap<String, f64>;

/// What the kube-apiserver did in some time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) requests: Requests,
    /// Bytes it sent.
    pub(crate) bytes: u64,
    /// Less what it uses at rest.
    pub(crate) cpu_seconds: f64,
    pub(crate) etcd_cpu_seconds: f64,
    pub(crate) wall_seconds: f64,
}

pub(crate) struct Meter {
    apiserver: Target,
    etcd: Option<u32>,
    pub(crate) wire: Wire,
    /// CPU seconds a second of the kube-apiserver and of etcd when nobody asks anything.
    rest: (f64, f64),
}

pub(crate) struct Reading {
    requests: Requests,
    bytes: u64,
    /// Since then, of the kube-apiserver and of etcd.
    cpu: (Cpu, Option<Cpu>),
    at: Instant,
}

/// The verb that TokenReviews are counted by.
pub(crate) const TOKEN_REVIEW: &str = "TokenReview";

/// How long the servers are watched at rest.
const REST: Duration = Duration::from_secs(20);
/// What was done before has ended after it.
const SETTLE: Duration = Duration::from_secs(1);
/// Longer than programs wait that have something to do: a namespace is emptied after five seconds.
const QUIET: Duration = Duration::from_secs(10);

// === impl Meter ===

impl Meter {
    pub(crate) async fn new(apiserver: Target, etcd: Option<u32>, wire: Wire) -> anyhow::Result<Self> {
        let mut meter = Self { apiserver, etcd, wire, rest: (0.0, 0.0) };
        let begin = meter.begin().await?;
        tokio::time::sleep(REST).await;
        let cost = meter.end(&begin).await?;
        meter.rest = (cost.cpu_seconds / cost.wall_seconds, cost.etcd_cpu_seconds / cost.wall_seconds);
        eprintln!("at rest: {:.1} % and {:.1} % of a processor", meter.rest.0 * 100.0, meter.rest.1 * 100.0);
        Ok(meter)
    }

    pub(crate) async fn begin(&self) -> anyhow::Result<Reading> {
        tokio::time::sleep(SETTLE).await;
        let requests = self.requests().await?;
        let cpu = (Cpu::start(self.apiserver.pid)?, self.etcd.map(Cpu::start).transpose()?);
        Ok(Reading { requests, bytes: self.wire.sent(), cpu, at: Instant::now() })
    }

    /// From a beginning on, which may have other ends.
    pub(crate) async fn end(&self, begin: &Reading) -> anyhow::Result<Cost> {
        tokio::time::sleep(SETTLE).await;
        let (bytes, cpu) = (self.wire.sent(), begin.cpu.0.seconds()?);
        let etcd_cpu = begin.cpu.1.as_ref().map_or(Ok(0.0), Cpu::seconds)?;
        let wall_seconds = begin.at.elapsed().as_secs_f64();
        let mut requests = self.requests().await?;
        for (verb, count) in &begin.requests {
            *requests.entry(verb.clone()).or_default() -= count;
        }
        requests.retain(|_, count| *count > 0.0);
        Ok(Cost {
            requests,
            bytes: bytes - begin.bytes,
            cpu_seconds: (cpu - self.rest.0 * wall_seconds).max(0.0),
            etcd_cpu_seconds: (etcd_cpu - self.rest.1 * wall_seconds).max(0.0),
            wall_seconds,
        })
    }

    /// Until nobody asks anything any more.
    pub(crate) async fn quiet(&self) -> anyhow::Result<()> {
        let mut before = self.requests().await?;
        for _ in 0..60 {
            tokio::time::sleep(QUIET).await;
            let requests = self.requests().await?;
            if requests == before {
                return Ok(());
            }
            before = requests;
        }
        bail!("there is no end of requests")
    }

    /// Since the start, as the kube-apiserver counts them. It counts a watch when it ends, so the open ones are added.
    async fn requests(&self) -> anyhow::Result<Requests> {
        let text = self.apiserver.connect(Protocol::Http2).await?.get_text("/metrics").await?;
        let mut requests = Requests::new();
        for line in text.lines().filter(|line| counts(line)) {
            let verb = line.split_once("verb=\"").and_then(|(_, rest)| rest.split_once('"'));
            let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
            if let Some(((verb, _), count)) = verb.zip(count) {
                let verb = if line.contains("resource=\"tokenreviews\"") { TOKEN_REVIEW } else { verb };
                *requests.entry(verb.to_owned()).or_default() += count;
            }
        }
        Ok(requests)
    }
}

/// Not what the kube-apiserver asks of itself all the time, and not how it is measured. No pattern asks for any of it.
fn counts(line: &str) -> bool {
    const PATHS: [&str; 4] = ["/metrics", "/readyz", "openapi/v3", "openapi/v3/"];
    const RESOURCES: [&str; 3] = ["leases", "endpoints", "endpointslices"];
    let is = |label: &str, values: &[&str]| values.iter().any(|value| line.contains(&format!("{label}=\"{value}\"")));
    (line.starts_with("apiserver_request_total{") || line.starts_with("apiserver_longrunning_requests{"))
        && !is("subresource", &PATHS)
        && !is("resource", &RESOURCES)
}

// === impl Cost ===

impl Cost {
    pub(crate) fn total(&self) -> f64 {
        self.requests.values().sum()
    }

    pub(crate) fn of(&self, verb: &str) -> f64 {
        self.requests.get(verb).copied().unwrap_or_default()
    }
}
