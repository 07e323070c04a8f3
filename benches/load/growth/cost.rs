//! What a request costs a server, measured over as many as are needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http_body_util::BodyExt;
use tokio::time::{Duration, Instant};

use crate::client::{Connection, Protocol};
use crate::cpu::Meter;
use crate::server::Running;

/// Requests of one kind, by several users at once.
pub(crate) struct Requests {
    pub(crate) protocol: Protocol,
    pub(crate) users: usize,
    /// Users take these one after the other, and begin again.
    pub(crate) paths: Arc<[String]>,
}

/// So much CPU time can be measured.
const ENOUGH: f64 = 0.4;
/// The longest time for one measurement; the requests that run then still end.
const LONGEST: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// Microseconds of CPU for each request.
pub(crate) async fn micros(server: &Running, requests: &Requests) -> anyhow::Result<f64> {
    let (taken, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let mut connections = Vec::new();
    for _ in 0..requests.users {
        let mut connection = server.target.connect(requests.protocol).await?;
        read(&mut connection, &requests.paths[0]).await?;
        connections.push(connection);
    }
    let (meter, started) = (Meter::start(server.target.pid)?, Instant::now());
    let users: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (taken, stop, paths) = (Arc::clone(&taken), Arc::clone(&stop), Arc::clone(&requests.paths));
            informerd::lifecycle::spawn("load-reader", async move {
                while !stop.load(Ordering::Relaxed) {
                    let index = taken.fetch_add(1, Ordering::Relaxed);
                    read(&mut connection, &paths[index % paths.len()]).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    while meter.seconds()? < ENOUGH && started.elapsed() < LONGEST {
        tokio::time::sleep(LOOK).await;
    }
    stop.store(true, Ordering::Relaxed);
    for user in users {
        user.await??;
    }
    Ok(meter.seconds()? * 1e6 / taken.load(Ordering::Relaxed) as f64)
}

async fn read(connection: &mut Connection, path: &str) -> anyhow::Result<()> {
    let mut body = connection.get(path).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
