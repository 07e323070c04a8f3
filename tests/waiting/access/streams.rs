//! Rights that are taken away end every kind of stream that was opened by them: served here or forwarded, over HTTP,
//! WebSockets and gRPC.

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::queue_client::QueueClient;
use informerd::grpc::pb::v1::watch_response::Frame;
use informerd::grpc::pb::v1::work_response;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::access::rights::{binding, group, path};
use crate::access::typed::{list, message, selection, send, trailers, watch};
use crate::access::wire::Socket;
use crate::access::world::{World, fixtures};
use crate::support::client::{Client, Watch, typed};
use crate::support::grpc::{add, framed, join};
use crate::support::{eventually, within};

pub(super) const WATCH: &str = "watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan";
/// Said in a way that only the apiserver reads.
pub(super) const TWICE: [(&str, &str); 2] = [("accept", "application/json"); 2];

/// A worker's two streams.
#[derive(Debug)]
pub(super) struct Worker {
    requests: mpsc::Sender<v1::WorkRequest>,
    frames: tonic::Streaming<v1::WorkResponse>,
}

impl Worker {
    /// The error that ends it, whatever comes before.
    pub(super) async fn refused(&mut self) -> tonic::Status {
        loop {
            match within("the next frame of a stream", self.frames.message()).await {
                Ok(frame) => assert!(frame.is_some(), "an error comes before the end"),
                Err(status) => return status,
            }
        }
    }

    /// The object of the next key, which it answers.
    pub(super) async fn object(&mut self) -> Result<Bytes, tonic::Status> {
        loop {
            let frame = self.frames.message().await?.expect("an error comes before the end").frame;
            let Some(work_response::Frame::Items(items)) = frame else { continue };
            let [item] = <[v1::Item; 1]>::try_from(items.items).expect("one key at a time");
            let done = v1::WorkRequest { action: item.r#ref.map(v1::work_request::Action::Done) };
            // It may have ended meanwhile.
            self.requests.send(done).await.ok();
            return Ok(item.object.unwrap_or_default().object);
        }
    }
}

/// A worker of one key at a time.
pub(super) async fn work(
    world: &World,
    token: &str,
    group: &str,
    selection: Option<v1::Selection>,
) -> Result<Worker, tonic::Status> {
    let (sender, receiver) = mpsc::channel(4);
    sender.send(join(group, selection.into_iter().collect(), 1)).await.unwrap();
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let origin = world.daemon.url.parse().unwrap();
    let mut frames = QueueClient::with_origin(typed(&world.ca), origin).work(request).await?.into_inner();
    assert!(within("the next frame of a stream", frames.message()).await?.is_some(), "joined comes first");
    Ok(Worker { requests: sender, frames })
}

/// One of every kind.
struct Streams {
    served: Watch,
    forwarded: Watch,
    socket: Socket,
    forwarded_socket: Socket,
    typed: Incoming,
    /// One of its two watches has no credit.
    sync: Incoming,
    worker: Worker,
}

impl Streams {
    async fn open(world: &World, token: &str, namespace: Option<&str>) -> Self {
        let through = world.through(Some(token));
        let collection = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/configmaps"),
            None => "/api/v1/configmaps".to_owned(),
        };
        let target = format!("{collection}?{WATCH}");
        world.allowed(&through, &format!("{collection}?resourceVersion=0")).await;
        let mut served = through.watch(&target).await;
        let mut forwarded = through.watch_as(&target, &TWICE).await;
        for watch in [&mut served, &mut forwarded] {
            assert_eq!(watch.status, 200, "{target}");
            while watch.next().await.unwrap().unwrap()["type"] != "BOOKMARK" {}
        }
        let mut socket = Socket::through(world, Some(token), &target).await;
        let mut forwarded_socket = Socket::forwarded(world, token, &target).await;
        for socket in [&mut socket, &mut forwarded_socket] {
            assert_eq!(socket.status, 101, "{target}");
            socket.settled().await;
        }
        // Whom nobody knows is told so before the upgrade.
        for token in [None, Some("nobodys-token")] {
            assert_eq!(Socket::through(world, token, &target).await.status, 401, "{token:?} {target}");
        }
        let of = [namespace.unwrap_or_default()];
        let typed = opened(&through, &watch(&of)).await;
        let [plenty, little] = [1000, 1].map(|frames| Some(v1::Credit { frames, bytes: 1 << 30 }));
        let sync = sync(&through, &[add(1, watch(&of), plenty), add(2, watch(&of), little)]).await;
        let worker = work(world, token, "g", selection(&of)).await.unwrap();
        Self { served, forwarded, socket, forwarded_socket, typed, sync, worker }
    }

