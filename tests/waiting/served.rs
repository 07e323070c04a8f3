//! What a whole daemon serves, byte for byte against what the apiserver's own code makes of random objects of every type
//! (`judge vectors`): lists, gets and the states of watches over HTTP, and lists over gRPC. The objects are served as they came
//! from the apiserver, then packed, and then as a restart reads them from disk.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod frames;
mod server;

use std::fs;
use std::io::Read as _;

use futures_util::StreamExt as _;
use futures_util::stream;
use http::{HeaderMap, Method};
use informerd::codec::Shape;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::list_response::Part;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::meta::{Encoding, ObjectKey};
use informerd::packing::PackingStats;
use tonic::transport::Channel;

use self::frames::{Frames, added, object_of};
use self::server::Server;
use crate::support::client::{Answer, Client};
use crate::support::grpc::{list_of, objects};
use crate::support::life::Life;
use crate::support::{eventually, file, until, within};
use crate::vectors::{SHAPES, Type, accept, assert_same, media, vectors};

/// One encoding of one type, and the clients of the daemon that serves it.
struct Served<'a> {
    of: &'static Type,
    encoding: Encoding,
    /// What has become of the objects.
    when: &'static str,
    /// With a client of HTTP/1.1.
    life: &'a Life,
    http2: Client,
    grpc: ObjectsClient<Channel>,
}

/// So many types are compared at once.
const AT_ONCE: usize = 4;

/// A longer body is compressed for a client that accepts gzip.
const COMPRESSED: usize = 128 << 10;

/// `packed` packs caches of at least this size.
const LEAST_PACKED: usize = 16 << 10;

/// So many objects are packed at least. Some types are too small, and random bytes may gain nothing.
const PACKED: u64 = 100;

/// A watch that begins with the state.
const STATE: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn compare(life: &Life, when: &'static str) {
    let grpc = &objects(&life.through.url).await.max_decoding_message_size(64 << 20);
    let each = move |of: &'static Type| async move {
        // The informer of protobuf starts at its first read only if that of JSON has shown that there are few objects.
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let (http2, grpc) = (Client::http2(&life.through.url), grpc.clone());
            Served { of, encoding, when, life, http2, grpc }.compare().await;
        }
    };
    stream::iter(&vectors().await.0).for_each_concurrent(AT_ONCE, each).await;
}

fn assert_own(what: &str, headers: &HeaderMap) {
    let plan = headers["x-informerd-plan"].to_str().unwrap();
    assert!(plan.starts_with("served") || plan.starts_with("waited"), "{what}: {plan}");
}

fn plain(answer: &Answer) -> Vec<u8> {
    let mut plain = Vec::new();
    match answer.headers.contains_key("content-encoding") {
        true => flate2::read::MultiGzDecoder::new(&*answer.body).read_to_end(&mut plain).unwrap(),
        false => (&*answer.body).read_to_end(&mut plain).unwrap(),
    };
    plain
}

