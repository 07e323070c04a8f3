//! Clients over REST: writers, readers of every kind of freshness, and informers.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::chaos;
use super::world::{GROUPS, NAMES, NAMESPACES, RESOURCES, Resource, Run, Told};
use crate::support::client::{Answer, Client, is_old, is_protobuf, key, rv};
use crate::support::history::{Seen, Selected, State};
use crate::support::informer::{Informer, Shown, Watched, is_poison};

/// An informer, and what it selects.
pub(super) struct Following {
    pub what: &'static str,
    pub resource: Resource,
    pub of: Selected,
    pub informer: Informer,
}

fn label(of: &Selected) -> String {
    of.group.as_ref().map_or(String::new(), |group| format!("&labelSelector=group%3D{group}"))
}

/// Informers of everything, of a namespace, of a label; and one that reads its states from the apiserver itself, so that its
/// watches may begin in the daemon's future.
pub(super) fn informers(run: &Arc<Run>) -> Vec<Following> {
    let mut random = run.random(3);
    let all = Selected::default;
    let mut following = Vec::new();
    for resource in RESOURCES {
        for (what, of, lists_directly) in [
            ("an informer", all(), false),
            ("an informer of a namespace", Selected { namespace: Some("a".to_owned()), ..all() }, false),
            ("an informer of a label", Selected { group: Some("odd".to_owned()), ..all() }, false),
            ("an informer that lists directly", all(), true),
        ] {
            let client = run.client(&mut random);
            let path = of.namespace.as_ref().map_or_else(|| resource.path(), |namespace| resource.inside(namespace));
            // A stream that is forwarded stands still as long as the apiserver's does.
            let ends = if random.random_bool(0.5) { "&timeoutSeconds=4" } else { "&timeoutSeconds=60" };
            let selection = format!("{}{ends}", label(&of));
            let lists = if lists_directly {
                Some((Client::new(&run.direct.url()), String::new()))
            } else {
                let lists = run.swarm.refuses_watch_lists || random.random_bool(0.5);
                lists.then(|| (client.clone(), "limit=500".to_owned()))
            };
            let told =
                Told { run: run.clone(), resource, of: of.clone(), what, lists_directly, began: Mutex::default() };
            let informer = Informer::observed(Watched { client, path, selection, lists }, told);
            following.push(Following { what, resource, of, informer });
        }
    }
    following
}

/// Changes things directly.
pub(super) async fn writes_directly(run: Arc<Run>) {
    let mut random = run.random(4);
    while run.goes_on() {
        chaos::write(&run, &mut random);
        let pause = if random.random_bool(0.1) { 1500 } else { random.random_range(0..150) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Changes things through the daemon. What it is told of its own writes it is not shown otherwise later.
pub(super) async fn writes_through(run: Arc<Run>) {
    let mut random = run.random(5);
    let client = run.client(&mut random);
    while run.goes_on() {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
        let resource = RESOURCES[random.random_range(0..2)];
        let (namespace, name) =
            (NAMESPACES[random.random_range(0..2)], format!("object-{}", random.random_range(0..NAMES)));
        let object = resource.object(namespace, &name, GROUPS[random.random_range(0..2)], random.random()).to_string();
        let path = format!("{}/{name}", resource.inside(namespace));
        let began = run.begin(resource);
        let (what, path, kind, body) = match random.random_range(0..4) {
            0 => ("POST", resource.inside(namespace), "application/json", object),
            1 => ("PUT", path, "application/json", object),
            2 => ("PATCH", path, "application/merge-patch+json", object),
            _ => ("DELETE", path, "application/json", String::new()),
        };
        let method = Method::from_bytes(what.as_bytes()).unwrap();
        let Ok(answer) = client.try_request(method, &path, &[("content-type", kind)], &body).await else { continue };
        let key = format!("{namespace}/{name}");
        let is = match answer.status.as_u16() {
            200 | 201 if what != "DELETE" => shown(&run, resource, what, &answer).map(Some),
            200 => Some(None),
            404 if what != "POST" && answer.text().contains(&name) => Some(None),
            _ => None,
        };
        if let Some(rv) = is {
            run.saw(resource, began, Some(began.newest), what, Seen::Object { key, rv });
        }
        expected(&run, what, &answer);
    }
}

/// Reads whatever can be read.
pub(super) async fn reads(run: Arc<Run>, reader: u64) {
    let mut random = run.random(10 + reader);
    let client = run.client(&mut random);
    let mut known = [0; 2];
    while run.goes_on() {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..250))).await;
        let resource = RESOURCES[random.random_range(0..2)];
        match random.random_range(0..8) {
            0 | 1 => object(&run, &client, resource, &mut random).await,
            2 => watch_list(&run, &client, resource, &mut random).await,
            3 => pages(&run, &client, resource).await,
            _ => list(&run, &client, resource, &mut random, &mut known[resource.number]).await,
        }
    }
}

/// What an answer may be, whatever happens to the apiserver.
fn expected(run: &Run, what: &str, answer: &Answer) {
    let status = answer.status.as_u16();
    // The clock may leap while a body is on its way.
    let is_late = status == 400 && answer.text().contains("sent nothing of the request's body");
    if !is_late && ![200, 201, 404, 409, 410, 429, 500, 502, 503, 504].contains(&status) {
        run.complain(format!("{what} gets {status}: {}", answer.text()));
    }
}

/// A whole answer. One that is cut is no answer.
pub(super) fn parsed(answer: &Answer) -> Option<Value> {
    answer.value().filter(|value| value["metadata"]["resourceVersion"].is_string())
}

/// The revision of the object in an answer.
fn shown(run: &Run, resource: Resource, what: &str, answer: &Answer) -> Option<u64> {
    let object = parsed(answer)?;
    let in_protobuf = is_protobuf(&answer.headers);
    run.shows(resource, what, Shown { object: &object, is_gone: false, in_protobuf });
    Some(rv(&object))
}

