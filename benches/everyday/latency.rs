//! How long a read that must be the newest takes, directly and through informerd: small and large, of a quiet and of a busy
//! collection, while the store stands still and while it does not.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use informerd::lifecycle::spawn;
use tokio::time::Instant;

use super::Options;
use super::answers::Answers;
use super::server::Running;
use super::session::{CONTROLLER, JSON, PYTHON, Session, Side};
use super::world::{self, CONFIG_MAPS};

/// What is read, and what is written meanwhile, every [`WRITES`].
const CASES: [(&str, &str, Option<Written>); 6] = [
    ("small, quiet, still store", "/api/v1/namespaces/app-1/configmaps", None),
    ("small, quiet, busy store", "/api/v1/namespaces/app-1/services", Some(Written::ConfigMap)),
    ("small, busy", "/api/v1/namespaces/app-0/configmaps", Some(Written::ConfigMap)),
    ("large, quiet, still store", "/api/v1/pods", None),
    ("large, quiet, busy store", "/api/v1/pods", Some(Written::ConfigMap)),
    ("large, busy", "/api/v1/pods", Some(Written::Pod)),
];
const WRITES: Duration = Duration::from_millis(50);

#[derive(Clone, Copy)]
enum Written {
    ConfigMap,
    Pod,
}

/// Prints the table.
pub(crate) async fn measure(direct: &Arc<Side>, informerd: &Running, options: &Options) -> anyhow::Result<()> {
    let through = Arc::new(Side { target: informerd.target.clone(), answers: Answers::default() });
    println!(
        "\n| read | p50 direct | p50 through | p99 direct | p99 through | p99 later by |\n|---|---|---|---|---|---|"
    );
    for (what, path, written) in CASES {
        let writer = written.map(|written| {
            let direct = direct.clone();
            spawn("writer", async move { write(&direct, written).await })
        });
        let mut sessions = [Session::open(direct, &PYTHON).await?, Session::open(&through, &PYTHON).await?];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..options.reads {
            for (session, times) in sessions.iter_mut().zip(&mut times) {
                let begun = Instant::now();
                session.read(path, JSON).await?;
                times.push(begun.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        if let Some(writer) = writer {
            writer.abort();
        }
        let [[d50, d99], [t50, t99]] = times.map(|mut times| {
            times.sort_unstable();
            // What informerd does once, such as its first list, comes first and is one of the slowest hundredth.
            [50, 99].map(|percent| times[times.len() * percent / 100].as_secs_f64() * 1e3)
        });
        println!("| {what} | {d50:.1} ms | {t50:.1} ms | {d99:.1} ms | {t99:.1} ms | {:.1} ms |", t99 - d99);
    }
    Ok(())
}

async fn write(direct: &Arc<Side>, written: Written) -> anyhow::Result<()> {
    let mut session = Session::open(direct, &CONTROLLER).await?;
    for n in 0.. {
        match written {
            Written::ConfigMap => {
                let name = format!("conf-{}", n % CONFIG_MAPS);
                let body = world::config_map(&name, &format!("latency-{n}."));
                session.write(Method::PUT, &format!("/api/v1/namespaces/app-0/configmaps/{name}"), body).await?;
            }
            Written::Pod => {
                let patch = format!(r#"{{"metadata":{{"annotations":{{"latency":"{n}"}}}}}}"#);
                let path = format!("/api/v1/namespaces/app-{}/pods/pod-{:05}", n % 10, n % 10);
                session.patch(&path, patch).await?;
            }
        }
        tokio::time::sleep(WRITES).await;
    }
    Ok(())
}
