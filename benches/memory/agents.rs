//! A restart of many node agents at once, as in an upgrade of a DaemonSet, with snapshots and without.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::restart::ready;
use super::server::{Running, Transport};
use super::varied::node_name;
use super::world::World;
use super::{Options, client};

/// What the restart of all agents cost the kube-apiserver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentsCost {
    pub(crate) agents: usize,
    pub(crate) seconds: f64,
    pub(crate) apiserver_cpu_seconds: f64,
    pub(crate) requests: f64,
    /// Reads of a whole state.
    pub(crate) states: f64,
}

/// Snapshots are written for the first time some seconds after the start.
const WRITTEN: Duration = Duration::from_secs(15);

const FIRST_PORT: u16 = 20_000;

/// So many agents start at the same time.
const WAVE: usize = 10;

pub(crate) async fn run(
    binary: &Path,
    kubeconfig: &Path,
    state: &Path,
    with: bool,
    world: &World,
    options: &Options,
) -> anyhow::Result<AgentsCost> {
    let start = |agent: usize| -> anyhow::Result<Running> {
        let dir = state.join(format!("agent-{agent}"));
        let snapshots = dir.join("snapshots").display().to_string();
        let pods = format!("{{resource: pods, pin: true, fieldSelector: spec.nodeName={}}}", node_name(agent));
        let rules = format!(
            "[{pods}, {{resource: nodes, pin: true}}, {{resource: services, pin: true}}, {{resource: \"*\", exclude: true}}]"
        );
        let flags = ["--resources", &rules, "--threads", "1", "--snapshots-dir", &snapshots];
        // The system takes ports from above these for connections.
        let port = FIRST_PORT + 2 * u16::try_from(agent)?;
        let flags = if with { &flags } else { &flags[..4] };
        Running::informerd_at([port, port + 1], binary, kubeconfig, &dir, Transport::Plain, flags)
    };
    let mut agents = start_all(options.agents, &start).await?;
    sleep(WRITTEN).await;
    agents.clear();
    sleep(Duration::from_secs(2)).await;
    let (requests, cpu, begun) = (requests(world).await?, world.apiserver.cpu_seconds()?, Instant::now());
    let agents = start_all(options.agents, &start).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let cost = AgentsCost {
        agents: agents.len(),
        seconds,
        apiserver_cpu_seconds: world.apiserver.cpu_seconds()? - cpu,
        requests: self::requests(world).await? - requests,
        states: states(&agents).await?,
    };
    drop(agents);
    Ok(cost)
}

async fn start_all(count: usize, start: &impl Fn(usize) -> anyhow::Result<Running>) -> anyhow::Result<Vec<Running>> {
    let mut agents = Vec::new();
    while agents.len() < count {
        let from = agents.len();
        for agent in from..(from + WAVE).min(count) {
            agents.push(start(agent)?);
        }
        for agent in &agents[from..] {
            ready(agent).await?;
        }
    }
    Ok(agents)
}

/// All requests that the kube-apiserver has counted.
async fn requests(world: &World) -> anyhow::Result<f64> {
    let metrics = world.apiserver.connect(client::Protocol::Http2).await?.get_text("/metrics").await?;
    Ok(client::metric(&metrics, "apiserver_request_total"))
}

/// Reads of a whole state that the agents made.
async fn states(agents: &[Running]) -> anyhow::Result<f64> {
    let mut states = 0.0;
    for agent in agents {
        let metrics = agent.admin("/metrics").await?.unwrap_or_default();
        states += super::restart::states(&metrics);
    }
    Ok(states)
}
