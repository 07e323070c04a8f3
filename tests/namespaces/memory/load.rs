//! Objects of a size, and clients that ask for many of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use informerd::grpc::pb::v1;
use informerd::lifecycle::spawn;
use informerd_sim::{Builder, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::calls::config_maps;
use crate::support::client::{Answer, Client};
use crate::support::grpc;
use crate::support::within;

pub(super) const MIB: usize = 1 << 20;

/// A ConfigMap with this much text, which compresses to about half; no two are alike.
pub(super) fn large(namespace: &str, name: &str, bytes: usize) -> Value {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| numbers(1).map(|number| format!("{number:08x}")).take(MIB / 8).collect());
    let place =
        name.bytes().chain(namespace.bytes()).fold(7, |place, byte| (place * 31 + usize::from(byte)) % (MIB / 2));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"text": text[place..place + bytes]},
    })
}

/// Text that no compressor makes smaller by a quarter, of which no two names have a part in common.
pub(super) fn noise(name: &str, bytes: usize) -> String {
    // What JSON writes as it is, whoever writes it.
    let plain = (b' '..=b'~').filter(|byte| !b"\"\\<>&".contains(byte)).collect::<Vec<u8>>();
    let seed = name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(1_099_511_628_211) ^ u64::from(byte));
    let bytes_of = numbers(seed).skip(4).flat_map(u32::to_le_bytes).take(bytes);
    bytes_of.map(|byte| char::from(plain[(usize::from(byte) * plain.len()) >> 8])).collect()
}

fn numbers(seed: u64) -> impl Iterator<Item = u32> {
    // https://www.pcg-random.org
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    })
}

/// So many namespaces with so many objects of 20 kB each.
pub(super) fn filled(namespaces: usize, objects: usize) -> Builder {
    let mut builder = Server::builder();
    for namespace in 0..namespaces {
        for object in 0..objects {
            builder = builder.object(large(&format!("n{namespace}"), &format!("m{object:04}"), 20_000));
        }
    }
    builder
}

pub(super) fn list_of(namespace: usize) -> String {
    format!("/api/v1/namespaces/n{namespace}/configmaps")
}

/// What a client may be told while memory is short.
fn is_refused(answer: &Answer) -> bool {
    if answer.status != StatusCode::TOO_MANY_REQUESTS {
        return false;
    }
    let status = answer.json();
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("TooManyRequests")), "{status}");
    assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
    true
}

/// Asks until it is not refused, as every client of an apiserver does; how often it was, and the body.
pub(super) async fn insist(client: &Client, path: &str) -> (usize, Bytes) {
    for refused in 0..90 {
        let answer = client.get(path).await;
        if !is_refused(&answer) {
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            return (refused, answer.body);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{path} is refused for ever");
}

/// Each of so many lists asked for by so many clients at once: every answer is what the apiserver says. Returns how often
/// one was refused.
pub(super) async fn lists_at_once(server: &Server, url: &str, lists: usize, clients: usize) -> usize {
    let mut asked = Vec::new();
    for list in 0..lists {
        let wanted = Arc::new(Client::new(&server.url()).get(&list_of(list)).await.body);
        for _ in 0..clients {
            let (url, wanted) = (url.to_owned(), Arc::clone(&wanted));
            asked.push(spawn("client", async move {
                let (refused, body) = insist(&Client::new(&url), &list_of(list)).await;
                // The revision of a list moves with other objects.
                let items =
                    |body: &Bytes| body[body.windows(9).position(|text| text == b"\"items\":[").unwrap()..].to_vec();
                assert!(items(&body) == items(&wanted), "{list}: {} bytes instead of {}", body.len(), wanted.len());
                refused
            }));
        }
    }
    let mut refused = 0;
    for client in asked {
        refused += client.await.unwrap();
    }
    refused
}

/// Clients that ask and then take nothing of the answers but their first bytes, by which they are known to have come.
pub(super) async fn stalled(url: &str, asked: Vec<(String, &str)>) -> Vec<TcpStream> {
    let clients = asked.into_iter().map(|(path, headers)| async move {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        within(&format!("the answer to {path} begins"), stream.read_exact(&mut first)).await.unwrap();
        let first = String::from_utf8_lossy(&first).into_owned();
        assert!(["HTTP/1.1 200", "HTTP/1.1 429"].contains(&first.as_str()), "{first}");
        stream
    });
    futures_util::future::join_all(clients).await
}

/// Takes all that comes, and asks again when it ends; for ever.
pub(super) async fn follow(url: String, path: String) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// gRPC calls for so many lists of a namespace, of which nothing is taken but what the windows let through; those that were refused
/// are told so in the words of gRPC.
pub(super) async fn stalled_calls(url: &str, lists: usize, calls: usize) -> Vec<tonic::Streaming<v1::ListResponse>> {
    let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(1 << 20);
    let mut open = Vec::new();
    for call in 0..calls {
        let channel = endpoint.connect().await.unwrap();
        let mut client = v1::objects_client::ObjectsClient::new(channel).max_decoding_message_size(64 << 20);
        match client.list(grpc::list_of(config_maps(&format!("n{}", call % lists)))).await {
            Ok(answer) => open.push(answer.into_inner()),
            Err(status) => {
                let codes = [tonic::Code::ResourceExhausted, tonic::Code::FailedPrecondition, tonic::Code::Unavailable];
                assert!(codes.contains(&status.code()), "{status:?}");
            }
        }
    }
    open
}
