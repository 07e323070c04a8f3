//! Shard selectors (KEP-5866): lists, pages and watches of parts of collections. In one of the modes the apiserver evaluates
//! them, in the other it ignores them.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::curated::escaped;
use super::kinds::{custom, parted};
use super::report::{Report, at_once};
use super::scripts::{Watched, same, same_pages};
use super::streams::Start;
use super::wire::Ask;
use super::world::{BOUND, World};

const AT_ONCE: usize = 16;
const SPACES: [&str; 2] = ["diff-shards-a", "diff-shards-b"];
/// Objects of each kind in each namespace.
const OBJECTS: usize = 12;
const WIDGETS: &str = "/apis/differential.example.com/v1";

/// Both halves, some parts of either, everything, and nothing.
const GOOD: &[&str] = &[
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
    "shardRange(object.metadata.uid,\"0xc000000000000000\",'0xd000000000000000')||shardRange(object.metadata.uid, \
     '0x2000000000000000', '0x7000000000000000')",
    "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
    " shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')\t",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')",
];

/// What the apiserver refuses, or understands although nobody writes it so.
const ODD: &[&str] = &[
    " ",
    "x",
    "shardRange(object.metadata.uid, '0x0', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x8000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x000000000000000A', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000001')",
    "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x0000000000000000')",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') && true",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || \
     shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')",
    "(shardRange(object . metadata . uid, '0x0000000000000000', '0x8000000000000000'))",
    "shardRange(object.metadata.uid, r'0x0000000000000000', '''0x8000000000000000''') // a comment",
];

const ACCEPTS: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
];

const QUERIES: &[&str] = &[
    "",
    "labelSelector=even%3Dtrue",
    "resourceVersion=0",
    "resourceVersion=0&limit=2",
    "resourceVersion={now}",
    "resourceVersion={now}&resourceVersionMatch=Exact",
    "resourceVersion={now}&limit=3",
    "resourceVersion={now}&resourceVersionMatch=NotOlderThan&limit=500",
    "resourceVersion={now}&limit=3&labelSelector=even%3Dtrue",
    "resourceVersion={now}&fieldSelector=metadata.namespace%3Ddiff-shards-a",
    "resourceVersion={now}&fieldSelector=metadata.name%3Ds01",
    "limit=1",
];

/// All of it, or so many lists of it.
pub(crate) async fn run(world: &Arc<World>, first: usize, report: &Arc<Report>) {
    let outcome = async {
        set_up(world).await?;
        // What is asked for only now has informers from the second time on.
        for collection in collections() {
            let asks = ACCEPTS.iter().map(|accept| {
                let ask = Ask::get(format!("{collection}?resourceVersion=0")).header("Accept", accept);
                async move { world.pair[1].ask(&ask, BOUND).await }
            });
            join_all(asks).await;
        }
        lists(world, first, report).await;
        if first < usize::MAX {
            return Ok(());
        }
        pages(world, report).await;
        watches(world, report).await
    };
    if let Err(error) = outcome.await {
        report.wrong("shards: the harness itself", &format!("  {error}\n"));
    }
}

fn collections() -> Vec<String> {
    let [space, _] = SPACES;
    vec![
        "/api/v1/configmaps".to_owned(),
        format!("/api/v1/namespaces/{space}/configmaps"),
        format!("{WIDGETS}/widgets"),
        format!("{WIDGETS}/gadgets"),
        "/api/v1/nodes".to_owned(),
        "/api/v1/events".to_owned(),
    ]
}

fn object(n: usize, is_widget: bool) -> Value {
    let object = parted(&format!("s{n:02}"), n);
    if is_widget { custom("Widget", object) } else { object }
}

async fn set_up(world: &World) -> Result<(), String> {
    for space in SPACES {
        world.create("/api/v1/namespaces", &json!({"metadata": {"name": space}})).await?;
        for n in 0..OBJECTS {
            world.create(&format!("/api/v1/namespaces/{space}/configmaps"), &object(n, false)).await?;
            world.create(&format!("{WIDGETS}/namespaces/{space}/widgets"), &object(n, true)).await?;
        }
    }
    world.settle().await
}

