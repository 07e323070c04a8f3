//! A server that answers each call by the next of its scripts, and holds what comes after the last one open.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use informerd_client::v1::objects_server::{Objects, ObjectsServer};
use informerd_client::v1::queue_server::{Queue, QueueServer};
use informerd_client::v1::watch_response::Frame;
use informerd_client::{Client, Server, v1};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnixListenerStream};
use tonic::{Code, Request, Response, Status, Streaming, transport};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tonic_types::{ErrorDetails, StatusExt};

/// What is sent on one watch. After `Ok`s alone it stays open, unless `ends`.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) sends: Vec<Result<v1::WatchResponse, Status>>,
    pub(crate) ends: bool,
}

pub(crate) type Work = (mpsc::Sender<Result<v1::WorkResponse, Status>>, Streaming<v1::WorkRequest>);

#[derive(Clone, Default)]
pub(crate) struct Fake {
    scripts: Arc<Mutex<VecDeque<Script>>>,
    /// The requests of watches, in order.
    pub(crate) asked: Arc<Mutex<Vec<v1::WatchRequest>>>,
    /// The tokens that they came with.
    pub(crate) tokens: Arc<Mutex<Vec<Option<String>>>>,
    works: Option<mpsc::Sender<Work>>,
    health: HealthReporter,
}

// === impl Fake ===

impl Fake {
    pub(crate) async fn watches(scripts: impl IntoIterator<Item = Script>) -> (Self, Client) {
        let fake = Self { scripts: Arc::new(Mutex::new(scripts.into_iter().collect())), ..Self::default() };
        let client = fake.clone().client().await;
        (fake, client)
    }

    pub(crate) fn scripts(&self, scripts: impl IntoIterator<Item = Script>) {
        self.scripts.lock().unwrap().extend(scripts);
    }

    /// Every worker that comes is given to the test.
    pub(crate) async fn workers() -> (mpsc::Receiver<Work>, Client) {
        let (sender, receiver) = mpsc::channel(4);
        let client = Self { works: Some(sender), ..Self::default() }.client().await;
        (receiver, client)
    }

    async fn client(self) -> Client {
        let address = self.serve(transport::Server::builder()).await;
        Client::new(Server::new(&address, None, None).unwrap())
    }

    pub(crate) async fn ready(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.health.set_service_status("informerd.v1.Objects", status).await;
    }

    /// Where it listens, without a scheme.
    pub(crate) async fn serve(self, mut server: transport::Server) -> String {
        self.ready(true).await;
        let health = HealthServer::with_interceptor(HealthService::from_health_reporter(self.health.clone()), no_token);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = server.add_service(health).add_service(ObjectsServer::new(self.clone()));
        let router = router.add_service(QueueServer::new(self));
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    pub(crate) async fn serve_at(self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let router = transport::Server::builder().add_service(ObjectsServer::new(self));
        tokio::spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
    }
}

fn no_token(request: Request<()>) -> Result<Request<()>, Status> {
    let shown = request.metadata().contains_key("authorization");
    if shown { Err(Status::internal("a token was shown before it was known to whom")) } else { Ok(request) }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Objects for Fake {
    async fn get(&self, _: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        Err(Status::unimplemented("not of this test"))
    }

    type ListStream = ReceiverStream<Result<v1::ListResponse, Status>>;

    async fn list(&self, _: Request<v1::ListRequest>) -> Answer<Self::ListStream> {
        Err(Status::unimplemented("not of this test"))
    }

    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let token = request.metadata().get("authorization").map(|token| token.to_str().unwrap().to_owned());
        self.tokens.lock().unwrap().push(token);
        self.asked.lock().unwrap().push(request.into_inner());
        let Script { sends, ends } = self.scripts.lock().unwrap().pop_front().unwrap_or_default();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let fails = sends.iter().any(Result::is_err);
            for sent in sends {
                sender.send(sent).await.ok();
            }
            if !ends && !fails {
                sender.closed().await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type SyncStream = ReceiverStream<Result<v1::SyncResponse, Status>>;

    async fn sync(&self, _: Request<Streaming<v1::SyncRequest>>) -> Answer<Self::SyncStream> {
        Err(Status::unimplemented("not of this test"))
    }
}

#[tonic::async_trait]
impl Queue for Fake {
    type WorkStream = ReceiverStream<Result<v1::WorkResponse, Status>>;

    async fn work(&self, request: Request<Streaming<v1::WorkRequest>>) -> Answer<Self::WorkStream> {
        let (sender, receiver) = mpsc::channel(8);
        self.works.as_ref().unwrap().send((sender, request.into_inner())).await.unwrap();
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

pub(crate) fn script(frames: impl IntoIterator<Item = v1::WatchResponse>) -> Script {
    Script { sends: frames.into_iter().map(Ok).collect(), ends: false }
}

pub(crate) fn broken(frames: impl IntoIterator<Item = v1::WatchResponse>) -> Script {
    let mut script = script(frames);
    script.sends.push(Err(Status::unavailable("cut")));
    script
}

pub(crate) fn refused(code: Code, reason: Option<&str>) -> Script {
    Script { sends: vec![Err(refusal(code, reason))], ends: false }
}

pub(crate) fn refusal(code: Code, reason: Option<&str>) -> Status {
    match reason {
        Some(reason) => {
            let details = ErrorDetails::with_error_info(reason, "informerd.io", []);
            Status::with_error_details(code, "no", details)
        }
        None => Status::new(code, "no"),
    }
}

fn frame(frame: Frame, token: &str) -> v1::WatchResponse {
    let resume_token = Bytes::copy_from_slice(token.as_bytes());
    v1::WatchResponse { resume_token, frame: Some(frame), ..Default::default() }
}

pub(crate) fn started(resumed: bool) -> v1::WatchResponse {
    frame(Frame::Started(v1::Started { resumed, ..Default::default() }), "")
}

pub(crate) fn reset() -> v1::WatchResponse {
    frame(Frame::Reset(v1::Reset::default()), "")
}

pub(crate) fn snapshot_end() -> v1::WatchResponse {
    frame(Frame::SnapshotEnd(v1::SnapshotEnd::default()), "snapshot")
}

pub(crate) fn goodbye(token: &str) -> v1::WatchResponse {
    frame(Frame::Goodbye(v1::Goodbye::default()), token)
}

/// "+a1" "~a2" "-a3": what happened to object a at which revision; "+a1/x": of the uid x.
pub(crate) fn events(token: &str, changes: &[&str]) -> v1::WatchResponse {
    let event = |change: &&str| {
        let (change, uid) = change.split_once('/').unwrap_or((change, &change[1..2]));
        let (name, version) = (&change[1..2], &change[2..]);
        let kind = match &change[..1] {
            "+" => v1::event::Type::Added,
            "~" => v1::event::Type::Modified,
            _ => v1::event::Type::Deleted,
        };
        let key =
            v1::Key { namespace: "n".into(), name: name.into(), uid: uid.into(), resource_version: version.into() };
        v1::Event { r#type: kind.into(), key: Some(key), object: pod(name, version), partial: false }
    };
    frame(Frame::Events(v1::Events { events: changes.iter().map(event).collect() }), token)
}

pub(crate) fn pod(name: &str, version: &str) -> Bytes {
    json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": version}}).to_string().into()
}
