use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use informerd_injection::{INJECT, InjectionConfig, SIDECAR_CONFIG};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use super::*;
use crate::apiserver::testing::{Certificates, FakeServer, answer};
use crate::app::inject::injector;
use crate::app::injector::{CONNECTIONS, listening};
use crate::auth::ClientCaSource;
use crate::http::{CertificateFiles, HttpConfig, HttpMetrics, Server};
use crate::lifecycle::{Fatal, drain, spawn};

fn config() -> InjectionConfig {
    InjectionConfig { image: "informerd".into(), tier: ("tier".into(), 443), node_port: 8643, excluded: Vec::new() }
}

/// A webhook that requires certificates of the CA of `certificates`, and what keeps it alive.
async fn webhook(certificates: &Certificates, directory: &Path) -> (SocketAddr, drain::Drain) {
    webhook_for(certificates, directory, true).await
}

/// `asks`: whether it requires certificates.
async fn webhook_for(certificates: &Certificates, directory: &Path, asks: bool) -> (SocketAddr, drain::Drain) {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = (file("tls.crt", &certificates.server.0), file("tls.key", &certificates.server.1));
    let ca = file("ca.crt", &certificates.ca);
    let mut http = HttpConfig::new(Vec::new(), directory.to_owned());
    http.tls.files = Some(CertificateFiles { certificate, key });
    http.tls.client_certificates = asks;
    let http = listening(http, "127.0.0.1:0".parse().unwrap(), asks);
    let server = Server::bind(http, Arc::<HttpMetrics>::default()).unwrap();
    let address = server.addresses()[0].to_string().rsplit_once('/').unwrap().1.parse().unwrap();
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let fatal = Fatal::new();
    let clients = asks.then(|| ClientCa::start(&ClientCaSource::File(ca), &upstream, &fatal).unwrap());
    let handler = Webhook::new(injector(config()).unwrap(), upstream, Arc::default(), clients);
    let (drain, watch) = drain::channel();
    server.serve(Arc::new(handler), &watch, &fatal).unwrap();
    (address, drain)
}

/// Sends a review over a new connection, with this certificate.
async fn send(
    address: SocketAddr,
    trusts: &Certificates,
    shows: Option<&(String, String)>,
    body: &str,
) -> (u16, String) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusts.ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = client.unwrap().with_root_certificates(roots);
    let client = match shows {
        None => client.with_no_client_auth(),
        Some((certificate, key)) => client
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    spawn("client", connection);
    let request = Request::post("/inject").header("host", "localhost").body(Full::new(Bytes::from(body.to_owned())));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

fn review(object: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "one", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
        "namespace": "a", "object": object}})
    .to_string()
}

