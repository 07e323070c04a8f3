//! Lists of all pods, of packed objects and of those that became plain.

use anyhow::{Context, ensure};
use aws_lc_rs::digest::{self, SHA256};
use http_body_util::BodyExt;

use super::client::{Protocol, Target};
use super::server::Running;
use super::start::memory;

/// What lists cost the server, CPU seconds each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListCost {
    pub(crate) first: f64,
    /// The mean of those that follow.
    pub(crate) next: f64,
    pub(crate) bytes: usize,
    /// After them.
    pub(crate) resident: usize,
}

/// The items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Items {
    digest: Vec<u8>,
    bytes: usize,
}

const PODS: &str = "/api/v1/pods?resourceVersion=0";
const FIRST_ITEM: &[u8] = br#""items":["#;

/// Lists once, and then `lists` times. All answers must have the items that the kube-apiserver has.
pub(crate) async fn run(server: &Running, expected: &Items, lists: usize) -> anyhow::Result<ListCost> {
    let served = server.served().await?;
    let begun = server.target.cpu_seconds()?;
    let items = items(&server.target).await?;
    ensure!(items == *expected, "the first list has other items than the kube-apiserver's");
    let first = server.target.cpu_seconds()?;
    for list in 1..=lists {
        ensure!(self::items(&server.target).await? == *expected, "list {list} has other items than the first one");
    }
    let last = server.target.cpu_seconds()?;
    server.check_served(served, lists + 1).await?;
    Ok(ListCost {
        first: first - begun,
        next: (last - first) / lists.max(1) as f64,
        bytes: items.bytes,
        resident: memory(&server.target, "VmRSS:")?,
    })
}

/// Lists all pods, and digests everything behind the list's metadata, which has the revision of the moment.
pub(crate) async fn items(target: &Target) -> anyhow::Result<Items> {
    let mut body = target.connect(Protocol::Http2).await?.get(PODS).await?.into_body();
    let (mut digest, mut bytes, mut head) = (digest::Context::new(&SHA256), 0, Some(Vec::new()));
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        let Some(begin) = &mut head else {
            digest.update(data);
            bytes += data.len();
            continue;
        };
        begin.extend_from_slice(data);
        if let Some(at) = memchr::memmem::find(begin, FIRST_ITEM) {
            digest.update(&begin[at..]);
            bytes += begin.len() - at;
            head = None;
        }
    }
    ensure!(head.is_none(), "no items");
    Ok(Items { digest: digest.finish().as_ref().to_vec(), bytes })
}

/// The revision of the server's newest list.
pub(crate) async fn revision(target: &Target) -> anyhow::Result<String> {
    const START: &str = r#""resourceVersion":""#;
    let text = target.connect(Protocol::Http2).await?.get_text("/api/v1/pods?resourceVersion=0&limit=1").await?;
    let rest = text.split_once(START).context("no resourceVersion")?.1;
    Ok(rest.split_once('"').context("no resourceVersion")?.0.to_owned())
}
