//! Reads the answers to the daemon's own requests: error Statuses, and JSON of bounded size.

use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chunks::{Chunks, IDLE_TIMEOUT};
use super::client::{CallOptions, Identity, ReqBody, Upstream, UpstreamBody, empty, full};
use super::error::{BoxError, Cause, UpstreamError};
use informerd_codec::json::Outline;
use informerd_codec::{ListDecoder, protobuf};
use informerd_meta::{Encoding, FieldTable, Status};

/// The maximum number of bytes read from the body of an error.
const MAX_STATUS: usize = 64 << 10;

const JSON: &str = "application/json";

/// Timeout for the head of an answer that the apiserver can give at once. It includes time in the apiserver's fairness
/// queues.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(35);

/// Whether compression is requested for lists and other short answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Identity,
}

/// Sends a GET request of the daemon and returns the answer if it is a success.
pub async fn get(
    upstream: &Upstream,
    path: &str,
    accept: &'static str,
    compression: Compression,
    options: &CallOptions,
) -> Result<(Response<()>, Chunks), UpstreamError> {
    let encoding = match compression {
        Compression::Gzip => "gzip",
        Compression::Identity => "identity",
    };
    let request = Request::get(path).header(ACCEPT, accept).header(ACCEPT_ENCODING, encoding).body(empty());
    exchange(upstream, request.map_err(|error| UpstreamError::Request(Cause::new(error)))?, options).await
}

/// Sends a request of the daemon and returns the answer if it is a success.
async fn exchange(
    upstream: &Upstream,
    request: Request<ReqBody>,
    options: &CallOptions,
) -> Result<(Response<()>, Chunks), UpstreamError> {
    let response = upstream.send_with(Identity::Own, request, options).await?;
    let (head, body) = response.into_parts();
    let chunks = Chunks::new(&head.headers, body);
    if head.status.is_success() {
        return Ok((Response::from_parts(head, ()), chunks));
    }
    Err(UpstreamError::Status(Box::new(status(head.status.as_u16(), &head.headers, chunks).await)))
}

/// Reads a whole answer of at most `limit` bytes.
pub async fn get_text(
    upstream: &Upstream,
    path: &str,
    options: &CallOptions,
    limit: usize,
) -> Result<Vec<u8>, UpstreamError> {
    let (_, chunks) = get(upstream, path, "*/*", Compression::Identity, options).await?;
    chunks.whole(limit).await
}

/// Reads a whole JSON answer of at most `limit` bytes, and its head.
///
/// # Errors
/// The apiserver cannot be reached, refuses, or answers with more than `limit` bytes or with something other than a
/// `T`.
pub async fn get_json<T: DeserializeOwned>(
    upstream: &Upstream,
    path: &str,
    accept: &'static str,
    options: &CallOptions,
    limit: usize,
) -> Result<(Response<()>, T), UpstreamError> {
    let (head, chunks) = get(upstream, path, accept, Compression::Gzip, options).await?;
    let text = chunks.whole(limit).await?;
    let value = serde_json::from_slice(&text).map_err(|error| UpstreamError::Decode(Cause::new(error)))?;
    Ok((head, value))
}

/// Reads members near the root of a JSON answer of any size, as an [`Outline`] of this depth and at most so many bytes
/// shows them.
///
/// # Errors
/// The apiserver cannot be reached, refuses, or answers with something other than a `T`.
pub async fn get_outline<T: DeserializeOwned>(
    upstream: &Upstream,
    path: &str,
    accept: &'static str,
    options: &CallOptions,
    (depth, limit): (usize, usize),
) -> Result<T, UpstreamError> {
    let (_, chunks) = get(upstream, path, accept, Compression::Gzip, options).await?;
    decode_outline(chunks, depth, limit).await
}

async fn decode_outline<T: DeserializeOwned>(
    mut chunks: Chunks,
    depth: usize,
    limit: usize,
) -> Result<T, UpstreamError> {
    let mut outline = Outline::new(depth, limit);
    while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await? {
        outline.push(&chunk);
        // Reading a large answer takes a while; other tasks need this thread too.
        tokio::task::consume_budget().await;
    }
    let too_long = || UpstreamError::Decode(Cause::new("an answer with too many members"));
    let text = outline.text().ok_or_else(too_long)?;
    serde_json::from_slice(text).map_err(|error| UpstreamError::Decode(Cause::new(error)))
}