    /// Waits for the end of all of them. Returns what the first one was told.
    async fn end(mut self, what: &str, code: u16, grpc: &str) -> Value {
        let mut told = Value::Null;
        let served = async {
            told = error(&mut self.served).await;
            assert_eq!(told["code"], code, "{what}: {told}");
        };
        let forwarded = async {
            let status = error(&mut self.forwarded).await;
            assert_eq!(status["code"], code, "{what}: {status}");
        };
        let socket = async |socket: &mut Socket| {
            let status = socket.ended().await;
            assert_eq!(status["code"], code, "{what}: {status}");
        };
        let typed = async {
            assert_eq!(trailers(&mut self.typed).await["grpc-status"], grpc, "{what}");
        };
        let sync = async {
            let (mut pending, mut ended) = (Vec::new(), Vec::new());
            while ended.len() < 2 {
                let response: v1::SyncResponse = message(&mut self.sync, &mut pending).await;
                if let Some(Frame::Goodbye(goodbye)) = response.response.unwrap().frame {
                    assert_eq!(goodbye.error.unwrap().code.to_string(), grpc, "{what}");
                    ended.push(response.watch_id);
                }
            }
            ended.sort_unstable();
            assert_eq!(ended, [1, 2], "{what}: with credit and without");
        };
        let worker = async {
            assert_eq!((self.worker.refused().await.code() as i32).to_string(), grpc, "{what}");
        };
        tokio::join!(
            served,
            forwarded,
            socket(&mut self.socket),
            socket(&mut self.forwarded_socket),
            typed,
            sync,
            worker
        );
        told
    }
}

async fn opened(client: &Client, request: &v1::WatchRequest) -> Incoming {
    let mut stream = send(client, "Watch", request).await.into_body();
    assert!(within("the next frame of a stream", stream.frame()).await.unwrap().unwrap().is_data(), "it began");
    stream
}

async fn sync(client: &Client, requests: &[v1::SyncRequest]) -> Incoming {
    let body: Vec<u8> = requests.iter().flat_map(|request| framed(&request.encode_to_vec())).collect();
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    client.send(Method::POST, "/informerd.v1.Objects/Sync", &headers, body).await.into_body()
}

/// Reads a call until it tells of the object `tick`.
async fn ticked(call: &mut Incoming) {
    let mut all = Vec::<u8>::new();
    while !has_tick(&all) {
        let frame = within("the next frame of a call", call.frame()).await.expect("it goes on").unwrap();
        all.extend_from_slice(&frame.into_data().expect("it goes on"));
    }
}

fn has_tick(text: &[u8]) -> bool {
    text.windows(4).any(|four| four == b"tick")
}

/// The ERROR that ends a watch; nothing may follow it.
pub(super) async fn error(watch: &mut Watch) -> Value {
    loop {
        let event = watch.next().await.unwrap().expect("an error comes before the end");
        if event["type"] == "ERROR" {
            assert!(watch.next().await.unwrap().is_none(), "nothing follows an error");
            return event["object"].clone();
        }
    }
}