/// A pod that is to have a sidecar with this configuration.
fn sidecar(config: &str) -> Value {
    let account = json!({"name": "account", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    let sources = json!([{"configMap": {"name": "kube-root-ca.crt"}}]);
    json!({"metadata": {"name": "a", "labels": {INJECT: "sidecar"}, "annotations": {SIDECAR_CONFIG: config}}, "spec": {
        "containers": [{"name": "a", "volumeMounts": [account]}],
        "volumes": [{"name": "account", "projected": {"sources": sources}}],
    }})
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_ca_are_answered() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let directory = tempfile::tempdir().unwrap();
    let (address, _drain) = webhook(&ours, directory.path()).await;
    let review = review(&json!({"metadata": {"name": "a"}, "spec": {}}));
    for (shows, status, words) in [
        (None, 401, "there is no client certificate"),
        (Some(&others.client), 401, "the client certificate is not valid"),
        // It is for servers.
        (Some(&ours.server), 401, "the client certificate is not valid"),
        (Some(&ours.client), 200, r#""allowed":true"#),
    ] {
        let (got, text) = send(address, &ours, shows, &review).await;
        assert!(got == status && text.contains(words), "{got}: {text}");
    }
}

/// A connection of the address that has the most is closed for a further one.
#[tokio::test]
async fn whoever_keeps_connections_keeps_no_others_out() {
    let ours = Certificates::new();
    let review = review(&json!({"metadata": {"name": "a"}, "spec": {}}));
    for asks in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (address, _drain) = webhook_for(&ours, directory.path(), asks).await;
        let shows = Some(&ours.client).filter(|_| asks);
        let mut held = Vec::new();
        for from in ["127.0.0.2:0", "127.0.0.3:0"] {
            for _ in 0..2 * CONNECTIONS {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(from.parse().unwrap()).unwrap();
                held.push(socket.connect(address).await.unwrap());
            }
            assert_eq!(send(address, &ours, shows, &review).await.0, 200, "{asks}: {from}");
        }
    }
}

#[tokio::test]
async fn a_review_that_would_take_too_much_memory_is_refused_and_others_are_answered() {
    let ours = Certificates::new();
    let directory = tempfile::tempdir().unwrap();
    let (address, _drain) = webhook(&ours, directory.path()).await;
    let small = review(&json!({"metadata": {"name": "a", "labels": {"informerd.io/inject": "yes"}}}));
    for (what, body) in [
        ("long", " ".repeat((2 << 20) + 1)),
        ("of many objects", format!("[{}]", vec![r#"{"":0}"#; 250_000].join(","))),
    ] {
        let (status, text) = send(address, &ours, Some(&ours.client), &body).await;
        assert!(status == 413 && text == "the review is too large\n", "{what}: {status} {text}");
        assert_eq!(send(address, &ours, Some(&ours.client), &small).await.0, 200, "{what}");
    }
    // What is wrong is told in short.
    for body in [json!({"kind": "\u{7f}".repeat(1 << 20)}), json!({"request": "x".repeat(1 << 20)})] {
        let (status, text) = send(address, &ours, Some(&ours.client), &body.to_string()).await;
        assert!(status == 400 && text.len() <= 257, "{status}: {} bytes", text.len());
    }
    // What the text of an annotation would become counts, too: the pod stays as it is.
    let words = "x ".repeat(20_000);
    for (config, told) in [
        (format!("allowedHosts: [&a '{words}', {}]", vec!["*a"; 1_500].join(", ")), "aliases are not accepted"),
        (
            format!("stateDir: &a '{words}'\nresources: [{}]", vec!["{*a : 1}"; 1_000].join(", ")),
            "aliases are not accepted",
        ),
        (format!("? '{}'\n: 1", "x".repeat(62_000)), "there is no such setting"),
    ] {
        let body = review(&sidecar(&config));
        let (status, text) = send(address, &ours, Some(&ours.client), &body).await;
        assert!(status == 200 && text.contains(told) && text.len() < 1024, "{told}: {status} {text}");
        assert_eq!(send(address, &ours, Some(&ours.client), &small).await.0, 200, "{told}");
    }
    let (_, text) = send(address, &ours, Some(&ours.client), &review(&sidecar("probes: 0.0.0.0:8003"))).await;
    assert!(text.contains(r#""patch":"#), "{text}");
    // A large pod is no reason to refuse it.
    let containers: Vec<_> = (0..200)
        .map(|n| json!({"name": format!("c{n}"), "env": vec![json!({"name": "A", "value": "x".repeat(100)}); 30]}))
        .collect();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": containers}});
    assert_eq!(send(address, &ours, Some(&ours.client), &review(&pod)).await.0, 200);
}

#[tokio::test]
async fn few_lookups_are_under_way_at_once() {
    let most = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&most);
    let server = FakeServer::plain(move |_, _| {
        let counted = Arc::clone(&counted);
        async move {
            let now = |change: isize| {
                let (now, most): &mut (isize, isize) = &mut counted.lock();
                *now += change;
                *most = (*most).max(*now);
            };
            now(1);
            tokio::time::sleep(Duration::from_millis(20)).await;
            now(-1);
            answer(200, r#"{"data":{"ca.crt":"x"}}"#)
        }
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let webhook = Webhook::new(injector(config()).unwrap(), upstream, Arc::default(), None);
    let namespaces: Vec<_> = (0..5 * MOST_LOOKUPS).map(|n| format!("a{n}")).collect();
    let lookups = namespaces.iter().map(|namespace| webhook.shared.has_ca(namespace, "informerd-ca"));
    let found = futures_util::future::join_all(lookups).await;
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert!((1..=MOST_LOOKUPS as isize).contains(&most.lock().1), "{most:?}");
}

#[tokio::test]
async fn who_cannot_be_changed_has_no_configuration_checked() {
    let check = |_: &str, _: &[(String, String)]| Err("it was checked".to_owned());
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let webhook = Webhook::new(Injector::new(config(), check).unwrap(), upstream, Arc::default(), None);
    let injector = webhook.shared.injector.load_full();
    let told = async |namespace: &str, key: &str, value: Value| {
        let annotations = [(SIDECAR_CONFIG.to_owned(), "threads: 1".to_owned())].into();
        let origin = Origin { namespace, default: Some(Mode::Sidecar), admitted: true };
        let asked = wanted(&Meta { annotations, ..Meta::default() }, &origin).unwrap().unwrap();
        let mut pod = sidecar("threads: 1");
        pod["spec"][key] = value;
        webhook.shared.change(&injector, &asked, &pod.to_string(), &origin).await.map(drop).unwrap_err()
    };
    for (namespace, key, value, why) in [
        ("a", "hostNetwork", json!(false), "it was checked"),
        ("a", "hostNetwork", json!(true), "in the network of its node"),
        ("a", "containers", json!(vec![json!({"name": "a"}); 257]), "257 containers"),
        ("kube-system", "hostNetwork", json!(false), "never changed"),
    ] {
        let told = told(namespace, key, value).await;
        assert!(told.contains(why), "{told}");
    }
}

#[tokio::test]
async fn configurations_are_checked_one_by_one_and_not_where_requests_are_answered() {
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    let check = |_: &str, _: &[(String, String)]| {
        let first = UNDER_WAY.fetch_add(1, SeqCst) == 0;
        let alone = (0..10_000).all(|_| {
            std::thread::yield_now();
            UNDER_WAY.load(SeqCst) == 1
        });
        UNDER_WAY.fetch_sub(1, SeqCst);
        Err(format!("{} {:?}", first && alone, std::thread::current().id()))
    };
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let webhook = Webhook::new(Injector::new(config(), check).unwrap(), upstream, Arc::default(), None);
    let annotations = [(SIDECAR_CONFIG.to_owned(), "threads: 1".to_owned())].into();
    let origin = Origin { namespace: "a", default: Some(Mode::Sidecar), admitted: true };
    let asked = wanted(&Meta { annotations, ..Meta::default() }, &origin).unwrap().unwrap();
    let injector = webhook.shared.injector.load_full();
    let checks = (0..8).map(|_| webhook.shared.check(&injector, &asked));
    let here = format!("{:?}", std::thread::current().id());
    for told in futures_util::future::join_all(checks).await {
        let why = told.unwrap_err();
        assert!(why.contains(": true ThreadId(") && !why.ends_with(&here), "{why}");
    }
}
