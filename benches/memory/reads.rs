//! Lists of all objects of some kinds, of packed objects and of those that became plain.

use anyhow::{Context, ensure};
use aws_lc_rs::digest::{self, SHA256};

use super::client::{Protocol, Target};
use super::server::Running;
use super::start::memory;
use super::world;

/// What lists cost the server, CPU seconds for all kinds each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListCost {
    pub(crate) first: f64,
    /// The mean of those that follow.
    pub(crate) next: f64,
    pub(crate) bytes: usize,
    /// After them.
    pub(crate) resident: usize,
}

/// The items of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Items {
    digest: Vec<u8>,
    bytes: usize,
}

/// Lists once, and then `lists` times. All answers must have the items that the kube-apiserver has.
pub(crate) async fn run(
    server: &Running,
    paths: &[String],
    expected: &Items,
    lists: usize,
) -> anyhow::Result<ListCost> {
    let served = server.served().await?;
    let begun = server.target.cpu_seconds()?;
    let items = items(&server.target, paths).await?;
    ensure!(items == *expected, "the first list has other items than the kube-apiserver's");
    let first = server.target.cpu_seconds()?;
    for list in 1..=lists {
        ensure!(
            self::items(&server.target, paths).await? == *expected,
            "list {list} has other items than the first one"
        );
    }
    let last = server.target.cpu_seconds()?;
    server.check_served(served, (lists + 1) * paths.len()).await?;
    Ok(ListCost {
        first: first - begun,
        next: (last - first) / lists.max(1) as f64,
        bytes: items.bytes,
        resident: memory(&server.target, "VmRSS:")?,
    })
}

/// Lists all of these kinds, and digests the items: the metadata of lists have the revision of the moment.
pub(crate) async fn items(target: &Target, paths: &[String]) -> anyhow::Result<Items> {
    let (mut digest, mut bytes) = (digest::Context::new(&SHA256), 0);
    for path in paths {
        for item in world::items(target, path).await? {
            digest.update(&item);
            bytes += item.len();
        }
    }
    Ok(Items { digest: digest.finish().as_ref().to_vec(), bytes })
}

/// The revision of the server's newest list.
pub(crate) async fn revision(target: &Target) -> anyhow::Result<String> {
    const START: &str = r#""resourceVersion":""#;
    let text = target.connect(Protocol::Http2).await?.get_text("/api/v1/pods?resourceVersion=0&limit=1").await?;
    let rest = text.split_once(START).context("no resourceVersion")?.1;
    Ok(rest.split_once('"').context("no resourceVersion")?.0.to_owned())
}
