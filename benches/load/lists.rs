//! Complete lists, one after the other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

use anyhow::{Context, ensure};
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::Options;
use super::client::Protocol;
use super::cpu::Meter;
use super::server::Running;

/// What one list costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListCost {
    pub(crate) wall_seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// Of the generator.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) bytes: usize,
    /// As sent.
    pub(crate) wire_bytes: usize,
    /// Before the first list, with everything in the cache.
    pub(crate) held_mib: f64,
    pub(crate) held_after_mib: f64,
}

const PODS: &str = "/api/v1/pods?resourceVersion=0";

/// `expected`: the digest of the items of the first server's list, which all others must have too.
pub(crate) async fn run(
    server: &Running,
    protocol: Protocol,
    gzip: bool,
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

    let (meter, own, started) = (Meter::start(server.target.pid)?, Meter::start(std::process::id())?, Instant::now());
    let mut wire_bytes = 0;
    for _ in 0..options.lists {
        let response = if gzip { connection.get_gzip(PODS).await? } else { connection.get(PODS).await? };
        ensure!(response.headers().contains_key("content-encoding") == gzip, "compressed, or not, against the request");
        let mut body = response.into_body();
        let mut inflate = MultiGzDecoder::new(Counted(0));
        let mut received = 0;
        wire_bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            wire_bytes += data.len();
            if gzip {
                inflate.write_all(data)?;
            } else {
                received += data.len();
            }
        }
        if gzip {
            inflate.try_finish()?;
            received = inflate.get_ref().0;
        }
        ensure!(received == bytes, "two lists of the same state differ in size");
    }
    let lists = options.lists as f64;
    let cost = ListCost {
        wall_seconds: started.elapsed().as_secs_f64() / lists,
        cpu_seconds: meter.seconds()? / lists,
        client_cpu_seconds: own.seconds()? / lists,
        bytes,
        wire_bytes,
        held_mib,
        held_after_mib: server.target.held_mib().await?,
    };
    server.check_served(served, options.lists + 1).await?;
    Ok(cost)
}

/// Counts what is written to it.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of everything behind the list's metadata, which holds the revision of the moment.
fn items_digest(body: &str) -> anyhow::Result<u64> {
    let items = body.split_once(r#""items":["#).context("no items")?.1;
    let mut hasher = DefaultHasher::new();
    items.hash(&mut hasher);
    Ok(hasher.finish())
}
