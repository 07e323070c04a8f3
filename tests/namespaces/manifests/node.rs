//! The certificates of node agents: one for each node, by a CA that no node has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::delegated::{World, signer};
use super::isolated::HOST_IP;
use super::objects;
use super::sidecar::create_pod_as;
use crate::support::client::{Answer, Client};
use crate::support::until;

const NAMESPACE: &str = "informerd-node-agent";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const OTHER_IP: &str = "10.0.0.8";
/// Of the requests that come at once.
const CROWD: usize = 10;

pub(super) async fn each_has_a_certificate_for_its_node_alone() {
    let mut world = World::start("node-agent").await;
    let second = signer(&world.cluster, 8005).await;
    world.signers.push(second);
    objects::create_node(&world.cluster, "node-2", OTHER_IP).await;
    create_pod_as(&world.cluster, NAMESPACE, "thief", "informerd", "node-2").await;
    let thief = agent(&world, &["--bound-object-kind=Pod", "--bound-object-name=thief"]).await;
    let unbound = agent(&world, &[]).await;

    // Whoever has the agent of another node gets no certificate for this one, nor one for any name of a Service.
    for (who, name, why) in [
        (&thief, HOST_IP, "no address of node node-2"),
        (&thief, "127.0.0.1", "no node has alone"),
        (&thief, "informerd.informerd-node-agent.svc", "is no address"),
        (&unbound, HOST_IP, "not bound"),
    ] {
        let request = settled(who, &create(who, name, "server auth").await).await;
        let condition = &request["status"]["conditions"][0];
        assert_eq!(condition["type"], "Denied", "{name}: {request}");
        assert!(condition["message"].as_str().unwrap().contains(why), "{condition}");
        assert!(request["status"]["certificate"].is_null(), "{request}");
    }
    // What somebody approves by hand is not signed either.
    let name = create(&thief, OTHER_IP, "client auth").await;
    world.cluster.kubectl(world.cluster.admin(), ["certificate", "approve", &name]).await;
    let request = settled(&thief, &name).await;
    assert!(request["status"]["certificate"].is_null(), "{request}");

    // Two replicas see all of them at once: each is decided once.
    let crowd = futures_util::future::join_all((0..CROWD).map(|_| create(&thief, OTHER_IP, "server auth"))).await;
    for name in crowd {
        let request = settled(&thief, &name).await;
        let conditions = request["status"]["conditions"].as_array().unwrap();
        assert!(conditions.len() == 1 && conditions[0]["type"] == "Approved", "{request}");
        assert!(request["status"]["certificate"].is_string(), "{request}");
    }
    large_ones_stop_nobody(&world, &thief).await;
    may_what_it_must(&world).await;
    is_renewed(&world).await;
}