/// Those of the items of the list in an answer.
pub(super) fn items(run: &Run, resource: Resource, what: &str, answer: &Answer, list: &Value) -> Option<State> {
    let (items, in_protobuf) = (list["items"].as_array()?, is_protobuf(&answer.headers));
    let items = items.iter().filter(|item| !is_poison(item));
    items.clone().for_each(|object| run.shows(resource, what, Shown { object, is_gone: false, in_protobuf }));
    Some(items.map(|item| (key(item), rv(item))).collect())
}

async fn object(run: &Run, client: &Client, resource: Resource, random: &mut StdRng) {
    let (namespace, name) =
        (NAMESPACES[random.random_range(0..2)], format!("object-{}", random.random_range(0..NAMES)));
    let query = ["", "?resourceVersion=0"][random.random_range(0..2)];
    let began = run.begin(resource);
    let Ok(answer) = client.try_get(&format!("{}/{name}{query}", resource.inside(namespace))).await else { return };
    expected(run, "a get", &answer);
    let rv = match answer.status.as_u16() {
        200 => shown(run, resource, "a get", &answer).map(Some),
        404 if answer.text().contains(&name) => Some(None),
        _ => None,
    };
    let from = if query.is_empty() { began.newest } else { 0 };
    if let Some(rv) = rv {
        let seen = Seen::Object { key: format!("{namespace}/{name}"), rv };
        let what = format!("a get{query} {:?}", answer.headers.get("x-informerd-plan"));
        run.saw(resource, began, (!answer.is_old()).then_some(from), &what, seen);
    }
}

async fn list(run: &Run, client: &Client, resource: Resource, random: &mut StdRng, known: &mut u64) {
    let of = Selected {
        namespace: random.random_bool(0.3).then(|| NAMESPACES[random.random_range(0..2)].to_owned()),
        group: random.random_bool(0.3).then(|| GROUPS[random.random_range(0..2)].to_owned()),
    };
    let began = run.begin(resource);
    let (query, from) = match random.random_range(0..4) {
        0 => (String::new(), Some(began.newest)),
        1 if *known > 0 => (format!("resourceVersion={known}&resourceVersionMatch=NotOlderThan"), Some(*known)),
        2 if *known > 0 => (format!("resourceVersion={known}&resourceVersionMatch=Exact"), None),
        _ => ("resourceVersion=0".to_owned(), Some(0)),
    };
    let path = of.namespace.as_ref().map_or_else(|| resource.path(), |namespace| resource.inside(namespace));
    let Ok(answer) = client.try_get(&format!("{path}?{query}{}", label(&of))).await else { return };
    expected(run, "a list", &answer);
    let list = parsed(&answer).filter(|_| answer.status == 200);
    let what = format!("a list?{query} {:?}", answer.headers.get("x-informerd-plan"));
    if let Some((rv, state)) = list.and_then(|list| Some((rv(&list), items(run, resource, &what, &answer, &list)?))) {
        if query.ends_with("Exact") && rv != *known {
            run.complain(format!("a list at exactly {known} is of {rv}"));
        }
        *known = rv.max(*known);
        let (from, seen) = (from.filter(|_| !answer.is_old()), Seen::Collection { rv, state, of, limit: None });
        run.saw(resource, began, from, &what, seen);
    }
}

/// A list in pages of 3, all of one revision.
async fn pages(run: &Run, client: &Client, resource: Resource) {
    let began = run.begin(resource);
    let (mut state, mut first, mut token) = (State::new(), None, String::new());
    loop {
        let Ok(answer) = client.try_get(&format!("{}?limit=3{token}", resource.path())).await else { return };
        expected(run, "a page", &answer);
        let Some(page) = parsed(&answer).filter(|_| answer.status == 200 && !answer.is_old()) else { return };
        let Some(more) = items(run, resource, "a page", &answer, &page) else { return };
        let at = rv(&page);
        if *first.get_or_insert(at) != at {
            run.complain(format!("a page of {at} after one of {first:?}"));
        }
        state.extend(more);
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = format!("&continue={next}"),
            _ => break,
        }
    }
    let seen = Seen::Collection { rv: first.unwrap_or(0), state, of: Selected::default(), limit: None };
    run.saw(resource, began, Some(began.newest), "pages", seen);
}

/// The state with which a watch begins.
async fn watch_list(run: &Run, client: &Client, resource: Resource, random: &mut StdRng) {
    let version = ["", "&resourceVersion=0"][random.random_range(0..2)];
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let began = run.begin(resource);
    let path = format!("{}?{initial}&timeoutSeconds=5{version}", resource.path());
    let Ok(watch) = client.try_watch(&path).await else { return };
    if !watch.status.is_success() {
        return;
    }
    let what = format!("a watch-list{version} {:?}", watch.headers.get("x-informerd-plan"));
    let (is_old, in_protobuf) = (is_old(&watch.headers), is_protobuf(&watch.headers));
    let (mut watch, mut state) = (watch.until_the_end(), State::new());
    while let Ok(Some(event)) = watch.next().await {
        let object = &event["object"];
        match event["type"].as_str() {
            Some("ADDED") if is_poison(object) => {}
            Some("ADDED") => {
                run.shows(resource, &what, Shown { object, is_gone: false, in_protobuf });
                state.insert(key(object), rv(object));
            }
            Some("BOOKMARK") => {
                let from = if version.is_empty() { began.newest } else { 0 };
                let seen = Seen::Collection { rv: rv(object), state, of: Selected::default(), limit: None };
                return run.saw(resource, began, (!is_old).then_some(from), &what, seen);
            }
            _ => return,
        }
    }
}
