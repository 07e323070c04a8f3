//! Requests that two servers could read differently: whatever the listener makes of one, nobody reads by it what the
//! apiserver would not have shown, and what is forwarded is what was decided about.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::access::wire::{Socket, all_of, codes, connect, direct, raw};
use crate::access::world::World;
use crate::support::within;

const TARGET: &str = "/api/v1/configmaps?resourceVersion=0";

#[tokio::test(flavor = "multi_thread")]
async fn targets_of_every_kind() {
    let collections = ["/api/v1/configmaps", "/api/v1/pods"];
    let world = World::warmed("consistentReads: cache\n", &collections).await;
    let space = world.token("space", &[]).await;
    for target in [
        &b"/api/v1/namespaces/b/configmaps?resourceVersion=0"[..],
        b"/api/v1/namespaces/a/../b/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/a%2F..%2Fb/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/a%2f%2e%2e%2fb/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/a/./configmaps?resourceVersion=0",
        b"/api/v1//namespaces/b/configmaps?resourceVersion=0",
        b"/api//v1/namespaces/b/configmaps?resourceVersion=0",
        b"///api/v1/namespaces/b/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/b/configmaps/?resourceVersion=0",
        b"/api/v1/namespaces/b/configmaps%00?resourceVersion=0",
        b"/api/v1/namespaces/b%00/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/b/configmaps%0d%0aX-Remote-User:%20admin?resourceVersion=0",
        b"/api/v1/namespaces/b/configmaps#/api/v1/namespaces/a/configmaps",
        b"/api/v1/namespaces/a/configmaps#?resourceVersion=0",
        b"/api/v1/namespaces/a/configmaps?resourceVersion=0#/../b",
        // Forwarded.
        b"/version#/../api/v1/configmaps",
        b"/api/v1/namespaces/b/secrets#/../../a/configmaps",
        b"/api/v1/namespaces/a/configmaps;x?resourceVersion=0",
        b"/api/v1/namespaces/a/configmaps?resourceVersion=0;watch=1",
        b"/api/v1/namespaces/b\\..\\a/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/b/configmaps?resourceVersion=0&fieldSelector=metadata.name=one&fieldSelector=metadata.name=two",
        b"/api/v1/namespaces/\xc3\xa9/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/\xff\xfe/configmaps?resourceVersion=0",
        b"/api/v1/namespaces/b/configmaps?resourceVersion=0&x=\xc3\xa9<>\"{}|^`",
        b"https://localhost/api/v1/namespaces/b/configmaps?resourceVersion=0",
        b"https://elsewhere.example.com/api/v1/namespaces/b/configmaps?resourceVersion=0",
        b"api/v1/namespaces/b/configmaps",
        b"/api/v1/namespaces/b/configmaps HTTP/1.1\r\nX-A: /x",
    ] {
        for token in [space.as_str(), "nobody-token"] {
            let head = format!("HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
            let request = [b"GET ", target, b" ", head.as_bytes()].concat();
            // Our HTTP library drops what follows a `#`: the rest is what is decided about.
            let plain = target.split(|byte| *byte == b'#').next().unwrap();
            let plain = [b"GET ", plain, b" ", head.as_bytes()].concat();
            let (ours, theirs) = (raw(&world, &request).await, direct(&world, &plain).await);
            let what = String::from_utf8_lossy(target).into_owned();
            assert!(!codes(&ours).contains(&"200") || codes(&theirs) == ["200"], "{what}\n{ours}\n{theirs}");
            // The one that is written so that its end is uncertain may be refused sooner by either.
            if codes(&ours) != codes(&theirs) {
                assert!(["400", "404"].contains(&codes(&ours)[0]), "{what}\n{ours}\n{theirs}");
                eprintln!("{what}: {:?} instead of {:?}", codes(&ours), codes(&theirs));
            }
            if codes(&ours) == ["200"] {
                let namespace = |answer: &str| answer.contains(r#""namespace":"b""#);
                assert!(!namespace(&ours), "{what}\n{ours}");
            }
        }
    }
    // No byte that ends a line or a word gets into a target.
    for target in [
        &b"/api/v1/configmaps\x00"[..],
        b"/api/v1/config\rmaps",
        b"/api/v1/configmaps\x7f",
        b"/api/v1/config maps",
        b"*",
    ] {
        let request = [
            b"GET ",
            target,
            b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody-token\r\nConnection: close\r\n\r\n",
        ]
        .concat();
        let answer = raw(&world, &request).await;
        assert!(!codes(&answer).contains(&"200"), "{target:?}: {answer}");
    }
}

/// A length that is written in a way that could be cut or read differently, with a second request in the body: the
/// hidden one would be allowed.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_stay_bodies() {
    let world = World::warmed("consistentReads: cache\n", &["/api/v1/configmaps"]).await;
    let hidden = format!(
        "GET {TARGET} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin-token\r\nConnection: close\r\n\r\n"
    );
    let length = hidden.len();
    for (what, head) in [
        ("both lengths", format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n")),
        ("both lengths, the other way", format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n")),
        ("two lengths", format!("Content-Length: 0\r\nContent-Length: {length}\r\n")),
        ("a list of lengths", format!("Content-Length: 0, {length}\r\n")),
        ("a signed length", format!("Content-Length: +{length}\r\n")),
        ("an unknown coding", "Transfer-Encoding: chunked, identity\r\n".to_owned()),
        ("a coding with a blank", "Transfer-Encoding : chunked\r\n".to_owned()),
        ("a tab for a coding", "Transfer-Encoding:\x0bchunked\r\n".to_owned()),
        ("leading zeros", format!("Content-Length: {}{length}\r\n", "0".repeat(80))),
        ("leading blanks", format!("Content-Length: {}{length}\r\n", " ".repeat(60))),
        ("a long number", format!("Content-Length: {}\r\n", "9".repeat(80))),
        ("negative", format!("Content-Length: -{length}\r\n")),
        ("hexadecimal", format!("Content-Length: 0x{length:x}\r\n")),
        ("a folded line", format!("Content-Length: 0\r\n {length}\r\n")),
        ("a line of blanks", format!("X: y\r\n \r\nContent-Length: {length}\r\n")),
        ("a bare line feed", format!("X: y\nContent-Length: {length}\n")),
        ("a bare carriage return", format!("X: y\rContent-Length: {length}\r\n")),
        ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned()),
        ("chunked in capitals and a length", format!("TRANSFER-ENCODING: CHUNKED\r\nContent-Length: {length}\r\n")),
        ("an encoding nobody knows", format!("Transfer-Encoding: xchunked\r\nContent-Length: {length}\r\n")),
        (
            "an upgrade with a body",
            format!("Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: {length}\r\n"),
        ),
        ("expected", format!("Expect: 100-continue\r\nContent-Length: {length}\r\n")),
    ] {
        for method in ["POST", "GET"] {
            let path = "/api/v1/namespaces/a/configmaps";
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody-token\r\n{head}\r\n{hidden}"
            );
            let mut stream = connect(&world.daemon.url, &world.ca).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            // A server that waits for more of the body is told that there is none.
            stream.shutdown().await.ok();
            let answers = all_of(stream, "").await;
            assert!(!codes(&answers).contains(&"200"), "{what} {method}: {answers}");
            assert!(!answers.contains("ConfigMapList"), "{what} {method}: {answers}");
        }
    }
}

/// Whose request it is cannot be taken away or hidden by its other headers.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_slips_by_as_somebody_else() {
    let yaml = "authentication: {anonymous: forward, node: node-x}\nconsistentReads: cache\n";
    let world = World::warmed(yaml, &["/api/v1/configmaps"]).await;
    // A token of no node is worth nothing here, however it is written.
    let encoded = "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4";
    for (what, headers) in [
        ("plain", &b"Authorization: Bearer admin-token\r\n"[..]),
        ("bytes behind it", b"Authorization: Bearer admin-token \xff\r\n"),
        ("more words", b"Authorization: Bearer admin-token \xc3\xa9 x\r\n"),
        ("a wide blank", b"Authorization: Bearer admin-token\xc2\xa0\r\n"),
        ("another scheme first", b"Authorization: Basic eDp5\r\nAuthorization: Bearer admin-token\r\n"),
        ("another scheme", b"Authorization: Basic eDp5\r\n"),
        ("dropped by the connection", b"Connection: authorization\r\nAuthorization: Bearer admin-token\r\n"),
    ] {
        for target in [TARGET, "/version", "/api/v1/namespaces/a/pods/one/log"] {
            let request = [
                format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").as_bytes(),
                headers,
                b"\r\n",
            ]
            .concat();
            let answer = raw(&world, &request).await;
            assert_eq!(codes(&answer), ["401"], "{what}: {target}: {answer}");
        }
    }
    for protocols in [
        format!("{encoded}, v4"),
        format!("v4, {encoded}"),
        encoded.to_owned(),
        format!("{}x, v4", &encoded[..encoded.len() - 1]),
    ] {
        let protocols = format!("Sec-WebSocket-Protocol: {protocols}\r\n");
        let socket = Socket::open(&world, None, &protocols, "/api/v1/configmaps?watch=1&timeoutSeconds=1").await;
        assert_eq!(socket.status, 401, "{protocols}");
    }
    // Anonymous it may be, and is refused by the apiserver.
    let answer = raw(&world, format!("GET {TARGET} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await;
    assert_eq!(codes(&answer), ["403"], "{answer}");
    assert!(answer.contains("system:anonymous"), "{answer}");
}

/// What the apiserver answers to everybody makes nobody known, whatever the request seems to have.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_becomes_known_by_what_everybody_gets() {
    let token = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA";
    for (anonymous, unseen) in [("refuse", "401"), ("forward", "200")] {
        let world = World::start(&format!("authentication: {{anonymous: {anonymous}}}\n")).await;
        let newcomers = || world.daemon.daemon.http.newcomers_open.get();
        for (headers, wanted) in [
            (String::new(), unseen),
            // The apiserver would not see these tokens.
            (format!("Upgrade: x\r\n{token}\r\n"), unseen),
            (format!("Upgrade: websocket\r\n{token}, v4\r\n"), unseen),
            (format!("Connection: Upgrade\r\n{token}, v4\r\n"), unseen),
            (format!("Connection: Upgrade\r\nUpgrade: x\r\n{token}, v4\r\n"), unseen),
            // It refuses these.
            (format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{token}, v4\r\n"), "401"),
            (format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{token}\r\n"), "401"),
            (format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{token}\r\n{token}, v4\r\n"), "401"),
            (format!("Connection: Upgrade, Sec-WebSocket-Protocol\r\nUpgrade: websocket\r\n{token}, v4\r\n"), "401"),
            ("Authorization: Bearer x\r\n".to_owned(), "401"),
        ] {
            let mut stream = connect(&world.daemon.url, &world.ca).await;
            let request = format!("GET /version HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = vec![0; 4096];
            let read = within("an answer", stream.read(&mut answer)).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert_eq!(codes(&answer), [wanted], "{anonymous}: {headers}: {answer}");
            // An upgrade that is refused ends its connection.
            let ends = answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
            assert!(ends || newcomers() == 1, "{anonymous}: {headers}: {answer}");
            drop(stream);
            crate::support::eventually("it is gone", || newcomers() == 0).await;
        }
        // Over HTTP/2, too.
        let client = world.through(None);
        assert_eq!(client.get("/version").await.status.as_str(), unseen);
        assert!(anonymous == "refuse" || newcomers() == 1, "{anonymous}");
    }
}

/// What Go's server says in the clear to whoever does not speak TLS.
#[tokio::test(flavor = "multi_thread")]
async fn http_without_tls_is_told_so() {
    let world = World::start("").await;
    for request in
        ["GET /api HTTP/1.1\r\nHost: x\r\n\r\n", "PUT /api HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
    {
        let (ours, theirs) =
            (in_the_clear(&world.daemon.url, request), in_the_clear(&world.cluster.info.server, request));
        let (ours, theirs) = tokio::join!(ours, theirs);
        assert!(theirs.starts_with("HTTP/1.0 400 "), "{theirs}");
        assert_eq!(ours, theirs);
    }
}

async fn in_the_clear(url: &str, request: &str) -> String {
    all_of(TcpStream::connect(url.strip_prefix("https://").unwrap()).await.unwrap(), request).await
}
