//! Patterns of the field that cost more through informerd than directly, or might: short programs, tokens, restarts. A line
//! for each: what the kube-apiserver has to do without informerd, and with one that is started for it, its start included.

mod cluster;
mod controllers;
mod programs;
mod recorded;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::client::{Protocol, Target};
use crate::cluster::{Cluster, context};
use crate::meter::{Cost, Meter};
use crate::server::{Running, Transport};
use crate::wire::Wire;
use crate::{Options, Pattern, relayed_kubeconfig, side};

struct Ground<'a> {
    options: &'a Options,
    /// For files.
    dir: PathBuf,
    kubeconfig: PathBuf,
    /// The kube-apiserver without the relay: what it is asked is counted, and its bytes are not.
    apiserver: Target,
    relayed: Target,
    meter: Meter,
    tokens: Vec<String>,
}

struct Daemon {
    running: Running,
    ports: [u16; 2],
    /// What its clients talk to.
    target: Target,
}

/// Measures them one after the other, and prints their lines.
pub(crate) async fn run(options: &Options, patterns: &[Pattern]) -> anyhow::Result<()> {
    println!(
        "\n| pattern | requests | lists | MB sent | CPU s | the start alone: requests, kB, CPU s | forwarded | |\n|---|---|---|---|---|---|---|---|"
    );
    let (own, common): (Vec<_>, Vec<_>) = patterns.iter().copied().partition(|it| *it == Pattern::Controllers);
    if !common.is_empty() {
        let cluster = Cluster::start().await;
        let tokens = cluster::make(&cluster, &Target::admin(&cluster)).await?;
        let ground = Ground::new(options, &cluster, tokens).await?;
        for pattern in common {
            eprintln!("{pattern:?}");
            println!("{}", ground.measure(pattern).await.with_context(|| format!("{pattern:?}"))?);
        }
    }
    if !own.is_empty() {
        controllers::run(options).await.context("controllers")?;
    }
    Ok(())
}

/// A line of the table. `start`: what of `with` is the start alone; `note`: what is not in these figures.
fn line(name: &str, [without, with, start]: [&Cost; 3], forwarded: &BTreeMap<String, u64>, note: &str) -> String {
    eprintln!("{without:?}\n{with:?}");
    let forwarded: Vec<_> = forwarded.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let pair = |of: fn(&Cost) -> f64, digits: usize| {
        let (without, with) = (of(without), of(with));
        format!("{without:.digits$} → {with:.digits$} (× {:.2})", with / without.max(0.001))
    };
    format!(
        "| {name} | {} | {} | {} | {} | {:.0}, {:.0}, {:.2} | {} | {note} |",
        pair(Cost::total, 0),
        pair(|cost| cost.of("LIST"), 0),
        pair(|cost| cost.bytes as f64 / 1e6, 2),
        pair(|cost| cost.cpu_seconds, 2),
        start.total(),
        start.bytes as f64 / 1e3,
        start.cpu_seconds,
        forwarded.join(", "),
    )
}

// === impl Ground ===

impl<'a> Ground<'a> {
    async fn new(options: &'a Options, cluster: &Cluster, tokens: Vec<String>) -> anyhow::Result<Self> {
        let apiserver = Target::admin(cluster);
        let wire = Wire::before(&apiserver.address).await?;
        let relayed = Target { address: wire.address.clone(), ..apiserver.clone() };
        let kubeconfig = relayed_kubeconfig(cluster, &apiserver, &relayed)?;
        // What the kube-apiserver does once is done before it is measured.
        for recorded in [&recorded::DRY_RUN, &recorded::TOKEN] {
            recorded::replay(recorded, &side(&relayed), &side(&relayed)).await?;
        }
        let meter = Meter::new(apiserver.clone(), Some(cluster.etcd_pid()), wire).await?;
        Ok(Self { options, dir: cluster.dir().into(), kubeconfig, apiserver, relayed, meter, tokens })
    }

