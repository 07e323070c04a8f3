use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt as _;

use super::*;
use crate::client::{Identity, Upstream, empty};
use crate::error::BoxError;
use crate::raw_testing::{DATA, END_STREAM, GOAWAY, RST_STREAM, Raw, RawServer, Then, frame, head};

/// What the client gets of the body. `None` if the body fails.
async fn read(server: &RawServer, method: Method) -> Option<String> {
    let client = Upstream::from_config(server.config()).await.unwrap();
    let request = Request::builder().method(method).uri("/api/v1/pods").body(empty()).unwrap();
    let response = client.send(Identity::Own, request).await.unwrap();
    assert!(response.status().is_success());
    let whole = tokio::time::timeout(Duration::from_secs(60), response.into_body().collect()).await;
    let whole = whole.expect("the body ends or fails").ok()?;
    Some(String::from_utf8(whole.to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn a_body_over_http2_ends_with_its_stream_or_its_length_and_is_cut_by_everything_else() {
    type Frames = fn(u32) -> Vec<Vec<u8>>;
    fn begun(stream: u32) -> Vec<u8> {
        head(stream, 0, &[(":status", "200")])
    }
    fn of_length(stream: u32, length: &str) -> Vec<u8> {
        head(stream, 0, &[(":status", "200"), ("content-length", length)])
    }
    fn half(stream: u32) -> Vec<u8> {
        frame(DATA, 0, stream, b"half")
    }
    /// The end of the stream, after these bytes.
    fn end(stream: u32, bytes: &[u8]) -> Vec<u8> {
        frame(DATA, END_STREAM, stream, bytes)
    }
    fn trailers(stream: u32) -> Vec<u8> {
        head(stream, END_STREAM, &[("a", "b")])
    }
    fn reset(stream: u32) -> Vec<u8> {
        frame(RST_STREAM, 0, stream, &[0; 4])
    }
    let whole: [(&str, Frames, &str); 8] = [
        ("end", |s| vec![begun(s), end(s, b"half")], "half"),
        ("end, reset", |s| vec![begun(s), end(s, b"half"), reset(s)], "half"),
        ("empty end, reset", |s| vec![begun(s), half(s), end(s, b""), reset(s)], "half"),
        ("end in head, reset", |s| vec![head(s, END_STREAM, &[(":status", "204")]), reset(s)], ""),
        ("trailers", |s| vec![begun(s), half(s), trailers(s)], "half"),
        ("trailers, reset", |s| vec![begun(s), half(s), trailers(s), reset(s)], "half"),
        ("length, end", |s| vec![of_length(s, "4"), end(s, b"half")], "half"),
        ("length, reset", |s| vec![of_length(s, "4"), half(s), reset(s)], "half"),
    ];
    let cut: [(&str, Frames); 8] = [
        ("reset", |s| vec![begun(s), half(s), reset(s)]),
        ("reset before data", |s| vec![begun(s), reset(s)]),
        ("reset after an empty frame", |s| vec![begun(s), half(s), frame(DATA, 0, s, b""), reset(s)]),
        ("less than the length, reset", |s| vec![of_length(s, "8"), half(s), reset(s)]),
        ("less than the length, end", |s| vec![of_length(s, "8"), end(s, b"half")]),
        ("less than the length, trailers", |s| vec![of_length(s, "8"), half(s), trailers(s)]),
        ("another reset", |s| vec![begun(s), half(s), frame(RST_STREAM, 0, s, &[0, 0, 0, 8])]),
        ("goaway", |s| vec![begun(s), half(s), frame(GOAWAY, 0, 0, &[0; 8])]),
    ];
    let whole = whole.map(|(name, frames, text)| (name, frames, Then::Stays, Some(text)));
    let cut = cut.map(|(name, frames)| (name, frames, Then::Stays, None));
    let closed: [(&str, Frames, Then, Option<&str>); 2] = [
        ("end, closed", |s| vec![begun(s), end(s, b"half")], Then::Closes, Some("half")),
        ("closed", |s| vec![begun(s), half(s)], Then::Closes, None),
    ];
    for (name, frames, then, expected) in whole.into_iter().chain(cut).chain(closed) {
        let server = RawServer::start(Some("h2"), move |stream| Raw::new(frames(stream).concat(), then)).await;
        assert_eq!(read(&server, Method::GET).await.as_deref(), expected, "{name}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_is_whole_whatever_its_length_says() {
    let fields = [(":status", "200"), ("content-length", "1234")];
    let server = RawServer::start(Some("h2"), move |stream| {
        let bytes = [head(stream, END_STREAM, &fields), frame(RST_STREAM, 0, stream, &[0; 4])].concat();
        Raw::new(bytes, Then::Stays)
    })
    .await;
    assert_eq!(read(&server, Method::HEAD).await.as_deref(), Some(""));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n";
    let server = RawServer::start(Some("http/1.1"), |_| Raw::new(head.into(), Then::Stays)).await;
    assert_eq!(read(&server, Method::HEAD).await.as_deref(), Some(""));
}

#[tokio::test]
async fn a_body_over_http1_ends_with_its_message() {
    let (length, chunked) = ("content-length: 4\r\n\r\n", "transfer-encoding: chunked\r\n\r\n");
    for (answer, then, expected) in [
        (format!("{length}half"), Then::Stays, Some("half")),
        (format!("{length}half"), Then::Breaks, Some("half")),
        (format!("{chunked}4\r\nhalf\r\n0\r\n\r\n"), Then::Stays, Some("half")),
        // As a server of HTTP/1.0 answers. Over TLS, the end of the session is the end of the body.
        ("\r\nhalf".to_owned(), Then::Closes, Some("half")),
        ("\r\nhalf".to_owned(), Then::Breaks, None),
        (format!("{length}hal"), Then::Closes, None),
        (format!("{chunked}4\r\nhalf\r\n"), Then::Closes, None),
        (format!("{chunked}4\r\nhalf\r\n0\r\n"), Then::Closes, None),
        (format!("{chunked}8\r\nhalf"), Then::Closes, None),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{answer}").into_bytes();
        let server = RawServer::start(Some("http/1.1"), move |_| Raw::new(bytes.clone(), then)).await;
        assert_eq!(read(&server, Method::GET).await.as_deref(), expected, "{answer:?}, {then:?}");
    }
}

/// A server answers an upload without reading it, and stops it.
#[tokio::test]
async fn an_early_answer_to_an_upload_is_whole() {
    let server = RawServer::start(Some("h2"), |stream| {
        let refused = head(stream, 0, &[(":status", "413")]);
        let bytes = [refused, frame(DATA, END_STREAM, stream, b"too large"), frame(RST_STREAM, 0, stream, &[0; 4])];
        Raw::new(bytes.concat(), Then::Stays)
    })
    .await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let endless = futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>();
    let upload = http_body_util::StreamBody::new(endless).boxed_unsync();
    let mut request = Request::post("/api/v1/namespaces/a/pods").body(upload).unwrap();
    request.headers_mut().insert("content-length", HeaderValue::from_static("1000000"));
    let response = client.send(Identity::Own, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "too large");
}

#[tokio::test]
async fn what_was_cut_says_nothing_about_the_apiserver() {
    let server = RawServer::start(Some("h2"), |stream| {
        let bytes = [head(stream, 0, &[(":status", "200")]), frame(RST_STREAM, 0, stream, &[0; 4])].concat();
        Raw::new(bytes, Then::Stays)
    })
    .await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    let response = client.send(Identity::Own, Request::get("/").body(empty()).unwrap()).await.unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert!(matches!(error, UpstreamError::Body(_)) && !error.is_unreachable(), "{error}");
    assert_eq!(client.metrics().in_flight.get(), 0);
}