/// Decodes the few members near the root of an answer of any size, see [`Outline`].
///
/// # Errors
/// The answer breaks off, or is something other than a `T`.
pub async fn near_root<T: DeserializeOwned>(
    response: Response<UpstreamBody>,
    depth: usize,
    limit: usize,
) -> Result<T, UpstreamError> {
    let (head, body) = response.into_parts();
    decode_outline(Chunks::new(&head.headers, body), depth, limit).await
}

/// Reads a page of a list in JSON and passes on its items as they arrive. Only one of them, of at most `limit` bytes, is
/// in memory at a time. Returns the list's revision and its continue token.
///
/// # Errors
/// The apiserver cannot be reached, refuses, or answers with something other than a list.
pub async fn get_items(
    upstream: &Upstream,
    path: &str,
    options: &CallOptions,
    limit: usize,
    mut take: impl FnMut(&[u8]),
) -> Result<(String, String), UpstreamError> {
    let failed = |error| UpstreamError::Decode(Cause::new(error));
    let (_, mut chunks) = get(upstream, path, JSON, Compression::Gzip, options).await?;
    let mut decoder = ListDecoder::new(Encoding::Json, limit, FieldTable::default());
    while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await? {
        decoder.push(chunk);
        while let Some((object, _)) = decoder.next().map_err(failed)? {
            take(&object.raw().map_err(|damaged| UpstreamError::Decode(Cause::new(damaged)))?.item());
        }
        // Reading a whole list takes a while; other tasks need this thread too.
        tokio::task::consume_budget().await;
    }
    let meta = decoder.finish().map_err(failed)?;
    Ok((meta.rv.to_string(), meta.continue_token))
}

/// Creates an object that is answered but not stored, such as a review, and returns the answer.
///
/// # Errors
/// The apiserver cannot be reached, refuses, or answers with more than `limit` bytes or with something other than a
/// `T`.
pub async fn post_json<Q: Serialize, T: DeserializeOwned>(
    upstream: &Upstream,
    path: &str,
    question: &Q,
    options: &CallOptions,
    limit: usize,
) -> Result<T, UpstreamError> {
    let failed = |error: BoxError| UpstreamError::Request(Cause::new(error));
    let body = serde_json::to_vec(question).map_err(|error| failed(error.into()))?;
    let request = Request::post(path).header(CONTENT_TYPE, JSON).header(ACCEPT, JSON).body(full(body));
    ask_json(upstream, request.map_err(|error| failed(error.into()))?, options, limit).await
}

/// Sends a request and gives the answer, JSON of at most `limit` bytes.
///
/// # Errors
/// The server cannot be reached, refuses, or answers with more bytes or anything but a `T`.
pub async fn ask_json<T: DeserializeOwned>(
    upstream: &Upstream,
    request: Request<ReqBody>,
    options: &CallOptions,
    limit: usize,
) -> Result<T, UpstreamError> {
    let (_, chunks) = exchange(upstream, request, options).await?;
    serde_json::from_slice(&chunks.whole(limit).await?).map_err(|error| UpstreamError::Decode(Cause::new(error)))
}