async fn replace(admin: &Client, path: &str, change: impl Fn(&mut Value)) {
    let mut object = admin.json(path).await;
    change(&mut object);
    admin.write(Method::PUT, path, &object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stream_ends_with_its_right() {
    let world = World::start("").await;
    world.settled().await;
    let admin = world.admin();
    let mut unrelated = Streams::open(&world, "admin-token", None).await;
    let crowd = group("system:serviceaccounts:a");
    world.cluster.apply(&binding("a", "crowd", ("Role", "space"), &[crowd])).await;
    for (what, account, namespace) in [
        ("a group's role binding", "nothing", Some("a")),
        ("a role", "space", Some("a")),
        ("a role binding", "space", Some("a")),
        ("a cluster role", "wide", None),
        ("a cluster role binding", "wide", None),
        ("a role's rules", "space", Some("a")),
        ("a cluster role's rules", "wide", None),
        ("a binding's subjects", "wide", Some("b")),
    ] {
        let token = world.token(account, &[]).await;
        let streams = Streams::open(&world, &token, namespace).await;
        let none = |field: &'static str| move |object: &mut Value| object[field] = json!([]);
        match what {
            "a group's role binding" => world.delete(&path("rolebindings", "a", "crowd")).await,
            "a role" => world.delete(&path("roles", "a", "space")).await,
            "a role binding" => world.delete(&path("rolebindings", "a", "space")).await,
            "a cluster role" => world.delete(&path("roles", "", "wide")).await,
            "a cluster role binding" => world.delete(&path("rolebindings", "", "wide")).await,
            "a role's rules" => replace(&admin, &path("roles", "a", "space"), none("rules")).await,
            "a cluster role's rules" => replace(&admin, &path("roles", "", "wide"), none("rules")).await,
            _ => replace(&admin, &path("rolebindings", "", "wide"), none("subjects")).await,
        }
        let told = streams.end(what, 403, "7").await;
        // A new request hears the same words from both, and in the stream.
        let target = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/configmaps?{WATCH}"),
            None => format!("/api/v1/configmaps?{WATCH}"),
        };
        let through = world.through(Some(&token));
        let (ours, theirs) = (through.get(&target).await, world.direct(Some(&token)).get(&target).await);
        assert_eq!((ours.status.as_u16(), &ours.text()), (403, &theirs.text()), "{what}");
        assert_eq!((&told, &told["reason"]), (&ours.json(), &json!("Forbidden")), "{what}");
        world.cluster.apply(&fixtures()).await;
        // What was denied a moment ago is allowed again at once, too. The group's binding stays away.
        let again = if account == "nothing" { 403 } else { 200 };
        assert_eq!(through.watch(&target).await.status, again, "{what}");
    }
    // What a token is bound to.
    let space = world.token("space", &[]).await;
    let streams = Streams::open(&world, &space, Some("a")).await;
    world.delete("/api/v1/namespaces/a/serviceaccounts/space").await;
    streams.end("a deleted service account", 401, "16").await;
    let gone = world.through(Some(&space));
    assert_eq!(gone.get("/api/v1/namespaces/a/configmaps?resourceVersion=0").await.status, 401);
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: here, namespace: a}, spec: {serviceAccountName: wide, nodeName: somewhere, containers: [{name: main, image: image}]}}\n";
    world.cluster.apply(pod).await;
    let bound = ["--bound-object-kind", "Pod", "--bound-object-name", "here"];
    let streams = Streams::open(&world, &world.token("wide", &bound).await, None).await;
    world.delete("/api/v1/namespaces/a/pods/here?gracePeriodSeconds=0").await;
    streams.end("a deleted pod", 401, "16").await;
    // Whoever may still, never noticed.
    world.create("b", "tick").await;
    for watch in [&mut unrelated.served, &mut unrelated.forwarded] {
        while !watch.next().await.unwrap().expect("it goes on").to_string().contains("tick") {}
    }
    while !matches!(unrelated.socket.next().await, crate::access::wire::Message::Event(event) if event.to_string().contains("tick"))
    {
    }
    for call in [&mut unrelated.typed, &mut unrelated.sync] {
        ticked(call).await;
    }
    // Those that were there before come first.
    while !has_tick(&within("the next key of a worker", unrelated.worker.object()).await.unwrap()) {}
}

/// A list that its client has not taken is not told to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_on_its_way_is_cut() {
    let world = World::start("").await;
    world.settled().await;
    let filling = "x".repeat(900 << 10);
    for n in 0..24 {
        let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("big-{n}")}, "data": {"x": filling}});
        world.admin().write(Method::POST, "/api/v1/namespaces/a/configmaps", &body).await;
    }
    world.warm(&["/api/v1/configmaps"]).await;
    let token = world.token("space", &[]).await;
    let client = world.through(Some(&token));
    let mut stream = send(&client, "List", &list(&["a"])).await.into_body();
    let mut taken =
        within("the next frame of a stream", stream.frame()).await.unwrap().unwrap().into_data().unwrap().len();
    let revoked = || world.daemon.daemon.access.metrics().streams_revoked.get();
    world.delete(&path("rolebindings", "a", "space")).await;
    eventually("the right is gone", || revoked() > 0).await;
    let status = loop {
        match within("the next frame of a stream", stream.frame()).await.unwrap().unwrap().into_data() {
            Ok(data) => taken += data.len(),
            Err(frame) => break frame.into_trailers().unwrap()["grpc-status"].to_str().unwrap().to_owned(),
        }
    };
    assert_eq!(status, "7");
    assert!(taken < 20 << 20, "{taken} bytes were told after all");
}
