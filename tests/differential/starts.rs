//! Where watches start, in every combination; and the states between the changes to one collection.

use serde_json::json;

use super::report::Report;
use super::scripts::{Watched, same, same_pages};
use super::streams::{Start, events};
use super::wire::Ask;
use super::world::{BOUND, World, rv};

/// Which events there were of the state before the two that follow.
const ALL: &[&str] = &["1", "2", "3"];

pub(crate) async fn run(world: &World, seed: u64, report: &Report) -> Result<(), String> {
    let space = format!("diff-starts{seed}");
    world.create("/api/v1/namespaces", &json!({"metadata": {"name": space}})).await?;
    matrix(world, &space, report).await?;
    between(world, &space, report).await
}

/// Three objects, watches from everywhere, and two objects more.
async fn matrix(world: &World, space: &str, report: &Report) -> Result<(), String> {
    let pods = &format!("/api/v1/namespaces/{space}/pods");
    let maps = format!("/api/v1/namespaces/{space}/configmaps");
    let pod =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "image"}]}});
    world.settle().await?;
    let old = world.now();
    for name in ALL {
        world.create(pods, &pod(name)).await?;
    }
    // Something else, of which an end of the state must know as well.
    let other = json!({"metadata": {"name": "other"}});
    world.create(&maps, &other).await?;
    world.settle().await?;

    let mut open = Vec::new();
    let revisions = [String::new(), "0".to_owned(), old.to_string(), world.now().to_string()];
    for (n, revision) in revisions.iter().enumerate() {
        let from = if n == 0 { String::new() } else { format!("&resourceVersion={revision}") };
        for bookmarks in ["", "&allowWatchBookmarks=true"] {
            for (initial, held) in [(true, ALL), (false, if n == 2 { ALL } else { &[] })] {
                let query =
                    format!("watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents={initial}{from}{bookmarks}");
                open.push((format!("{pods}?{query}"), if initial { Start::Anywhere } else { Start::Named }, held));
            }
        }
        if n < 2 {
            let legacy = pods.replace("/v1/", "/v1/watch/");
            open.push((format!("{legacy}?allowWatchBookmarks=true{from}"), Start::Anywhere, ALL));
        }
    }
    let mut watches = Vec::new();
    for (target, start, held) in open {
        let ask = Ask::get(format!("{target}&timeoutSeconds=60"));
        watches.push((target, start, held, Watched::open(world, ask).await?));
    }
    for name in ["4", "5"] {
        world.create(pods, &pod(name)).await?;
    }
    Watched::until_all_rest(watches.iter().map(|watch| &watch.3), BOUND).await;
    for (target, start, held, watched) in watches {
        let mut wrong = watched.differences(start);
        let mut marks = Vec::new();
        for (side, answer) in ["direct", "through"].iter().zip(&watched.answers()) {
            marks.push(events(answer)?.into_iter().find(|event| event.marks_end).map(|event| event.rv));
            let told: Vec<_> = events(answer)?.into_iter().filter(|event| event.kind != "BOOKMARK").collect();
            let names: Vec<_> = told.iter().map(|event| event.key.rsplit('/').next().unwrap_or_default()).collect();
            let want: Vec<_> = held.iter().copied().chain(["4", "5"]).collect();
            if names != want || told.iter().any(|event| event.kind != "ADDED") {
                wrong.push(format!("{side}: {names:?} and not {want:?}"));
            }
        }
        // All began in a world that stood still.
        if marks[0] != marks[1] {
            wrong.push(format!("the end of the state is marked at {:?} / {:?}", marks[0], marks[1]));
        }
        watched.report(world, &format!("scripts --filter starts ({target})"), &wrong, report);
    }

    // The end of a state is of a revision at which everything else is known, too.
    let newest = world.patch(&format!("{maps}/other"), &json!({"data": {"x": "y"}})).await?;
    let query = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true";
    let none = format!("{pods}?{query}&fieldSelector=metadata.name%3Dnone&timeoutSeconds=60");
    let watched = Watched::open(world, Ask::get(none)).await?;
    watched.until_bytes_rest().await;
    let mut wrong = watched.differences(Start::Anywhere);
    for (side, answer) in ["direct", "through"].iter().zip(&watched.answers()) {
        if !events(answer)?.iter().any(|event| event.marks_end && event.rv >= newest) {
            wrong.push(format!("{side}: the end of the state is not marked at {newest} or later"));
        }
    }
    watched.report(world, "scripts --filter starts (E14)", &wrong, report);
    Ok(())
}

/// Seven changes to one collection: its state after each, whole and by pages, and what follows it.
async fn between(world: &World, space: &str, report: &Report) -> Result<(), String> {
    let maps = &format!("/api/v1/namespaces/{space}/configmaps");
    let map = |name: &str| json!({"metadata": {"name": name}});
    world.settle().await?;
    let mut revisions = vec![world.now()];
    for name in ["a", "b", "c"] {
        world.create(maps, &map(name)).await?;
        revisions.push(world.newest().await?);
    }
    revisions.push(world.patch(&format!("{maps}/a"), &json!({"data": {"n": "1"}})).await?);
    world.delete(&format!("{maps}/b")).await?;
    revisions.push(world.newest().await?);
    world.create(maps, &map("d")).await?;
    revisions.push(world.newest().await?);
    revisions.push(world.patch(&format!("{maps}/c"), &json!({"data": {"n": "2"}})).await?);
    world.settle().await?;
    let mut watches = Vec::new();
    for revision in &revisions {
        let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
        let list = same(world, "scripts --filter starts", Ask::get(format!("{maps}?{exact}")), report).await;
        if rv(&list) != *revision {
            report.wrong("scripts --filter starts (E2-1)", &format!("  {exact} is of {}\n", rv(&list)));
        }
        same_pages(world, "scripts --filter starts", maps, &exact, "limit=2", report).await;
        let ask = Ask::get(format!("{maps}?watch=1&resourceVersion={revision}&timeoutSeconds=60"));
        watches.push((revision, Watched::open(world, ask).await?));
    }
    Watched::until_all_rest(watches.iter().map(|watch| &watch.1), BOUND).await;
    for (revision, watched) in watches {
        let wrong = watched.differences(Start::Named);
        watched.report(world, &format!("scripts --filter starts (a watch from {revision})"), &wrong, report);
    }
    Ok(())
}