/// Every selector of every collection, with the queries and the encodings in turn.
async fn lists(world: &Arc<World>, first: usize, report: &Arc<Report>) {
    let mut asks = Vec::new();
    let mut turn = 0;
    for collection in collections() {
        for selector in GOOD {
            for query in QUERIES {
                turn += 1;
                asks.push((format!("{collection}?{query}"), *selector, ACCEPTS[turn % ACCEPTS.len()]));
            }
        }
    }
    for (n, selector) in ODD.iter().enumerate() {
        for query in ["resourceVersion=0", "watch=1&resourceVersion={now}&timeoutSeconds=1"] {
            let collection = &collections()[n % 3];
            asks.push((format!("{collection}?{query}"), *selector, ACCEPTS[n % 2]));
        }
    }
    let lists = asks.into_iter().take(first).map(|(target, selector, accept)| {
        let target = target.replace("{now}", &world.now().to_string());
        let ask = Ask::get(format!("{target}&shardSelector={}", escaped(selector))).header("Accept", accept);
        let (world, report) = (Arc::clone(world), Arc::clone(report));
        async move { drop(same(&world, &format!("shards: {selector} {accept}"), ask, &report).await) }
    });
    at_once("shards", AT_ONCE, lists, report).await;
}

async fn pages(world: &World, report: &Report) {
    for collection in [&collections()[0], &collections()[2], &collections()[5]] {
        for selector in GOOD {
            let (first, each) = (format!("resourceVersion={}", world.now()), escaped(selector));
            let each = format!("limit=3&shardSelector={each}");
            same_pages(world, &format!("shards: {selector}"), collection, &first, &each, report).await;
        }
    }
}

/// Watches of every selector while objects come, change, leave other selections and go.
async fn watches(world: &World, report: &Report) -> Result<(), String> {
    let starts = [
        ("resourceVersion=0&allowWatchBookmarks=1", Start::Anywhere),
        ("resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=1", Start::Anywhere),
        ("resourceVersion={now}&labelSelector=even%3Dtrue", Start::Named),
        ("resourceVersion={now}", Start::Named),
    ];
    let accepts = ["application/json", "application/vnd.kubernetes.protobuf,application/json"];
    let mut open = Vec::new();
    for (n, selector) in GOOD.iter().enumerate() {
        for (m, (start, from)) in starts.iter().enumerate() {
            for collection in [&collections()[0], &collections()[2]] {
                let start = start.replace("{now}", &world.now().to_string());
                let query = format!("{collection}?watch=1&timeoutSeconds=60&{start}");
                let ask = Ask::get(format!("{query}&shardSelector={}", escaped(selector)));
                let ask = ask.header("Accept", accepts[(n + m) % accepts.len()]);
                open.push((format!("shards ({query} {selector})"), *from, ask));
            }
        }
    }
    let open =
        join_all(open.into_iter().map(|(what, from, ask)| async move {
            Watched::open(world, ask).await.map(|watched| (what, from, watched))
        }));
    let open = open.await.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (n, space) in SPACES.iter().enumerate() {
        for (root, plural, is_widget) in [("/api/v1", "configmaps", false), (WIDGETS, "widgets", true)] {
            let collection = format!("{root}/namespaces/{space}/{plural}");
            for at in 0..4 {
                let path = format!("{collection}/s{at:02}");
                let even = (n + at).is_multiple_of(2).to_string();
                world.patch(&path, &json!({"metadata": {"labels": {"even": even}}})).await?;
                world.create(&collection, &object(OBJECTS + at, is_widget)).await?;
                world.delete(&format!("{collection}/s{:02}", 4 + at)).await?;
            }
        }
    }
    Watched::until_all_rest(open.iter().map(|(.., watched)| watched), BOUND).await;
    for (what, from, watched) in open {
        let wrong = watched.differences(from);
        watched.report(world, &what, &wrong, report);
    }
    Ok(())
}