impl Served<'_> {
    async fn compare(&self) {
        self.compare_lists().await;
        self.compare_gets().await;
        self.compare_watches().await;
        self.compare_lists_by_grpc().await;
    }

    /// Of a list or an object: over HTTP/1.1 as it is, and over HTTP/2 compressed.
    async fn compare_body(&self, path: &str, accept: &str, theirs: &[u8]) {
        let path = format!("{path}?resourceVersion=0");
        for (client, coding) in [(&self.life.client, "identity"), (&self.http2, "gzip")] {
            let headers = [("accept", accept), ("accept-encoding", coding)];
            let answer = client.request(Method::GET, &path, &headers, "").await;
            let what = format!("{}: {path} {headers:?}", self.when);
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            assert_own(&what, &answer.headers);
            let is_compressed = answer.headers.contains_key("content-encoding");
            assert_eq!(is_compressed, coding == "gzip" && theirs.len() > COMPRESSED, "{what}");
            assert_same(&what, &plain(&answer), theirs);
        }
    }

    async fn compare_lists(&self) {
        let nobody = self.of.resource.namespaced.then(|| self.of.in_namespace("nobody"));
        for path in [self.of.collection.clone()].into_iter().chain(nobody) {
            for shape in SHAPES {
                let accept = accept(self.encoding, shape, "List");
                self.compare_body(&path, &accept, self.of.answer(&path, &accept)).await;
            }
        }
    }

    async fn compare_gets(&self) {
        let list = self.of.answer(&self.of.collection, media(self.encoding));
        let (listed, _) = self.of.decode(self.encoding, list).unwrap();
        for shape in [Shape::Full, Shape::PartialObjectMetadata] {
            let accept = accept(self.encoding, shape, "");
            let events = Frames::of(self.of, self.encoding, shape).events;
            assert_eq!(events.len(), listed.len());
            for (n, (object, event)) in listed.iter().zip(&events).enumerate() {
                let (path, mut theirs) = (self.path(&object.key), object_of(self.encoding, event));
                if self.encoding == Encoding::Json {
                    theirs.push(b'\n');
                }
                if n == 0 {
                    assert_same(&path, &theirs, self.of.answer(&path, &accept));
                }
                self.compare_body(&path, &accept, &theirs).await;
            }
        }
    }

    fn path(&self, key: &ObjectKey) -> String {
        match key.namespace() {
            "" => format!("{}/{}", self.of.collection, key.name()),
            namespace => format!("{}/{}", self.of.in_namespace(namespace), key.name()),
        }
    }

    async fn compare_watches(&self) {
        let factory = &self.life.through.daemon.factory;
        // Only a bookmark of the apiserver shows the form of bookmarks.
        let are_known = || {
            let own = factory.those(|key| key.gvr == self.of.resource.gvr && key.encoding == self.encoding);
            own.len() == 1 && own[0].cache().bookmark_template().is_some()
        };
        eventually("a bookmark has come", are_known).await;
        for shape in SHAPES {
            let accept = accept(self.encoding, shape, "");
            let path = format!("{}?{STATE}&resourceVersion=0", self.of.collection);
            let what = format!("{}: {path} {accept}", self.when);
            let mut watch = self.http2.watch_as(&path, &[("accept", &*accept)]).await;
            assert_own(&what, &watch.headers);
            let Frames { events, end, .. } = Frames::of(self.of, self.encoding, shape);
            for theirs in events.iter().map(|event| added(self.encoding, event)).chain([end.to_vec()]) {
                let ours = match self.encoding {
                    Encoding::Protobuf => watch.next_frame().await,
                    Encoding::Json | Encoding::Table => watch.next_bytes().await,
                };
                assert_same(&what, &ours.unwrap().unwrap(), &theirs);
            }
        }
    }

    async fn compare_lists_by_grpc(&self) {
        let gvr = &self.of.resource.gvr;
        let (group, version, resource) = (gvr.group.to_string(), gvr.version.to_string(), gvr.resource.to_string());
        let resource = Some(v1::Resource { group, version, resource });
        let encoding = match self.encoding {
            Encoding::Protobuf => v1::Encoding::KubeProtobuf,
            Encoding::Json | Encoding::Table => v1::Encoding::Json,
        };
        for (shape, asked) in [(Shape::Full, v1::Shape::Full), (Shape::PartialObjectMetadata, v1::Shape::MetadataOnly)]
        {
            let mut selection = v1::Selection { resource: resource.clone(), ..Default::default() };
            selection.set_shape(asked);
            selection.set_encoding(encoding);
            let what = format!("{}: {gvr} over gRPC, {:?} {shape:?}", self.when, self.encoding);
            let mut list = within(&what, self.grpc.clone().list(list_of(selection))).await.unwrap().into_inner();
            let mut ours = Vec::new();
            while let Some(message) = within(&what, list.message()).await.unwrap() {
                if let Some(Part::Chunk(chunk)) = message.part {
                    ours.extend(chunk.objects);
                }
            }
            let events = Frames::of(self.of, self.encoding, shape).events;
            assert_eq!(ours.len(), events.len(), "{what}");
            for (ours, event) in ours.iter().zip(&events) {
                assert_same(&what, &ours.object, &object_of(self.encoding, event));
            }
        }
    }
}

/// Objects stay packed, however often they are read.
async fn begin(server: &Server, yaml: &str) -> Life {
    let life = Life::begin(server.source(), yaml, |config| config.memory.hot_bytes = 0).await;
    life.through.ready().await;
    life
}

/// Waits until all caches are packed that are large enough.
async fn packed(life: &Life) -> PackingStats {
    let (factory, packing) = (&life.through.daemon.factory, &life.through.daemon.packing);
    let mut last = 0;
    until("all caches are packed", async || {
        let informers = factory.informers();
        let sizes = informers.iter().filter_map(|informer| Some(informer.cache().snapshot()?.bytes()));
        let (large, now) = (sizes.filter(|bytes| *bytes >= LEAST_PACKED).count() as u64, packing.stats());
        // A cache is packed right after its dictionary is trained.
        now.trained_total >= large && std::mem::replace(&mut last, now.packed_total) == now.packed_total
    })
    .await;
    packing.stats()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_is_served_as_it_came_and_packed_and_from_disk_as_the_apiserver_writes_it() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (snapshots, key) = (directory.path().join("snapshots"), "0123456789abcdef".repeat(4));
    let key = file(directory.path(), "key", key);
    let yaml = format!(
        "explainHeader: true\nnotSynced: {{wait: 60s}}\nlimits: {{maxInformers: 1000}}\nmemory: {{form: packed}}\n\
         resources: [{{resource: secrets}}]\nsnapshots: {{dir: {}, key: {}}}\n",
        snapshots.display(),
        key.display()
    );
    let first = begin(&server, &yaml).await;
    compare(&first, "as it came").await;
    let before = packed(&first).await;
    compare(&first, "packed").await;
    let unpacked = first.through.daemon.packing.stats().unpacked_total - before.unpacked_total;
    assert!(before.objects >= PACKED && unpacked >= before.objects, "{unpacked} after {before:?}");

    let informers = first.through.daemon.factory.informers().len();
    assert_eq!(informers, 2 * vectors().await.0.len());
    let is_whole = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|end| end == "snapshot");
    let whole = || fs::read_dir(&snapshots).into_iter().flatten().flatten().filter(is_whole).count();
    until("all caches are on disk", async || whole() == informers).await;
    first.kill().await;
    server.refuse_lists();
    let second = begin(&server, &yaml).await;
    compare(&second, "from disk").await;
    assert_eq!(second.count("informerd_snapshots_loaded_total", &[]).await, informers as u64);
    second.kill().await;
}
