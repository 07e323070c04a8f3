//! Generated requests that make sense: most of them are answered from the caches, and their selectors select something.

use futures_util::future::try_join_all;

use super::axes;
use super::generated::{Plan, escaped, option};
use super::http2;
use super::kinds::{KINDS, Kind};
use super::rng::Rng;
use super::wire::Ask;
use super::world::{A, NAMESPACES, World};

/// One that real clients make: each kind in each encoding in turn, selectors that select something, states that there are.
pub(super) fn plan(seed: u64, n: u64) -> Plan {
    let rng = &mut Rng::new(seed, n);
    let turn = usize::try_from(n / 2).unwrap_or(0);
    let kind = &KINDS[turn % KINDS.len()];
    let [of_lists, of_others] = axes::ENCODINGS[turn / KINDS.len() % axes::ENCODINGS.len()];
    let namespace = (kind.namespaced && rng.in_1000(500)).then(|| *rng.pick(&[A, A, NAMESPACES[1], NAMESPACES[2]]));
    let collection = kind.collection(namespace);
    let mut query = Vec::new();
    let form = rng.below(10);
    if !(4..=5).contains(&form) {
        if rng.in_1000(250) {
            let selector = *rng.pick(axes::SOME);
            query.push(format!("labelSelector={}", escaped(rng, selector)));
        }
        if rng.in_1000(300) {
            let selectors = fields(kind);
            let selector = rng.pick(&selectors);
            query.push(format!("fieldSelector={}", escaped(rng, selector)));
        }
    }
    let (path, what, accept) = match form {
        0..4 => {
            option(rng, &mut query, "limit", &[(7, "-"), (1, "1"), (1, "2"), (1, "500")]);
            (collection.clone(), "list", of_lists)
        }
        4..6 => {
            (format!("{}/{}", kind.collection(kind.namespaced.then_some(A)), rng.pick(kind.names)), "get", of_others)
        }
        _ => {
            query.push("watch=1".to_owned());
            option(rng, &mut query, "allowWatchBookmarks", &[(1, "-"), (2, "true")]);
            (collection.clone(), "watch", of_others)
        }
    };
    let state = match what {
        "watch" => *rng.weighted(axes::STARTS),
        "get" => *rng.pick(&["", "resourceVersion=0", "resourceVersion={old}"]),
        _ => *rng.weighted(axes::STATES),
    };
    query.extend(Some(state.to_owned()).filter(|state| !state.is_empty()));
    if what == "watch" {
        query.push("timeoutSeconds=1".to_owned());
    }
    let target = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    let ask = Ask::get(target).header("Accept", accept);
    let (choice, http2) = (rng.below(64), rng.in_1000(250) && http2::can_say(&ask));
    Plan { row: format!("{}/{what}", kind.row), ask, collection, slow: what == "watch", http2, choice }
}

/// Fails with each selector of these requests that selects none of the objects of its kind, or all of them.
pub(crate) async fn selectors_discern(world: &World) -> Result<(), String> {
    let of_kinds = KINDS.iter().map(|kind| async move {
        let rng = &mut Rng::new(0, 0);
        let labels = axes::SOME.iter().map(|selector| ("labelSelector", (*selector).to_owned()));
        let fields = fields(kind).into_iter().map(|selector| ("fieldSelector", selector));
        let selections: Vec<String> = labels
            .chain(fields)
            .map(|(parameter, selector)| format!("{parameter}={}", escaped(rng, &selector)))
            .collect();
        undiscerning(world, &[format!("{}?", kind.collection(None))], &selections).await
    });
    let wrong = try_join_all(of_kinds).await?.concat();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ")) }
}

/// The selections that select none or all of the objects in each of these lists, with the last of them.
pub(crate) async fn undiscerning(
    world: &World,
    lists: &[String],
    selections: &[String],
) -> Result<Vec<String>, String> {
    let mut left: Vec<_> = selections.iter().map(|selection| (selection, String::new())).collect();
    for list in lists {
        let all = count(world, list).await?;
        let mut wrong = Vec::new();
        for (selection, _) in left {
            let selected = count(world, &format!("{list}&{selection}")).await?;
            if selected == 0 || selected == all {
                wrong.push((selection, format!("{list}: {selection} selects {selected} of {all}")));
            }
        }
        left = wrong;
    }
    Ok(left.into_iter().map(|(_, wrong)| wrong).collect())
}

/// How many objects there are in a list.
async fn count(world: &World, list: &str) -> Result<usize, String> {
    let list = world.direct_json(&Ask::get(list)).await?;
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

/// The field selectors of a kind that select some of its objects, and not all.
fn fields(kind: &Kind) -> Vec<String> {
    let by_name = ["=", "!="].map(|operator| format!("metadata.name{operator}{}", kind.names[0]));
    kind.some.iter().map(|selector| (*selector).to_owned()).chain(by_name).collect()
}
