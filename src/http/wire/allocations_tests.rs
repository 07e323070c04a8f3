//! How much a delivery allocates. Unlike times, this is the same on each machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::sync::mpsc;

use crate::auth::Lease;
use crate::cache::{WatchCache, WatchStart};
use crate::http::answer::{SHORTEST, WatchBody};
use crate::http::testing::{FIRST, World, http2_client, objects, serve, watch};
use crate::http::*;
use crate::lifecycle::drain;
use crate::lifecycle::ending::Ending;
use crate::lifecycle::multiplexer::IsWatch;
use crate::memory::Ledger;
use crate::meta::ResourceVersion;

const WATCHES: usize = 100;
/// The size of an object in bytes.
const SIZE: usize = 2_000;
/// Events before the count, and those that are counted.
const WARM: usize = 10;
const EVENTS: usize = 20;

struct Watched(WatchCache, Arc<HttpMetrics>, drain::DrainWatch);

impl Handler for Watched {
    fn handle(&self, _: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        let Self(cache, metrics, drain) = self;
        let answer = watch(cache, WatchStart::After(ResourceVersion(FIRST as u64)));
        let ending = Ending::new(drain, Duration::from_secs(1), SHORTEST);
        let body = WatchBody::new(answer, Lease::all([]), None, ending, metrics, &Ledger::default());
        let mut response = Response::new(Body::new(body));
        response.extensions_mut().insert(IsWatch);
        let (last, peer, version) = (&connection.last, connection.peer, http::Version::HTTP_11);
        let stats = metrics.clients.find(last, peer, response.headers(), version, false);
        Box::pin(async move { stats.count(response) })
    }
}

/// The bytes that the thread of the server allocates for each delivery. What it allocates for the event itself is in
/// this figure, divided by the number of watches.
fn bytes_per_delivery(clients: impl FnOnce(SocketAddr, Delivered) + Send + 'static) -> u64 {
    let server = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(objects(1, 5)).await;
            let (_never, drain) = drain::channel();
            let (address, _drain, _directory) = serve(Watched(world.cache.clone(), Arc::default(), drain));
            let (tell, mut delivered) = mpsc::channel(1);
            std::thread::spawn(move || clients(address, Delivered(tell)));
            let allocated = tikv_jemalloc_ctl::thread::allocatedp::read().unwrap();
            // The clients have opened their watches.
            delivered.recv().await.unwrap();
            let mut before = 0;
            for event in 0..WARM + EVENTS {
                if event == WARM {
                    before = allocated.get();
                }
                world.add(FIRST + event, SIZE).await;
                delivered.recv().await.unwrap();
            }
            allocated.get() - before
        })
    });
    let bytes = server.join().unwrap() / (EVENTS * WATCHES) as u64;
    eprintln!("{bytes} bytes for each delivery");
    bytes
}

/// Tells the server that all clients have a response, and then that they have an event.
struct Delivered(mpsc::Sender<()>);

/// Reads until the end of an event. Returns false if the server is gone.
fn read_event(client: &mut TcpStream) -> bool {
    let mut buf = [0; 4096];
    loop {
        match client.read(&mut buf) {
            Ok(read) if buf[..read].ends_with(b"}\n\r\n") => return true,
            Ok(1..) => {}
            _ => return false,
        }
    }
}

#[test]
fn http1_allocates_next_to_nothing() {
    let bytes = bytes_per_delivery(|address, delivered| {
        let mut clients: Vec<_> = (0..WATCHES).map(|_| TcpStream::connect(address).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                head.extend_from_slice(&byte);
            }
        }
        while delivered.0.blocking_send(()).is_ok() && clients.iter_mut().all(read_event) {}
    });
    assert!(bytes <= 250, "{bytes}");
}

#[test]
fn http2_allocates_next_to_nothing() {
    let bytes = bytes_per_delivery(|address, delivered| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut client, _) = http2_client(tokio::net::TcpStream::connect(address).await.unwrap()).await;
            let mut bodies = Vec::new();
            for _ in 0..WATCHES {
                client.ready().await.unwrap();
                let request = Request::get("http://localhost/").body(Empty::new()).unwrap();
                bodies.push(client.send_request(request).await.unwrap().into_body());
            }
            while delivered.0.send(()).await.is_ok() {
                for body in &mut bodies {
                    loop {
                        let Some(Ok(frame)) = body.frame().await else { return };
                        if frame.into_data().unwrap().ends_with(b"}\n") {
                            break;
                        }
                    }
                }
            }
        });
    });
    assert!(bytes <= 250, "{bytes}");
}
