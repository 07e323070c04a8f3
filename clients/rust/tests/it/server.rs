use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use informerd_client::{Client, Error, Event, Find, Selected, Server};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::transport::{self, Identity, ServerTlsConfig};

use crate::fake::{Fake, script, snapshot_end, started};

/// A pod with a service account, as far as can be told from its files.
fn pod() -> (TempDir, Find) {
    let account = tempfile::tempdir().unwrap();
    fs::write(account.path().join("token"), "secret\n").unwrap();
    fs::write(account.path().join("ca.crt"), "a bundle").unwrap();
    let find = Find {
        address: None,
        ca_file: None,
        token_file: None,
        sidecar: "http://127.0.0.1:1".to_owned(),
        probe_timeout: Duration::from_millis(50),
        in_cluster: None,
        account: account.path().to_owned(),
    };
    (account, find)
}

fn named(find: &Find, address: &str) -> Find {
    Find { address: Some(address.to_owned()), ..find.clone() }
}

async fn synced(server: Server) -> Result<Event<Value>, Error> {
    let mut watch = Client::new(server).watch::<Value>("v1/pods", Selected::default());
    watch.next().await.unwrap()
}

#[tokio::test]
async fn who_is_named_gets_the_token_of_the_pod_where_it_is_safe() {
    let (_account, find) = pod();
    for (address, safe) in [
        ("http://127.0.0.1:8001", true),
        ("[::1]:8001", true),
        ("http://localhost:80", true),
        ("unix:///run/s", true),
        ("https://10.0.0.7:8643", true),
        ("http://10.0.0.7:8643", false),
        ("informerd:80", false),
        ("127.0.0.1.example.com:80", false),
    ] {
        let sent = named(&find, address).server().await.unwrap().authorization().unwrap();
        assert_eq!(sent.as_deref(), safe.then_some("Bearer secret"), "{address}");
        let given = Find { token_file: Some("token".into()), ..named(&find, address) };
        let refused = given.server().await.is_err_and(|error| error.to_string().contains("plain text"));
        assert_eq!(refused, !safe, "{address}");
    }
}

#[tokio::test]
async fn without_a_name_it_is_a_sidecar_that_gets_no_token() {
    let (_account, find) = pod();
    let outside = Find { account: PathBuf::from("/nowhere"), ..find.clone() };
    for find in [outside, find] {
        let found = find.server().await.unwrap();
        assert_eq!((found.address(), found.authorization().unwrap()), ("http://127.0.0.1:1", None));
    }
}

#[tokio::test]
async fn a_pod_that_is_led_to_informerd_goes_there() {
    let (account, find) = pod();
    let (ca, identity) = authority();
    fs::write(account.path().join("ca.crt"), ca).unwrap();
    let address = Fake::default().serve(secured(identity)).await;
    let (host, port) = address.split_once(':').unwrap();
    let in_cluster = Some((host.to_owned(), port.to_owned()));
    let found = Find { in_cluster, probe_timeout: Duration::from_secs(60), ..find }.server().await.unwrap();
    assert_eq!(found.address(), format!("https://{address}"));
    assert_eq!(found.authorization().unwrap().as_deref(), Some("Bearer secret"));
}

#[tokio::test]
async fn mistakes_are_told() {
    let (_account, find) = pod();
    for wrong in [
        "localhost",
        "https://localhost",
        "unix://x",
        "http://a:1/path",
        "http://a:1?q",
        "ftp://a:1",
        "http://:1",
        "http://a:x",
        "http://a:0",
        "a:70000",
        "http://user@a:1",
    ] {
        let error = named(&find, wrong).server().await.unwrap_err().to_string();
        assert!(error.contains("is no address"), "{error}");
    }
    assert!(named(&find, "off").server().await.unwrap_err().to_string().contains("off"));
}

#[tokio::test]
async fn the_token_is_read_for_every_stream() {
    let (account, find) = pod();
    let (fake, client) = Fake::watches([]).await;
    let server = named(&find, client.server().address()).server().await.unwrap();
    for token in ["one", "two"] {
        fs::write(account.path().join("token"), token).unwrap();
        fake.scripts([script([started(false), snapshot_end()])]);
        assert_eq!(synced(server.clone()).await.unwrap(), Event::Synced);
    }
    assert_eq!(*fake.tokens.lock().unwrap(), [Some("Bearer one".to_owned()), Some("Bearer two".to_owned())]);
}

#[tokio::test]
async fn a_socket_is_local() {
    let (account, find) = pod();
    let socket = account.path().join("socket");
    let fake = Fake::default();
    fake.scripts([script([started(false), snapshot_end()])]);
    fake.clone().serve_at(&socket).await;
    let address = format!("unix://{}", socket.display());
    assert_eq!(synced(named(&find, &address).server().await.unwrap()).await.unwrap(), Event::Synced);
    assert_eq!(*fake.tokens.lock().unwrap(), [Some("Bearer secret".to_owned())]);
}

#[tokio::test]
async fn only_an_informerd_that_is_ready_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert!(!Server::new(&address, None, None).unwrap().answers(Duration::from_millis(50)).await);
    let (fake, client) = Fake::watches([]).await;
    assert!(client.server().answers(Duration::from_secs(60)).await);
    fake.ready(false).await;
    assert!(!client.server().answers(Duration::from_secs(60)).await);
}

/// An authority, and who it vouches for at 127.0.0.1.
fn authority() -> (String, Identity) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = ca.self_signed(&ca_key).unwrap().pem();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
    (pem, Identity::from_pem(certificate, key.serialize_pem()))
}

fn secured(identity: Identity) -> transport::Server {
    transport::Server::builder().tls_config(ServerTlsConfig::new().identity(identity)).unwrap()
}

#[tokio::test]
async fn tls_is_verified_against_the_file_as_it_is_now() {
    let (account, find) = pod();
    let ((right, identity), (wrong, _)) = (authority(), authority());
    let fake = Fake::default();
    fake.scripts([script([started(false), snapshot_end()])]);
    let address = fake.clone().serve(secured(identity)).await;
    let server = named(&find, &format!("https://{address}")).server().await.unwrap();
    let file = account.path().join("ca.crt");
    fs::write(&file, wrong).unwrap();
    let mut watch = Client::new(server).watch::<Value>("v1/pods", Selected::default());
    assert!(tokio::time::timeout(Duration::from_millis(500), watch.next()).await.is_err());
    assert_eq!(*fake.tokens.lock().unwrap(), [], "a server that nobody vouches for was shown the token");
    fs::write(&file, right).unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), Event::Synced);
    assert_eq!(*fake.tokens.lock().unwrap(), [Some("Bearer secret".to_owned())]);
}
