//! Complete lists, one after the other.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::Options;
use super::client::{Protocol, cpu_seconds};
use super::fixture::Running;

/// What one list costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListCost {
    pub(crate) wall_seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// Of the generator.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) bytes: usize,
    /// Before the first list, with everything in the cache.
    pub(crate) held_mib: f64,
    pub(crate) held_after_mib: f64,
}

const PODS: &str = "/api/v1/pods?resourceVersion=0";

/// `expected`: the digest of the items of the first server's list, which all others must have too.
pub(crate) async fn run(
    server: &Running,
    protocol: Protocol,
    expected: &mut Option<u64>,
    options: &Options,
) -> anyhow::Result<ListCost> {
    server.wait_until_cached("/api/v1/pods?resourceVersion=0&limit=1").await?;
    let held_mib = server.target.held_mib().await?;
    let served = server.served().await?;
    let mut connection = server.target.connect(protocol).await?;
    let body = connection.get_text(PODS).await?;
    let digest = items_digest(&body)?;
    ensure!(*expected.get_or_insert(digest) == digest, "the items are other ones than those of the first server");
    ensure!(body.len() > options.pods * 1_000, "the list has {} bytes only", body.len());
    let bytes = body.len();
    drop(body);

    let (cpu, own, started) = (server.target.cpu_seconds()?, cpu_seconds("self")?, Instant::now());
    for _ in 0..options.lists {
        let mut body = connection.get(PODS).await?.into_body();
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            received += frame?.data_ref().map_or(0, bytes::Bytes::len);
        }
        ensure!(received == bytes, "two lists of the same state differ in size");
    }
    let lists = options.lists as f64;
    let cost = ListCost {
        wall_seconds: started.elapsed().as_secs_f64() / lists,
        cpu_seconds: (server.target.cpu_seconds()? - cpu) / lists,
        client_cpu_seconds: (cpu_seconds("self")? - own) / lists,
        bytes,
        held_mib,
        held_after_mib: server.target.held_mib().await?,
    };
    server.check_served(served, options.lists + 1).await?;
    Ok(cost)
}

/// Of everything behind the list's metadata, which holds the revision of the moment.
fn items_digest(body: &str) -> anyhow::Result<u64> {
    let items = body.split_once(r#""items":["#).context("no items")?.1;
    let mut hasher = DefaultHasher::new();
    items.hash(&mut hasher);
    Ok(hasher.finish())
}