    /// For a program that reads one, in this directory if it has to be written.
    fn kubeconfig(&self, target: &Target, directory: &Path) -> anyhow::Result<PathBuf> {
        if target.ca.is_some() {
            return Ok(self.kubeconfig.clone());
        }
        let path = directory.join("kubeconfig");
        std::fs::write(&path, context(&format!("{{server: 'http://{}'}}", target.address), "{}"))?;
        Ok(path)
    }

    async fn measure(&self, pattern: Pattern) -> anyhow::Result<String> {
        self.prepare(pattern).await?;
        let begin = self.meter.begin().await?;
        self.act(pattern, &mut None).await.context("directly")?;
        let without = self.meter.end(&begin).await?;
        self.prepare(pattern).await?;
        let begin = self.meter.begin().await?;
        let mut daemon = Some(self.start_at([free_port()?, free_port()?], pattern).await?);
        let start = self.meter.end(&begin).await?;
        let note = self.act(pattern, &mut daemon).await.context("through informerd")?;
        let with = self.meter.end(&begin).await?;
        let forwarded = daemon.context("informerd runs")?.running.forwarded().await?;
        Ok(line(&format!("{pattern:?}"), [&without, &with, &start], &forwarded, &note))
    }

    /// What has to be there, and what nobody measures.
    async fn prepare(&self, pattern: Pattern) -> anyhow::Result<()> {
        if pattern == Pattern::Deletion {
            cluster::fill(&mut self.apiserver.connect(Protocol::Http2).await?, cluster::DOOMED).await?;
        }
        Ok(())
    }

    /// Directly if there is no daemon. Says what is not in the figures.
    async fn act(&self, pattern: Pattern, daemon: &mut Option<Daemon>) -> anyhow::Result<String> {
        let mut target = daemon.as_ref().map_or(&self.relayed, |daemon| &daemon.target).clone();
        match pattern {
            Pattern::Token => target.token = Some("admin-token".into()),
            Pattern::OtherToken => target.token = Some("reader-token".into()),
            _ => {}
        }
        match pattern {
            Pattern::Release => programs::release(self, &target).await.map(|()| String::new()),
            Pattern::Deletion => programs::deletion(&side(&target)).await,
            Pattern::Agent => programs::agent(self, &target).await,
            Pattern::RollOut => programs::roll_out(self, &target, daemon).await,
            _ => {
                let recorded = recorded::of(pattern).context("no pattern of this table")?;
                recorded::replay(recorded, &side(&target), &side(&self.relayed)).await.map(|()| String::new())
            }
        }
    }

    /// An informerd that has no state on disk; for pods the agent of their node.
    async fn start_at(&self, ports: [u16; 2], pattern: Pattern) -> anyhow::Result<Daemon> {
        const RULES: &str = "[{resource: pods, pin: true, fieldSelector: spec.nodeName=node-0}, {resource: nodes, pin: true}, {resource: namespaces, pin: true}, {resource: services, pin: true}, {resource: endpointslices.discovery.k8s.io, pin: true}, {resource: '*', exclude: true}]";
        let (state, port) = (self.dir.join("state"), free_port()?);
        let listen = format!("delegated+https://127.0.0.1:{port}");
        let mut flags: Vec<&str> = self.options.flag.iter().map(String::as_str).collect();
        if pattern == Pattern::Agent {
            flags.extend(["--listen", &listen, "--authentication-node", "node-0", "--resources", RULES]);
        }
        let binary = self.options.binary();
        let running = Running::informerd_at(ports, &binary, &self.kubeconfig, &state, Transport::Plain, &flags)?;
        running.wait_until_ready().await?;
        let mut target = running.target.clone();
        if pattern == Pattern::Agent {
            (target.address, target.ca) = (format!("127.0.0.1:{port}"), Some(state.join("ca.crt")));
        }
        Ok(Daemon { running, ports, target })
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
