//! Patterns of the field that cost more through informerd than directly, or might: short programs, tokens, restarts. A line
//! for each: what the kube-apiserver has to do without informerd, and with one that is started for it, its start included.

mod cluster;
mod programs;
mod recorded;

use std::path::PathBuf;

use anyhow::Context;

use crate::client::{Protocol, Target};
use crate::cluster::Cluster;
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
    let cluster = Cluster::start().await;
    let apiserver = Target::admin(&cluster);
    let tokens = cluster::make(&cluster, &apiserver).await?;
    let wire = Wire::before(&apiserver.address).await?;
    let relayed = Target { address: wire.address.clone(), ..apiserver.clone() };
    let kubeconfig = relayed_kubeconfig(&cluster, &apiserver, &relayed)?;
    // What the kube-apiserver does once is done before it is measured.
    for recorded in [&recorded::DRY_RUN, &recorded::TOKEN] {
        recorded::replay(recorded, &side(&relayed), &side(&relayed)).await?;
    }
    let meter = Meter::new(apiserver.clone(), Some(cluster.etcd_pid()), wire).await?;
    let ground = Ground { options, dir: cluster.dir().into(), kubeconfig, apiserver, relayed, meter, tokens };
    println!(
        "\n| pattern | requests | lists | MB sent | CPU s | the start alone: requests, kB, CPU s | forwarded | |\n|---|---|---|---|---|---|---|---|"
    );
    for pattern in patterns.iter().copied() {
        eprintln!("{pattern:?}");
        println!("{}", ground.measure(pattern).await.with_context(|| format!("{pattern:?}"))?);
    }
    Ok(())
}

// === impl Ground ===

impl Ground<'_> {
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
        eprintln!("{without:?}\n{with:?}");
        let forwarded = daemon.context("informerd runs")?.running.forwarded().await?;
        let forwarded: Vec<_> = forwarded.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let pair = |of: fn(&Cost) -> f64, digits: usize| {
            let (without, with) = (of(&without), of(&with));
            format!("{without:.digits$} → {with:.digits$} (× {:.2})", with / without.max(0.001))
        };
        Ok(format!(
            "| {pattern:?} | {} | {} | {} | {} | {:.0}, {:.0}, {:.2} | {} | {note} |",
            pair(Cost::total, 0),
            pair(|cost| cost.of("LIST"), 0),
            pair(|cost| cost.bytes as f64 / 1e6, 2),
            pair(|cost| cost.cpu_seconds, 2),
            start.total(),
            start.bytes as f64 / 1e3,
            start.cpu_seconds,
            forwarded.join(", "),
        ))
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