/// Whoever has the agent of one node fills the list with requests that are as large as the apiserver takes them, among them one to
/// which not even a denial can be written.
async fn large_ones_stop_nobody(world: &World, thief: &Client) {
    // Their names come before all others: a page of them alone would have 40 MB.
    for _ in 0..22 {
        let answer = make(thief, "aaa-", &padded(1_540_000), "server auth").await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    // What etcd takes, and some bytes less.
    let mut size = 1_572_864;
    while make(thief, "aab-", &padded(size), "server auth").await.status != 201 {
        size -= 128;
        assert!(size > 1_560_000, "no such request is taken");
    }
    create_pod_as(&world.cluster, NAMESPACE, "honest", "informerd", "node-2").await;
    let honest = agent(world, &["--bound-object-kind=Pod", "--bound-object-name=honest"]).await;
    for _ in 0..3 {
        let request = settled(&honest, &create(&honest, OTHER_IP, "server auth").await).await;
        assert!(request["status"]["certificate"].is_string(), "{request}");
    }
}

/// A client does not notice that certificates come and go.
async fn is_renewed(world: &World) {
    let ca = world.clients.volume("account").join("ca.crt");
    let first = received(world);
    until("another certificate is received", async || {
        // A connection of its own, so a handshake of its own.
        let client = Client::tls(world.served(), &ca, &world.token());
        assert_eq!(client.get("/api/v1/namespaces/informerd-client/pods?resourceVersion=0").await.status, 200);
        received(world) > first
    })
    .await;
    let port = world.served().rsplit_once(':').unwrap().1;
    let wrong = Client::tls(&format!("https://localhost:{port}"), &ca, &world.token());
    assert!(wrong.try_get("/version").await.is_err(), "it is for the node's address alone");
}

fn received(world: &World) -> usize {
    world.daemon.log().matches("serving certificate received").count()
}

/// No agent can sign, and the signer signs nothing else.
async fn may_what_it_must(world: &World) {
    const SIGNER: &str = "informerd.io/node-serving";
    let admin = Client::tls(&world.cluster.info.server, &world.cluster.info.ca, "admin-token");
    for (account, verb, group, resource, name, may) in [
        ("informerd", "create", "certificates.k8s.io", "certificatesigningrequests", "", true),
        ("informerd", "list", "certificates.k8s.io", "certificatesigningrequests", "", false),
        ("informerd", "update", "certificates.k8s.io", "certificatesigningrequests/approval", "", false),
        ("informerd", "update", "certificates.k8s.io", "certificatesigningrequests/status", "", false),
        ("informerd", "sign", "certificates.k8s.io", "signers", SIGNER, false),
        ("informerd", "get", "", "secrets", "informerd-ca", false),
        ("informerd", "update", "", "configmaps", "informerd-ca", false),
        ("informerd-signer", "sign", "certificates.k8s.io", "signers", SIGNER, true),
        ("informerd-signer", "sign", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client", false),
        ("informerd-signer", "approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving", false),
        ("informerd-signer", "create", "certificates.k8s.io", "certificatesigningrequests", "", false),
        ("informerd-signer", "get", "", "secrets", "informerd-ca", true),
        ("informerd-signer", "get", "", "secrets", "other", false),
        ("informerd-signer", "list", "", "pods", "", false),
        ("informerd-signer", "create", "authentication.k8s.io", "tokenreviews", "", false),
    ] {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": format!("system:serviceaccount:{NAMESPACE}:{account}"),
            "resourceAttributes": {"namespace": NAMESPACE, "verb": verb, "group": group, "resource": resource,
                "subresource": subresource, "name": name}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = admin.write(Method::POST, path, &review).await;
        assert_eq!(answer["status"]["allowed"], may, "{account} {verb} {resource} {name}");
    }
}

/// The apiserver, to whoever has a token of the agents' account.
async fn agent(world: &World, bound: &[&str]) -> Client {
    let args = [&["create", "token", "informerd", "--namespace", NAMESPACE], bound].concat();
    let token = world.cluster.kubectl_ok(args).await;
    Client::tls(&world.cluster.info.server, &world.cluster.info.ca, token.trim())
}

/// Asks for a certificate and returns the request's name.
async fn create(who: &Client, name: &str, usage: &str) -> String {
    let answer = make(who, "test-", &pem(name), usage).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["metadata"]["name"].as_str().unwrap().to_owned()
}

fn pem(name: &str) -> String {
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

/// A request of this many bytes. What stands before its first line is nothing to PEM.
fn padded(size: usize) -> String {
    let pem = pem(OTHER_IP);
    format!("{}\n{pem}", "x".repeat(size - pem.len() - 1))
}

async fn make(who: &Client, prefix: &str, pem: &str, usage: &str) -> Answer {
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": prefix},
        "spec": {"signerName": "informerd.io/node-serving", "request": STANDARD.encode(pem),
            "usages": ["digital signature", usage]},
    });
    who.request(Method::POST, REQUESTS, &[("content-type", "application/json")], &body.to_string()).await
}

/// The request, once it is signed or never will be.
async fn settled(who: &Client, name: &str) -> Value {
    let mut request = Value::Null;
    until(&format!("somebody decides {name}"), async || {
        request = who.json(&format!("{REQUESTS}/{name}")).await;
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let refused = conditions.iter().any(|condition| condition["type"] == "Denied" || condition["type"] == "Failed");
        refused || request["status"]["certificate"].is_string()
    })
    .await;
    request
}
