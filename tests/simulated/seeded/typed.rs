//! Clients over gRPC: readers, watches that are resumed by token, some of them conflating, and a worker of a queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::grpc::pb::v1::queue_client::QueueClient;
use informerd::lifecycle;
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use v1::consistency::Bound;
use v1::watch_response::Frame;
use v1::work_request::Action;

use super::chaos;
use super::world::{NAMES, NAMESPACES, RESOURCES, Resource, Run};
use crate::support::client;
use crate::support::history::{Seen, Selected, State};
use crate::support::informer::{self, Shown};

/// Before a client asks again, and where it was told nothing: answering those that are refused would be most of what a seed does.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_millis(500);

/// A client that has a state, and what it selects.
pub(super) struct Holding {
    pub what: &'static str,
    pub resource: Resource,
    pub of: Selected,
    pub seen: Arc<Mutex<informer::Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn channel(run: &Run) -> Channel {
    let endpoint = Endpoint::from_shared(run.url()).unwrap();
    endpoint.connect_timeout(Duration::from_secs(2)).timeout(Duration::from_secs(120)).connect_lazy()
}

fn key_of(key: Option<&v1::Key>) -> (String, u64, String) {
    let key = key.expect("every object has a key");
    (format!("{}/{}", key.namespace, key.name), key.resource_version.parse().unwrap(), key.uid.clone())
}

/// Notes an object that came in JSON, which must be the one that its key names.
fn shows(run: &Run, of: Resource, what: &str, key: Option<&v1::Key>, bytes: &[u8], is_gone: bool) {
    let (key, rv, _) = key_of(key);
    let Ok(mut object) = serde_json::from_slice::<Value>(bytes) else {
        return run.complain(format!("{what} of {}: {key} at {rv} is no JSON", of.plural));
    };
    if is_gone {
        // It may be that of its last state.
        object["metadata"]["resourceVersion"] = rv.to_string().into();
    }
    if (client::key(&object), client::rv(&object)) != (key.clone(), rv) {
        return run.complain(format!("{what} of {}: {key} at {rv} is {object}", of.plural));
    }
    run.shows(of, what, Shown { object: &object, is_gone, in_protobuf: false });
}

fn resource(of: Resource) -> Option<v1::Resource> {
    Some(v1::Resource { group: of.group.into(), version: "v1".into(), resource: of.plural.into() })
}

/// Everything, or the union of two filters that are one namespace.
pub(super) fn selection(of: Resource, selected: &Selected) -> Option<v1::Selection> {
    let filters = selected.namespace.iter().flat_map(|namespace| {
        let filter = |selector: &str| v1::Filter {
            namespace: namespace.clone(),
            label_selector: selector.into(),
            ..Default::default()
        };
        [filter("group=odd"), filter("group!=odd")]
    });
    Some(v1::Selection { resource: resource(of), filters: filters.collect(), ..Default::default() })
}

fn consistency(bound: Bound) -> Option<v1::Consistency> {
    Some(v1::Consistency { bound: Some(bound), max_staleness: None })
}

/// Errors of an apiserver that does not answer, and of a daemon that comes and goes.
fn expected(run: &Run, what: &str, status: &Status) {
    use Code::{
        Aborted, Cancelled, DeadlineExceeded, Internal, NotFound, OutOfRange, ResourceExhausted, Unavailable, Unknown,
    };
    let codes =
        [Aborted, Cancelled, DeadlineExceeded, Internal, NotFound, OutOfRange, ResourceExhausted, Unavailable, Unknown];
    // An object without a revision may have been in the first list, or the state does not fit.
    let is_cached = !run.swarm.has(chaos::POISON) && !run.swarm.has(chaos::MEMORY);
    if !codes.contains(&status.code()) && (is_cached || status.code() != Code::FailedPrecondition) {
        run.complain(format!("{what} over gRPC: {status:?}"));
    }
}

/// Watches of everything, and of two filters that are one namespace, some of which conflate; and a worker.
pub(super) fn holders(run: &Arc<Run>) -> Vec<Holding> {
    let mut random = run.random(6);
    let mut holding = Vec::new();
    for resource in RESOURCES {
        for (what, namespace) in [("a watch over gRPC", None), ("a merged watch over gRPC", Some("a".to_owned()))] {
            let of = Selected { namespace, group: None };
            let seen = Arc::new(Mutex::new(informer::Seen::default()));
            let request = v1::WatchRequest {
                selection: selection(resource, &of),
                bookmark_interval: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
                max_batch: random.random_range(0..4),
                conflate: random.random_bool(0.5),
                max_age: random.random_bool(0.5).then_some(prost_types::Duration { seconds: 5, nanos: 0 }),
                ..Default::default()
            };
            let task = watch(run.clone(), resource, of.clone(), what, request, seen.clone());
            holding.push(Holding { what, resource, of, seen, task: lifecycle::spawn("typed-watch", task) });
        }
    }
    holding.push(worker(run));
    holding
}

async fn watch(
    run: Arc<Run>,
    resource: Resource,
    of: Selected,
    what: &'static str,
    request: v1::WatchRequest,
    seen: Arc<Mutex<informer::Seen>>,
) {
    let mut token: Option<v1::watch_request::Start> = None;
    let mut client = ObjectsClient::new(channel(&run));
    // The last revision of each key that came; and, where a merged watch has gone on, that came before and may come again.
    let (mut told, mut had) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
    // Everything up to it was delivered.
    let mut complete = 0;
    let mut pause = SOON;
    while run.goes_on() {
        tokio::time::sleep(std::mem::replace(&mut pause, LATER)).await;
        let began = run.begin(resource);
        let mut stream = match client.watch(v1::WatchRequest { start: token.clone(), ..request.clone() }).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => {
                expected(&run, what, &status);
                continue;
            }
        };
        let (mut initial, mut is_anew) = (None, false);
        // In this stream, since it has begun anew.
        let mut order = BTreeMap::new();
        loop {
            let response = match stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => break,
                Err(status) => {
                    expected(&run, what, &status);
                    break;
                }
            };
            pause = SOON;
            let at = response.resource_version.parse::<u64>().ok();
            let state = |rv, state: &State| Seen::Collection { rv, state: state.clone(), of: of.clone(), limit: None };
            let mut seen = seen.lock();
            let frame = response.frame.expect("a frame");
            if std::mem::take(&mut is_anew) && !matches!(frame, Frame::Reset(_)) {
                seen.complaints.push("begins with a state, without a word why it does not go on from its token".into());
            }
            match frame {
                Frame::Started(started) if started.resumed => {
                    seen.resumes += 1;
                    had = if request.conflate { told.clone() } else { BTreeMap::new() };
                }
                Frame::Started(_) => {
                    seen.lists += 1;
                    is_anew = token.is_some();
                    initial = Some(BTreeMap::new());
                }
                Frame::Reset(_) => {
                    seen.expired += 1;
                    initial = Some(BTreeMap::new());
                    order.clear();
                    // The next state may be one of another store.
                    seen.last = 0;
                }
                Frame::Events(events) => {
                    for event in events.events {
                        let (key, rv, uid) = key_of(event.key.as_ref());
                        if key.contains("poison") {
                            continue;
                        }
                        let kind = event.r#type().as_str_name().trim_start_matches("TYPE_");
                        shows(&run, resource, what, event.key.as_ref(), &event.object, kind == "DELETED");
                        if order.insert(key.clone(), rv).is_some_and(|before| before >= rv) {
                            seen.complaints.push(format!("{kind} {key} at {rv} is out of order"));
                        }
                        if let Some(initial) = &mut initial {
                            initial.insert(key, (rv, uid));
                            continue;
                        }
                        if rv <= complete {
                            seen.complaints.push(format!("{kind} {key} at {rv}, though all up to {complete} had come"));
                        }
                        let is_again = had.get(&key).is_some_and(|had| *had >= rv);
                        // An object may be deleted and made anew while it waits; changes of one key are in order.
                        let held = seen.state.get(&key).copied().filter(|held| kind != "DELETED" && *held >= rv);
                        if let Some(held) = held.filter(|_| !is_again) {
                            seen.complaints.push(format!("{kind} {key} at {rv}, which is held at {held}"));
                        }
                        let last = told.entry(key.clone()).or_default();
                        *last = rv.max(*last);
                        if !request.conflate && rv < seen.last {
                            let last = seen.last;
                            seen.complaints.push(format!("{kind} {key} at {rv} after {last}"));
                        }
                        if is_again {
                            seen.apply_again(kind, &key, uid, rv);
                        } else {
                            seen.apply(kind, &key, uid, rv);
                        }
                        if request.conflate {
                            seen.last = at.expect("a live frame says what is complete");
                        }
                        let is = (kind != "DELETED").then_some(rv);
                        run.streamed(resource, rv, what, Seen::Object { key, rv: is });
                    }
                }
                Frame::SnapshotEnd(_) => {
                    let (state_at, rv) = (initial.take().unwrap_or_default(), at.expect("a snapshot is of a revision"));
                    let whole = seen.replace(state_at, rv, request.conflate);
                    (told, had) = (whole.clone(), BTreeMap::new());
                    let of_merged = Seen::Merged { rv, state: whole.clone(), of: of.clone() };
                    let shown = if request.conflate { of_merged } else { state(rv, &whole) };
                    run.saw(resource, began, Some(0), what, shown);
                }
                Frame::Bookmark(_) => {
                    if let Some(rv) = at.filter(|rv| told.values().all(|told| told <= rv))
                        && initial.is_none()
                    {
                        run.streamed(resource, 0, what, state(rv, &seen.state));
                    }
                }
                Frame::Goodbye(_) => {}
            }
            complete = at.unwrap_or(0);
            if !response.resume_token.is_empty() {
                token = Some(v1::watch_request::Start::ResumeToken(response.resume_token));
            }
        }
        if initial.is_some() {
            // The state is not complete, so it counts for nothing.
            token = None;
        }
    }
}

