//! Deliveries by the number of watchers. The next event is written when every watcher has the one before, so that a
//! server cannot save work by sending several events at once.

use anyhow::{Context, ensure};
use tokio::time::{Duration, Instant};

use super::{Panel, note};
use crate::Options;
use crate::client::Protocol;
use crate::cpu::Meter;
use crate::fanout::write_once;
use crate::files;
use crate::fixture::{Fixture, MAP, Server, UNWATCHED};
use crate::server::{Running, Transport};
use crate::watchers::{Wanted, Watchers, resource_version};

/// Deliveries in a turn, about, and the most events. As many events that nobody watches are written before, so that what
/// the writes themselves cost is known for the same moments.
const DELIVERIES: usize = 5_000;
const EVENTS: usize = 25;
/// The fewest turns and the most, how exact the result of all should be, and how long that may take.
const TURNS: (usize, usize) = (8, 100);
const ERROR: f64 = 0.05;
const LONGEST: Duration = Duration::from_secs(8);
/// After it, what the start of watchers has left behind is gone.
const SETTLE: Duration = Duration::from_secs(1);
/// The same of events.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn measure(fixture: &mut Fixture, panels: &mut Vec<Panel>, options: &Options) -> anyhow::Result<()> {
    let numbers: &[usize] = if options.small { &[10, 50, 200] } else { &[10, 100, 1_000, 10_000] };
    for (protocol, server) in servers(options) {
        let running = fixture.start(&server).await?;
        running.wait_until_cached("/api/v1/configmaps?resourceVersion=0").await?;
        for watchers in numbers.iter().copied() {
            let rate = rate(fixture, &running, protocol, watchers, options).await;
            note(panels, &server.way(protocol), server.name(), watchers, rate);
        }
    }
    Ok(())
}

/// The kube-apiserver is the last: it needs more for everything while it is young.
fn servers(options: &Options) -> Vec<(Protocol, Server)> {
    let mut servers = Vec::new();
    for (protocol, transport) in [
        (Protocol::Http2, Transport::Tls),
        (Protocol::Grpc, Transport::Tls),
        (Protocol::Http1, Transport::Tls),
        (Protocol::Http1, Transport::Plain),
    ] {
        let informerd = |name, flags| Server::Informerd { name, binary: options.informerd(), transport, flags };
        servers.extend([
            (protocol, informerd("informerd, 1 thread", &["--threads", "1", "--limits-max-connections", "20000"])),
            (protocol, informerd("informerd, 2 threads", &["--threads", "2", "--limits-max-connections", "20000"])),
        ]);
    }
    servers.extend([
        (Protocol::Http1, Server::Broadcaster(Transport::Plain)),
        (Protocol::Http2, Server::Apiserver),
        (Protocol::Http1, Server::Apiserver),
    ]);
    servers
}

/// Deliveries for each CPU second.
async fn rate(
    fixture: &mut Fixture,
    server: &Running,
    protocol: Protocol,
    watchers: usize,
    options: &Options,
) -> anyhow::Result<f64> {
    let (writer, pid, epoch) = (fixture.writer(), server.target.pid, Instant::now());
    let connections = if protocol == Protocol::Http1 { watchers } else { watchers.div_ceil(options.streams) };
    for pid in [std::process::id(), pid] {
        ensure!(files::allows(pid, connections)?, "the system allows too few open files");
    }
    // A revision that informerd has seen: watches from an older one are forwarded.
    write_once(writer, MAP, epoch).await?;
    tokio::time::sleep(PAUSE).await;
    let rv = resource_version(&writer.get_text(MAP).await?)?;
    let served = server.served().await?;
    let events = (DELIVERIES / watchers).clamp(1, EVENTS);
    let wanted = Wanted { protocol, watchers, streams: options.streams, updates: events * TURNS.1, rv, epoch };
    let mut watching = Watchers::open(&server.target, wanted).await.context("the watches could not be opened")?;
    server.check_served(served, if protocol == Protocol::Grpc { 0 } else { watchers }).await?;
    tokio::time::sleep(SETTLE).await;
    let (started, mut costs) = (Instant::now(), Vec::new());
    while costs.len() < TURNS.0 || (costs.len() < TURNS.1 && error(&costs) > ERROR && started.elapsed() < LONGEST) {
        let meter = Meter::start(pid)?;
        for _ in 0..events {
            write_once(writer, UNWATCHED, epoch).await?;
        }
        tokio::time::sleep(PAUSE).await;
        let unwatched = meter.seconds()?;
        let meter = Meter::start(pid)?;
        for _ in 0..events {
            write_once(writer, MAP, epoch).await?;
            watching.one_each().await?;
        }
        tokio::time::sleep(PAUSE).await;
        costs.push(meter.seconds()? - unwatched);
    }
    ensure!(error(&costs) < 0.5, "too little beside what the writes cost");
    Ok((watchers * events * costs.len()) as f64 / costs.iter().sum::<f64>())
}

/// The standard error of the sum, as a part of it.
fn error(costs: &[f64]) -> f64 {
    let sum: f64 = costs.iter().sum();
    let mean = sum / costs.len() as f64;
    costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>().sqrt() / sum.max(1e-9)
}
