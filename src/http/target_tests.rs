use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// What comes out, however the bytes are cut into reads.
fn passed(pieces: &[&[u8]]) -> String {
    let mut heads = Encoded::new(()).heads;
    let mut out = Vec::new();
    for piece in pieces {
        out.extend(heads.pass(piece).unwrap_or_else(|| piece.to_vec()));
    }
    String::from_utf8(out).unwrap()
}

const TWO: &str =
    "POST /a?b>c HTTP/1.1\r\nHost: <h>\r\nContent-Length: 9\r\n\r\nGET /<x> \nGET /#\u{e9} HTTP/1.1\r\n\r\n";
const TWO_ENCODED: &str =
    "POST /a?b%3Ec HTTP/1.1\r\nHost: <h>\r\nContent-Length: 9\r\n\r\nGET /<x> \nGET /%23%C3%A9 HTTP/1.1\r\n\r\n";

#[test]
fn only_targets_are_touched() {
    // The body looks like a request and is none.
    let body = TWO.replace("Content-Length: 9", "Content-Length: 10");
    assert_eq!(passed(&[body.as_bytes()]), TWO_ENCODED.replace("Content-Length: 9", "Content-Length: 10"));
}

#[test]
fn what_cannot_be_followed_is_left_alone() {
    for head in [
        "PRI * HTTP/2.0\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        // Leading zeros and blanks that push the number out of what is looked at.
        concat!(
            "POST / HTTP/1.1\r\ncontent-length: 0000000000000000000000000000000000000000000000000000000000000009",
            "\r\n\r\n"
        ),
        concat!("POST / HTTP/1.1\r\ncontent-length:                                               12", "\r\n\r\n"),
    ] {
        let text = format!("{head}GET /<x> HTTP/1.1\r\n\r\n");
        assert_eq!(passed(&[text.as_bytes()]), text);
    }
}

#[test]
fn an_upgrade_that_is_refused_leaves_the_connection_as_it_was() {
    let ask = b"GET /<x> HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
    for (answers, followed) in [
        (&["HTTP/1.1 400 Bad Request\r\n"][..], true),
        (&["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n"], true),
        (&["HTTP/1.1 101 Switching Protocols\r\n", "HTTP/1.1 200 OK\r\n"], false),
        (&[], false),
    ] {
        let mut heads = Encoded::new(()).heads;
        assert!(heads.pass(ask).is_some());
        answers.iter().for_each(|answer| heads.answers(answer.as_bytes()));
        assert_eq!(heads.pass(b"GET /<x> HTTP/1.1\r\n\r\n").is_some(), followed, "{answers:?}");
    }
    // Behind another request: the first answer is not its own.
    let mut heads = Encoded::new(()).heads;
    heads.pass(b"GET / HTTP/1.1\r\n\r\n");
    heads.pass(ask);
    heads.answers(b"HTTP/1.1 200 OK\r\n");
    assert!(heads.pass(b"GET /<x> HTTP/1.1\r\n\r\n").is_none());
    // Sent before the answer: not known for what it is taken.
    let mut heads = Encoded::new(()).heads;
    heads.pass(ask);
    assert!(heads.pass(b"GET /<x>").is_none());
    heads.answers(b"HTTP/1.1 400 Bad Request\r\n");
    assert!(heads.pass(b"GET /<x> HTTP/1.1\r\n\r\n").is_none());
}

#[tokio::test]
async fn what_grows_beyond_a_read_comes_with_the_next() {
    let (mut client, server) = duplex(64);
    client.write_all(b"GET /<<<<<<<<>>>>>>>> HTTP/1.1\r\n\r\n").await.unwrap();
    drop(client);
    let mut server = Encoded::new(server);
    let (mut read, mut small) = (Vec::new(), [0; 8]);
    loop {
        match server.read(&mut small).await.unwrap() {
            0 => break,
            n => read.extend_from_slice(&small[..n]),
        }
    }
    let target = format!("/{}{}", "%3C".repeat(8), "%3E".repeat(8));
    assert_eq!(String::from_utf8(read).unwrap(), format!("GET {target} HTTP/1.1\r\n\r\n"));
}