/// Reads objects and lists.
pub(super) async fn reads(run: Arc<Run>) {
    let mut random = run.random(7);
    let mut client = ObjectsClient::new(channel(&run));
    while run.goes_on() {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
        let of = RESOURCES[random.random_range(0..2)];
        let began = run.begin(of);
        let (bound, from) =
            if random.random_bool(0.5) { (Bound::Any(true), 0) } else { (Bound::Consistent(true), began.newest) };
        if random.random_bool(0.5) {
            let (namespace, name) =
                (NAMESPACES[random.random_range(0..2)], format!("object-{}", random.random_range(0..NAMES)));
            let request = v1::GetRequest {
                resource: resource(of),
                namespace: namespace.to_owned(),
                name: name.clone(),
                consistency: consistency(bound),
                ..Default::default()
            };
            let rv = match client.get(request).await {
                Ok(answer) => {
                    let object = answer.into_inner().object.expect("an object");
                    shows(&run, of, "a get over gRPC", object.key.as_ref(), &object.object, false);
                    Some(key_of(object.key.as_ref()).1)
                }
                Err(status) if status.code() == Code::NotFound && status.message().contains(&name) => None,
                Err(status) => {
                    expected(&run, "a get", &status);
                    continue;
                }
            };
            let seen = Seen::Object { key: format!("{namespace}/{name}"), rv };
            run.saw(of, began, Some(from), &format!("a get over gRPC from {from}"), seen);
            continue;
        }
        let selected = Selected::default();
        let request = v1::ListRequest { selection: selection(of, &selected), consistency: consistency(bound) };
        match whole(&run, of, &mut client, request).await {
            Ok((rv, state)) => {
                let seen = Seen::Collection { rv, state, of: selected, limit: None };
                run.saw(of, began, Some(from), &format!("a list over gRPC from {from}"), seen);
            }
            Err(status) => expected(&run, "a list", &status),
        }
    }
}

