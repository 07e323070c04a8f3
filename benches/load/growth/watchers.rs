//! Deliveries by the number of watchers. The next event is written when every watcher has the one before, so that a
//! server cannot save work by sending several events at once.

use tokio::time::{Duration, Instant};

use super::numbers::{Line, Numbers};
use crate::client::{Connection, Protocol};
use crate::cpu::Meter;
use crate::fanout::write_once;
use crate::files;
use crate::fixture::{Fixture, MAP, Server};
use crate::server::{Running, Transport};
use crate::watchers::{Wanted, Watchers, resource_version};

/// Deliveries that are measured for a point, about.
const DELIVERIES: usize = 100_000;
/// Events that are measured for a point: the fewest and the most.
const EVENTS: (usize, usize) = (10, 400);
/// After it, what the start or the end of watchers has left behind is gone.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) async fn measure(
    fixture: &mut Fixture,
    numbers: &mut Numbers,
    options: &crate::Options,
) -> anyhow::Result<()> {
    for (protocol, server) in servers(&options.growth.growth_threads) {
        let running = fixture.start(&server).await?;
        let mut line = Line::new(server.row(protocol));
        measure_line(&running, protocol, fixture.writer(), &mut line, options).await?;
        match protocol {
            Protocol::Http1 => numbers.deliveries_http1.push(line),
            Protocol::Http2 | Protocol::Grpc => numbers.deliveries_http2.push(line),
        }
    }
    Ok(())
}

fn servers(threads: &[usize]) -> Vec<(Protocol, Server)> {
    let mut servers = vec![(Protocol::Http2, Server::Apiserver), (Protocol::Http1, Server::Apiserver)];
    for threads in threads {
        let name = format!("informerd, {threads} thread{}", if *threads == 1 { "" } else { "s" });
        let threads = threads.to_string();
        let flags = ["--threads", &threads, "--limits-max-connections", "100000"];
        let informerd = |protocol, transport| (protocol, Server::informerd(&name, transport, &flags));
        servers.extend([
            informerd(Protocol::Http2, Transport::Tls),
            informerd(Protocol::Grpc, Transport::Tls),
            informerd(Protocol::Http1, Transport::Tls),
            informerd(Protocol::Http1, Transport::Plain),
        ]);
    }
    servers.push((Protocol::Http1, Server::Broadcaster(Transport::Plain)));
    servers
}

async fn measure_line(
    server: &Running,
    protocol: Protocol,
    writer: &mut Connection,
    line: &mut Line,
    options: &crate::Options,
) -> anyhow::Result<()> {
    server.wait_until_cached("/api/v1/configmaps?resourceVersion=0").await?;
    let epoch = Instant::now();
    let meter = Meter::start(server.target.pid)?;
    for _ in 0..EVENTS.1 {
        write_once(writer, epoch).await?;
    }
    let unwatched = meter.seconds()? / EVENTS.1 as f64;
    for watchers in options.growth.growth_watchers.iter().copied() {
        if protocol == Protocol::Http1 && !files::allow(watchers) {
            line.leave_out(watchers, "the system allows too few open files".into());
            continue;
        }
        let updates = (DELIVERIES / watchers.max(1)).clamp(EVENTS.0, EVENTS.1);
        let rv = resource_version(&writer.get_text(MAP).await?)?;
        let wanted = Wanted { protocol, watchers, streams: options.streams, updates, rv, epoch };
        let mut watching = Watchers::open(&server.target, wanted).await?;
        tokio::time::sleep(SETTLE).await;
        let meter = Meter::start(server.target.pid)?;
        for _ in 0..updates {
            write_once(writer, epoch).await?;
            watching.one_each().await?;
        }
        let cpu_seconds = meter.seconds()? - unwatched * updates as f64;
        line.add(watchers, (watchers * updates) as f64 / cpu_seconds);
        watching.finish().await?;
        tokio::time::sleep(SETTLE).await;
    }
    Ok(())
}
