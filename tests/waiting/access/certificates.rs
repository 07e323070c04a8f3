//! Clients with certificates: the user is the common name, and what cannot be answered here is refused.

use std::path::{Path, PathBuf};

use base64::Engine;
use http::Method;
use informerd::apiserver::client::ConfigSource;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SigningKey};
use tempfile::TempDir;

use crate::access::rights::{binding, group};
use crate::access::streams::error;
use crate::access::world::World;
use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::support::metrics::only;
use crate::support::{eventually, file, until};

pub(super) struct Authority {
    key: KeyPair,
    params: CertificateParams,
    pub pem: String,
    directory: TempDir,
    /// The file of its own certificate.
    pub bundle: PathBuf,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let directory = tempfile::tempdir().unwrap();
        let bundle = file(directory.path(), "ca.crt", &pem);
        Self { key, params, pem, directory, bundle }
    }

    /// The files of a certificate and its key.
    pub(super) fn issue(&self, user: &str, groups: &[&str]) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        // A name of each kind is all that the library writes: the second organization is made of a unit.
        for (group, kind) in groups.iter().zip([DnType::OrganizationName, DnType::OrganizationalUnitName]) {
            params.distinguished_name.push(kind, *group);
        }
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let certificate = self.without_units(certificate.der());
        let text = base64::engine::general_purpose::STANDARD.encode(certificate);
        let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let write = |kind: &str, text: String| file(self.directory.path(), &format!("{user}.{kind}"), text);
        (write("crt", text), write("key", key.serialize_pem()))
    }

    /// The certificate with organizations for organizational units, signed anew.
    fn without_units(&self, der: &[u8]) -> Vec<u8> {
        let end = |at: usize| match der[at + 1] {
            0x82 => at + 4 + usize::from(u16::from_be_bytes([der[at + 2], der[at + 3]])),
            0x81 => at + 3 + usize::from(der[at + 2]),
            short => at + 2 + usize::from(short),
        };
        assert_eq!(der[1], 0x82, "two bytes of length");
        let (mut to_be_signed, algorithm) = (der[4..end(4)].to_vec(), &der[end(4)..end(end(4))]);
        for at in 0..to_be_signed.len() - 5 {
            if to_be_signed[at..at + 5] == [6, 3, 0x55, 4, 11] {
                to_be_signed[at + 4] = 10;
            }
        }
        let signature = self.key.sign(&to_be_signed).unwrap();
        let length = u8::try_from(signature.len() + 1).unwrap();
        assert!(length < 0x80);
        let content = [&to_be_signed, algorithm, &[3, length, 0], &signature].concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82], &length[..], &content].concat()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_ca_in_a_file() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let yaml =
        format!("authentication: {{clientCa: {}, ttl: 1s}}\nconsistentReads: cache\n", authority.bundle.display());
    let world = World::warmed(&yaml, &["/api/v1/configmaps", "/api/v1/pods"]).await;
    let (reader, direct) = (authority.issue("reader", &[]), world.direct(Some("reader-token")));
    let through = world.certified(&reader, None);
    for target in [
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/namespaces/a/pods/one?resourceVersion=0",
        "/apis/apps/v1/deployments?resourceVersion=0",
        "/api/v1/namespaces/a/secrets/s?resourceVersion=0",
    ] {
        let (ours, theirs) = (through.get(target).await, direct.get(target).await);
        assert_eq!(ours.status, theirs.status, "{target}");
        if ours.status == 403 {
            assert_eq!(ours.text(), theirs.text(), "{target}");
        }
    }
    // Its groups count: the binding of this one is a group's.
    world.cluster.apply(&binding("a", "team", ("ClusterRole", "wide"), &[group("team")])).await;
    let member = world.certified(&authority.issue("somebody", &["team"]), None);
    world.allowed(&member, "/api/v1/namespaces/a/configmaps?resourceVersion=0").await;
    assert_eq!(member.get("/api/v1/namespaces/b/configmaps?resourceVersion=0").await.status, 403);

    // All of them, as the apiserver reads them.
    world.cluster.apply(&binding("b", "crew", ("ClusterRole", "wide"), &[group("crew")])).await;
    let member = world.certified(&authority.issue("another", &["team", "crew"]), None);
    for namespace in ["a", "b"] {
        world.allowed(&member, &format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0")).await;
    }

    // Nothing is forwarded: neither in our name, nor in that of a token which is somebody else's.
    for client in [&through, &world.certified(&reader, Some("admin-token"))] {
        for (method, target) in [
            (Method::GET, "/version"),
            (Method::GET, "/api/v1/namespaces/a/pods/one/log"),
            (Method::POST, "/api/v1/namespaces/a/configmaps"),
            (Method::GET, "/api/v1/configmaps?limit=x"),
        ] {
            let answer = client.request(method, target, &[], "").await;
            assert_eq!(answer.status, 403, "{target}");
            assert!(answer.text().contains("a client certificate ends here"), "{}", answer.text());
        }
        let answer = client.request(Method::GET, "/api/v1/configmaps", &[("impersonate-user", "admin")], "").await;
        assert_eq!(answer.status, 403);
    }
    // Of another authority it is worth nothing, and a token beside it decides.
    let foreign = other.issue("admin", &["system:masters"]);
    let target = "/api/v1/configmaps?resourceVersion=0";
    let answer = world.certified(&foreign, None).get(target).await;
    assert_eq!((answer.status.as_u16(), answer.json()["message"].as_str()), (401, Some("Unauthorized")));
    assert_eq!(world.certified(&foreign, Some("nobody-token")).get(target).await.status, 403);
    assert_eq!(world.certified(&foreign, Some("reader-token")).get(target).await.status, 200);
    assert_eq!(world.through(None).get(target).await.status, 401);

    // Another bundle counts for connections that are open.
    let mut watch = through.watch("/api/v1/configmaps?watch=1&resourceVersion=0").await;
    assert_eq!(watch.status, 200);
    std::fs::write(&authority.bundle, &other.pem).unwrap();
    let status = error(&mut watch).await;
    assert_eq!(status["code"], 401, "{status}");
    assert_eq!(through.get(target).await.status, 401);
    assert_eq!(world.certified(&foreign, None).get(target).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_clusters_ca() {
    let world = World::start("authentication: {clientCa: cluster}\n").await;
    world.warm(&["/api/v1/configmaps"]).await;
    let Cluster { info, .. } = &world.cluster;
    let of = |base: &str, ca: &Path| Client::tls_certificate(base, ca, &info.client_cert, &info.client_key, None);
    let (through, direct) = (of(&world.daemon.url, &world.ca), of(&info.server, &info.ca));
    let target = "/api/v1/configmaps?resourceVersion=0";
    let before = world.served();
    // The bundle is read when the apiserver is there.
    until("the bundle is read", async || through.get(target).await.status != 503).await;
    assert_eq!(
        (through.get(target).await.status, direct.get(target).await.status.as_u16()),
        (http::StatusCode::OK, 200)
    );
    eventually("it is served from the cache", || world.served() > before).await;

    // Nobody else can show its certificate. So what must be the newest is proved here, where others are forwarded.
    for target in [
        "/api/v1/configmaps",
        "/api/v1/namespaces/a/configmaps/one",
        "/api/v1/namespaces/a/configmaps?limit=1",
        "/api/v1/namespaces/b/pods",
    ] {
        let before = world.served();
        let (ours, theirs) = (through.get(target).await, direct.get(target).await);
        assert_eq!((ours.status.as_u16(), theirs.status.as_u16()), (200, 200), "{target}: {}", ours.text());
        assert_eq!(ours.json()["items"], theirs.json()["items"], "{target}");
        assert!(world.served() > before, "{target}");
    }
    for n in 0..10 {
        world.create("a", &format!("new-{n}")).await;
        assert_eq!(
            through.get(&format!("/api/v1/namespaces/a/configmaps/new-{n}")).await.status,
            200,
            "it is the newest"
        );
    }
    let initial = "watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    assert_eq!(through.watch(&format!("/api/v1/configmaps?{initial}")).await.status, 200);

    // Another authority joins the bundle.
    let other = Authority::new("other");
    let reader = world.certified(&other.issue("reader", &[]), None);
    assert_eq!(reader.get(target).await.status, 401);
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let mut bundle = world.admin().json(path).await;
    let joined = format!("{}{}", bundle["data"]["client-ca-file"].as_str().unwrap(), other.pem);
    bundle["data"]["client-ca-file"] = joined.into();
    world.admin().write(Method::PUT, path, &bundle).await;
    until("it is trusted", async || reader.get(target).await.status == 200).await;
}

/// As another library reads it: from when and until when the first certificate of a file is valid.
fn validity(path: &Path) -> [f64; 2] {
    let script = "import ssl, sys\nc = ssl._ssl._test_decode_cert(sys.argv[1])\n\
                  print(*(ssl.cert_time_to_seconds(c[k]) for k in ('notBefore', 'notAfter')))";
    let output = crate::support::tied::blocking("python3").args(["-c", script]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let times: Vec<f64> = text.split_whitespace().map(|time| time.parse().unwrap()).collect();
    times.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_until_when_certificates_are_valid_and_what_was_decided() {
    let cluster = Cluster::start().await;
    let source = ConfigSource::kubeconfig(&cluster.info.kubeconfigs.admin_cert);
    let world = World::between(cluster, source, "").await;
    world.settled().await;
    let known = async |certificate: &str| {
        let (text, label) = (world.daemon.admin().metrics().await, format!("{{certificate=\"{certificate}\"}}"));
        ["not_before", "expiration"]
            .map(|what| only(&text, &format!("informerd_certificate_{what}_timestamp_seconds"), &[&label]))
    };
    assert_eq!(known("client").await, validity(&world.cluster.info.client_cert));
    assert_eq!(known("apiserver_ca").await, validity(&world.cluster.info.ca));
    assert_eq!(known("serving_ca").await, validity(&world.ca));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let [from, until] = known("serving").await;
    assert!(from < now && (89.0..92.0).contains(&((until - now) / 86_400.0)), "{from} {until}");

    // Rights: what is decided, and what the decisions cost.
    let counts = async || {
        let text = world.daemon.admin().metrics().await;
        ["allowed", "denied", "unauthenticated", "token_reviews", "access_reviews", "settlings", "review_seconds"]
            .map(|name| only(&text, &format!("informerd_auth_{name}_total"), &[]))
    };
    let before = counts().await;
    let (reader, nobody) = (world.through(Some("reader-token")), world.through(Some("nobody-token")));
    for _ in 0..3 {
        assert_eq!(reader.get("/api/v1/configmaps?resourceVersion=0").await.status, 200);
        assert_eq!(nobody.get("/api/v1/configmaps?resourceVersion=0").await.status, 403);
    }
    assert_eq!(world.through(Some("no-token")).get("/api/v1/configmaps?resourceVersion=0").await.status, 401);
    let after = counts().await;
    let more: Vec<_> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    // Three tokens and two rights were asked about. Each right may be asked about once more whenever rights settle.
    assert_eq!(more[..4], [3.0, 3.0, 1.0, 3.0]);
    assert!((2.0..=2.0 + 2.0 * more[5]).contains(&more[4]), "{more:?}");
    assert!(more[6] > 0.0 && more[6] < 60.0, "{more:?}");
}