/// The Status of an error answer. One is made up if the server, or a proxy before it, sent none.
async fn status(code: u16, headers: &HeaderMap, mut chunks: Chunks) -> Status {
    let mut text = Vec::new();
    while text.len() < MAX_STATUS {
        match chunks.next(Duration::from_secs(5)).await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    // In the encoding of the request, or in JSON if a proxy before the apiserver sent it.
    let read = protobuf::read_status(&text).ok().or_else(|| serde_json::from_slice(&text).ok());
    let mut status = match read {
        Some(status) if status.status == "Failure" => status,
        _ => {
            let text = String::from_utf8_lossy(&text);
            let line = text.lines().next().unwrap_or_default().trim();
            Status::failure(code, "", line.chars().take(200).collect::<String>())
        }
    };
    status.code = code;
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    if let Some(seconds) = header {
        status = status.with_retry_after(seconds);
    }
    status
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http::header::CONTENT_ENCODING;

    use std::sync::Arc;

    use super::*;
    use crate::chunks::STEP;
    use crate::client::RequestVerb;
    use crate::meter::{Meter, Metered};
    use crate::testing::{FakeServer, answer, endless};

    fn options() -> CallOptions {
        CallOptions::new(RequestVerb::Get, "pods")
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    async fn serve(body: Vec<u8>) -> (FakeServer, Upstream) {
        let server = FakeServer::plain(move |_, _| {
            let body = body.clone();
            async move {
                let mut response = answer(200, body);
                response.headers_mut().insert(CONTENT_ENCODING, http::HeaderValue::from_static("gzip"));
                response
            }
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        (server, upstream)
    }

    #[tokio::test]
    async fn gzip_that_breaks_off_is_an_error() {
        let whole = gzip(&b"[1,2,3,4,5,6,7,8,9]".repeat(50));
        let (_server, upstream) = serve(whole[..whole.len() - 9].to_vec()).await;
        let error = get_json::<serde_json::Value>(&upstream, "/", "application/json", &options(), 10_000).await;
        assert!(matches!(error, Err(UpstreamError::Body(_))), "{:?}", error.map(|_| ()));
    }

    #[tokio::test]
    async fn a_megabyte_of_one_letter_comes_in_small_pieces() {
        let (_server, upstream) = serve([gzip(&[b'a'; 4 << 20]), gzip(&[b'b'; 1 << 20])].concat()).await;
        let (_, mut chunks) = get(&upstream, "/", "text/plain", Compression::Gzip, &options()).await.unwrap();
        let (mut a, mut b, mut largest) = (0, 0, 0);
        while let Some(chunk) = chunks.next(IDLE_TIMEOUT).await.unwrap() {
            largest = largest.max(chunk.len());
            a += chunk.iter().filter(|byte| **byte == b'a').count();
            b += chunk.iter().filter(|byte| **byte == b'b').count();
        }
        assert_eq!((a, b), (4 << 20, 1 << 20));
        assert!(largest <= 3 * STEP, "{largest}");
    }

    #[tokio::test]
    async fn what_our_requests_cost_is_metered_as_it_was_sent() {
        let (packed, meter) = (gzip(&[b'a'; 1 << 20]), Arc::<Meter>::default());
        let sent = packed.len() as u64;
        let (_server, upstream) = serve(packed).await;
        let metered = CallOptions { meter: Some(Arc::clone(&meter)), ..options() };
        for options in [&metered, &options(), &CallOptions::default()] {
            let (_, chunks) = get(&upstream, "/", "text/plain", Compression::Gzip, options).await.unwrap();
            chunks.whole(1 << 20).await.unwrap();
        }
        let once = Metered { requests: 1, wire: sent };
        assert_eq!(meter.asked(), once);
        assert_eq!(upstream.metrics().others.asked(), once, "what is forwarded is not ours");
        assert_eq!(upstream.metrics().received_bytes.get(), 3 * sent);
    }

    #[tokio::test]
    async fn an_answer_is_bounded() {
        let (_server, upstream) = serve(gzip(&[b' '; 1000])).await;
        let error = get_json::<serde_json::Value>(&upstream, "/", "application/json", &options(), 999).await;
        assert!(matches!(error, Err(UpstreamError::Decode(_))));
    }

    #[tokio::test]
    async fn an_error_answer_is_a_status_with_its_retry_after() {
        let server = FakeServer::plain(|request, _| async move {
            let status = Status::failure(429, "TooManyRequests", "slow down");
            let mut response = match request.uri().path() {
                "/status" => answer(429, status.to_json()),
                "/protobuf" => answer(429, protobuf::status_body(&status)),
                "/long" => answer(429, Status::failure(429, "", "x".repeat(MAX_STATUS - 200)).to_json()),
                "/longer" => answer(429, Status::failure(429, "", "x".repeat(1 << 20)).to_json()),
                _ => answer(503, "no healthy upstream\nbye"),
            };
            response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("7"));
            response
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        for (path, code, message) in
            [("/status", 429, "slow down"), ("/protobuf", 429, "slow down"), ("/", 503, "no healthy upstream")]
        {
            let result = get(&upstream, path, "application/json", Compression::Identity, &options()).await;
            let error = result.map(drop).unwrap_err();
            assert_eq!((error.code(), error.retry_after()), (Some(code), Some(Duration::from_secs(7))), "{path}");
            let UpstreamError::Status(status) = error else { panic!("no status") };
            assert_eq!(&*status.message, message, "{path}");
        }
        for (path, length) in [("/long", MAX_STATUS - 200), ("/longer", 200)] {
            let result = get(&upstream, path, "application/json", Compression::Identity, &options()).await;
            let Err(UpstreamError::Status(status)) = result else { panic!("no status") };
            assert_eq!((status.code, status.message.len()), (429, length), "{path}");
        }
    }

    #[tokio::test]
    async fn a_body_that_stops_moving_is_given_up() {
        let server = FakeServer::plain(|_, _| async { endless(Vec::new()) }).await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let (_, mut chunks) = get(&upstream, "/", "application/json", Compression::Identity, &options()).await.unwrap();
        let error = chunks.next(Duration::from_millis(30)).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Timeout { .. }), "{error}");
    }
}