async fn whole(
    run: &Run,
    of: Resource,
    client: &mut ObjectsClient<Channel>,
    request: v1::ListRequest,
) -> Result<(u64, State), Status> {
    let mut stream = client.list(request).await?.into_inner();
    let (mut rv, mut state) = (0, State::new());
    while let Some(message) = stream.message().await? {
        match message.part {
            Some(v1::list_response::Part::Header(header)) => rv = header.resource_version.parse().unwrap(),
            Some(v1::list_response::Part::Chunk(chunk)) => {
                for object in chunk.objects {
                    let (key, rv, _) = key_of(object.key.as_ref());
                    if !key.contains("poison") {
                        shows(run, of, "a list over gRPC", object.key.as_ref(), &object.object, false);
                        state.insert(key, rv);
                    }
                }
            }
            None => {}
        }
    }
    Ok((rv, state))
}

/// A worker, which fails now and then. It joins another group each time, so that it is given everything anew.
fn worker(run: &Arc<Run>) -> Holding {
    let (resource, seen) = (RESOURCES[0], Arc::new(Mutex::new(informer::Seen::default())));
    let task = lifecycle::spawn("worker", work(run.clone(), resource, seen.clone()));
    Holding { what: "a worker", resource, of: Selected::default(), seen, task }
}

async fn work(run: Arc<Run>, of: Resource, seen: Arc<Mutex<informer::Seen>>) {
    let mut random = run.random(8);
    let mut client = QueueClient::new(channel(&run));
    let mut pause = SOON;
    loop {
        tokio::time::sleep(std::mem::replace(&mut pause, LATER)).await;
        let (requests, receiver) = mpsc::channel(64);
        let join = v1::JoinGroup {
            group: format!("group-{}", run.tick()),
            selections: selection(of, &Selected::default()).into_iter().collect(),
            capacity: random.random_range(1..8),
        };
        let say = async |action| requests.send(v1::WorkRequest { action: Some(action) }).await.is_ok();
        say(Action::Join(join)).await;
        let mut stream = match client.work(ReceiverStream::new(receiver)).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => {
                expected(&run, "a worker", &status);
                continue;
            }
        };
        seen.lock().state.clear();
        while let Ok(Some(response)) = stream.message().await {
            pause = SOON;
            let Some(v1::work_response::Frame::Items(items)) = response.frame else { continue };
            for item in items.items {
                let reference = item.r#ref.expect("a key");
                let fails = random.random_bool(0.2);
                {
                    let mut seen = seen.lock();
                    let key = format!("{}/{}", reference.namespace, reference.name);
                    match item.object {
                        Some(object) => {
                            shows(&run, of, "a worker", object.key.as_ref(), &object.object, false);
                            let rv = key_of(object.key.as_ref()).1;
                            if let Some(held) = seen.state.insert(key.clone(), rv).filter(|held| *held > rv) {
                                seen.complaints.push(format!("{key} at {rv} after {held}"));
                            }
                        }
                        None => drop(seen.state.remove(&key)),
                    }
                }
                say(if fails { Action::Retry(reference) } else { Action::Done(reference) }).await;
            }
        }
        if !run.goes_on() {
            return;
        }
    }
}
