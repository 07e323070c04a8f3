//! `informerd demo`: a simulated cluster with a daemon in front of it, and a live view of both.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use super::daemon::Daemon;
use super::introspect::spared;
use super::kubeconfig::{self, Endpoint};
use super::live::{self, Banner, Live, Sample};
use super::process::{self, Context, End, ProcessError};
use crate::args::DemoArgs;
use crate::config::{Config, ResourcePattern, ResourceRule, RuleModes};
use crate::lifecycle::signals::Signals;
use crate::passthrough::LendIdentity;
use crate::telemetry::otel::Otel;
use crate::upstream::client::ConfigSource;
use informerd_sim::{Cluster, DemoConfig};

/// The simulated cluster, the daemon in front of it, and a kubeconfig that is deleted at the end.
struct Demo {
    daemon: Daemon,
    _cluster: Cluster,
    kubeconfig: PathBuf,
}

/// Resources whose informers run from the start, so that there is something to see.
const SHOWN: &[(&str, &str)] = &[
    ("", "nodes"),
    ("", "namespaces"),
    ("", "pods"),
    ("", "services"),
    ("", "events"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
    ("demo.informerd.io", "widgets"),
];

/// Runs until a signal arrives or the time is over.
///
/// # Errors
/// A port is in use, or the kubeconfig cannot be written.
pub(super) async fn run(config: &Config, demo: &DemoArgs, otel: &Otel) -> Result<End, ProcessError> {
    let signals = Signals::install().map_err(ProcessError::Signals)?;
    let (context, drain) = Context::new();
    otel.export(context.metrics.clone());
    let started = start(config, demo, context.clone());
    let duration = demo.duration;
    let until = |demo: &Demo| {
        let daemon = demo.daemon.clone();
        async move {
            let limit = async {
                match duration {
                    Some(duration) => tokio::time::sleep(duration).await,
                    None => std::future::pending().await,
                }
            };
            let (mut out, terminal) = (std::io::stdout(), std::io::stdout().is_terminal());
            // A closed output is no reason to stop serving.
            let line = async {
                live::show(&daemon, &mut out, terminal).await.ok();
                std::future::pending::<()>().await;
            };
            tokio::select! { () = line => {}, () = limit => {} }
        }
    };
    process::supervise(context, drain, config.drain.timeout, signals, started, until).await
}

async fn start(config: &Config, demo: &DemoArgs, context: Context) -> Result<Demo, String> {
    let shape = DemoConfig {
        nodes: demo.nodes as usize,
        pods: demo.pods as usize,
        namespaces: demo.namespaces as usize,
        churn: f64::from(demo.churn),
        seed: demo.seed,
        ..DemoConfig::default()
    };
    let cluster = Cluster::start(shape).await.map_err(|error| format!("the simulated cluster: {error}"))?;
    let url = cluster.server().url().parse().map_err(|error| format!("the simulated cluster: {error}"))?;
    let source = ConfigSource::Fixed(Box::new(kube::Config::new(url)));
    let mut config = config.clone();
    // The simulated apiserver has no users, so everything is allowed.
    config.lend_identity = LendIdentity::All;
    if config.informer.rules.is_empty() {
        config.informer.rules = SHOWN.iter().map(|(group, resource)| pinned(group, resource)).collect();
    }
    let daemon = Daemon::start(&config, source, &context).await.map_err(|error| format!("{error:#}"))?;

    let (https, address) = kubeconfig::listener(&daemon.listen)?;
    let ca = match &daemon.ca_file {
        Some(path) if https => Some(std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?),
        _ => None,
    };
    let path = std::env::temp_dir().join(format!("informerd-demo-{}.kubeconfig", std::process::id()));
    let text = kubeconfig::render(&Endpoint { https, address, ca })?;
    kubeconfig::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    let banner = Banner {
        url: &format!("{}://{address}", if https { "https" } else { "http" }),
        admin: daemon.admin,
        kubeconfig: &path,
        nodes: demo.nodes,
        pods: demo.pods,
        namespaces: demo.namespaces,
        churn: demo.churn,
    };
    // A closed output is no reason to stop serving.
    let _ = std::io::stdout().write_all(banner.render().as_bytes());
    Ok(Demo { daemon, _cluster: cluster, kubeconfig: path })
}

fn pinned(group: &str, resource: &str) -> ResourceRule {
    ResourceRule {
        pattern: ResourcePattern { group: group.to_owned(), resource: resource.to_owned() },
        exclude: false,
        pin: true,
        namespaces: Vec::new(),
        field_selector: String::new(),
        label_selector: String::new(),
        modes: RuleModes::default(),
        form: None,
        snapshot: true,
    }
}

// === impl Demo ===

impl Drop for Demo {
    fn drop(&mut self) {
        // Stop this before the simulated apiserver ends, so that its end is not reported as an error.
        self.daemon.factory.stop();
        // It does not matter if the file is already gone.
        let _ = std::fs::remove_file(&self.kubeconfig);
        let _ = live::finish(&self.daemon, &mut std::io::stdout(), std::io::stdout().is_terminal());
    }
}

// === impl Daemon ===

impl Live for Daemon {
    fn sample(&self) -> Sample {
        let caches: Vec<_> = self.factory.informers().iter().map(|informer| informer.cache().stats()).collect();
        let open = self.http.watches_open.get() + self.grpc.watches_open.get();
        Sample {
            objects: caches.iter().map(|stats| stats.objects as u64).sum(),
            watches: u64::try_from(open).unwrap_or(0),
            spared: spared(&self.factory, self.reads.metrics(), self.upstream.metrics(), &self.http, &self.grpc),
        }
    }
}