proptest! {
    #[test]
    fn it_does_not_matter_how_requests_are_cut(cuts in prop::collection::vec(0..TWO.len(), 0..6)) {
        let mut cuts = cuts;
        cuts.extend([0, TWO.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &TWO.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(passed(&pieces), passed(&[TWO.as_bytes()]));
    }

    #[test]
    fn nothing_that_needs_no_change_is_changed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut heads = Encoded::new(()).heads;
        let decoded = |bytes: &[u8]| percent_encoding::percent_decode(bytes).collect::<Vec<_>>();
        if let Some(passed) = heads.pass(&bytes) {
            prop_assert_eq!(decoded(&passed), decoded(&bytes));
        }
    }
}

/// What our HTTP library makes of these bytes: method, target and body of each request, and of a broken body as much as
/// there was.
async fn seen(bytes: Vec<u8>, encoded: bool, size: usize) -> Vec<(String, String, Vec<u8>)> {
    let (client, server) = duplex(size);
    let requests = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&requests);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, mut body) = request.into_parts();
            let mut read = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            }
            seen.lock().push((head.method.to_string(), head.uri.to_string(), read));
            Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new()))
        }
    });
    let builder = hyper::server::conn::http1::Builder::new();
    let serving = async move {
        if encoded {
            builder.serve_connection(TokioIo::new(Encoded::new(server)), service).await.ok();
        } else {
            builder.serve_connection(TokioIo::new(server), service).await.ok();
        }
    };
    let (mut answers, mut requesting) = tokio::io::split(client);
    let sending = async {
        // A server that has heard enough closes.
        requesting.write_all(&bytes).await.ok();
        requesting.shutdown().await.ok();
    };
    let receiving = async {
        answers.read_to_end(&mut Vec::new()).await.ok();
    };
    tokio::join!(serving, sending, receiving);
    std::mem::take(&mut *requests.lock())
}

/// A request whose target needs no change, with a body that looks like one whose target does.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::sample::select(vec![
        "",
        "{}",
        "GET /<{}> HTTP/1.1\r\n\r\n",
        "\r\n\r\nPUT /\"\"# HTTP/1.1\r\n\r\n",
        "{\n\n {<} {>}",
    ]);
    let other = prop::sample::select(vec![
        "",
        "Upgrade: websocket\r\nConnection: Upgrade\r\n",
        "Connection: keep-alive\r\n",
        "X: Content-Length: 5\r\n",
        "Expect: 100-continue\r\n",
    ]);
    (prop::sample::select(vec!["GET", "POST"]), body, other, 0..14).prop_map(|(method, body, other, form)| {
        let length = body.len();
        let framing = match form {
            0 => String::new(),
            1 => format!("Content-Length: {}{length}\r\n", "0".repeat(70)),
            2 => format!("Content-Length:{}{length}\r\n", " ".repeat(47)),
            3 => format!("Content-Length:{}{length}\r\n", "\t".repeat(100)),
            4 => format!("content-length: {length}\r\nCONTENT-LENGTH: {length}\r\n"),
            5 => format!("Content-Length: {length}, {length}\r\n"),
            6 => format!("Content-Length: {length}   \r\n"),
            7 => format!("Content-Length: {length}\n"),
            8 => format!("Content-Length: +{length}\r\n"),
            9 => "Transfer-Encoding: chunked\r\n".to_owned(),
            10 => format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
            11 => format!("Content-Length: {}\r\n", length + 3),
            _ => format!("Content-Length: {length}\r\n"),
        };
        let body = if (9..=10).contains(&form) && length > 0 {
            format!("{length:x}\r\n{body}\r\n0\r\n\r\n")
        } else if (9..=10).contains(&form) {
            "0\r\n\r\n".to_owned()
        } else {
            body.to_owned()
        };
        format!("{method} /a?b=c HTTP/1.1\r\nHost: h\r\n{other}{framing}\r\n{body}").into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Where requests begin and end is for our HTTP library to say, and it says the same: nothing that it takes for a body
    /// is touched, however its length is written.
    #[test]
    fn bodies_are_what_they_were(requests in prop::collection::vec(request(), 1..4), size in prop::sample::select(vec![7_usize, 64, 8192])) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bytes = requests.concat();
        let (plain, encoded) = runtime.block_on(async { (seen(bytes.clone(), false, size).await, seen(bytes, true, size).await) });
        // More of them, where what stands in no body is a request that is none without being encoded.
        let told = |all: &[(String, String, Vec<u8>)]| all.iter().map(|(method, _, body)| (method.clone(), body.clone())).collect::<Vec<_>>();
        prop_assert!(told(&encoded).starts_with(&told(&plain)), "{:?}\n{:?}", plain, encoded);
        for (_, _, body) in &encoded {
            prop_assert!(!body.contains(&b'%'), "{:?}", encoded);
        }
    }
}
