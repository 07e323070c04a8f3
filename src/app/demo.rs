//! `informerd demo`: a daemon in front of a simulated cluster.

use std::path::PathBuf;

use informerd_demo::{Clusters, Front, Options, Plan};

use super::daemon::Daemon;
use super::in_use;
use super::kubeconfig::{self, Endpoint};
use super::process::{self, Context};
use super::readers::READERS;
use crate::apiserver::client::ConfigSource;
use crate::args::DemoArgs;
use crate::config::{Config, ResourcePattern, ResourceRule};
use crate::lifecycle::signals::Shutdown;
use crate::passthrough::LendIdentity;
use crate::telemetry::otel::Otel;

/// The simulated clusters, the daemon in front of one of them, and a kubeconfig that is deleted at the end.
struct Demo {
    daemon: Daemon,
    clusters: Clusters,
    kubeconfig: PathBuf,
}

/// Runs until a signal arrives or the time is over.
///
/// # Errors
/// A port is in use, or the kubeconfig cannot be written.
pub(super) async fn run(config: &Config, demo: &DemoArgs, otel: &Otel) -> Result<Shutdown, String> {
    let (context, drain) = Context::new();
    let started = start(config, demo, context.clone());
    let until = async {
        match demo.duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    process::serve(context, drain, config, otel, started, until).await
}

async fn start(config: &Config, demo: &DemoArgs, context: Context) -> Result<Demo, String> {
    let DemoArgs { nodes, pods, namespaces, churn, seed, watchers, outage_after, outage, duration: _ } = *demo;
    let outage = outage_after.map(|after| Plan { after, length: outage });
    let options = Options { nodes, pods, namespaces, churn, seed, watchers, outage };
    let clusters = Clusters::start(&options).await?;
    let url = clusters.url().parse().map_err(|error| format!("the simulated cluster: {error}"))?;
    let source = ConfigSource::Fixed(Box::new(kube::Config::new(url)));
    let mut config = config.clone();
    // The simulated apiserver has no users, so everything is allowed.
    config.lend_identity = LendIdentity::All;
    if config.informer.rules.is_empty() {
        let resources = informerd_demo::resources();
        config.informer.rules = resources.iter().map(|(group, resource)| pinned(group, resource)).collect();
    }
    let daemon = match Daemon::start(&config, source, &context).await {
        Ok(daemon) => daemon,
        Err(error) => return Err(in_use::told(&error, &config).await),
    };
    let (https, address) = kubeconfig::listener(&daemon.listen)?;
    let ca = daemon.ca_file.clone().filter(|_| https);
    let path = std::env::temp_dir().join(format!("informerd-demo-{}.kubeconfig", std::process::id()));
    let read = ca.as_ref().map(|path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display())));
    let text = kubeconfig::render(&Endpoint { https, address, ca: read.transpose()?, namespace: None })?;
    kubeconfig::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    let Context { readiness, drain, .. } = context;
    let front = Front { https, address, ca, admin: daemon.admin, kubeconfig: path.clone(), readiness, drain };
    let running = Demo { daemon, clusters, kubeconfig: path };
    running.clusters.begin(&options, front, READERS).await?;
    Ok(running)
}

fn pinned(group: &str, resource: &str) -> ResourceRule {
    let pattern = ResourcePattern { group: group.to_owned(), resource: resource.to_owned() };
    ResourceRule { pin: true, ..ResourceRule::new(pattern) }
}

// === impl Demo ===

impl Drop for Demo {
    fn drop(&mut self) {
        // Stop this before the simulated apiserver ends, so that its end is not reported as an error.
        self.daemon.factory.stop();
        // It does not matter if the file is already gone.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}
