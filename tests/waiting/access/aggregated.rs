//! An aggregated API server that shows each user its own things: through informerd, each gets its own as well.

use http::{Method, Request, Response};
use hyper::body::Incoming;
use informerd::apiserver::testing::{Body, answer, endless};
use informerd::grpc::pb::v1;
use informerd::meta::Status;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};

use crate::access::certificates::Authority;
use crate::access::rights::{account, binding, role, user};
use crate::access::streams::{error, work};
use crate::access::typed::{PERMISSION_DENIED, send, status, trailers};
use crate::access::world::{LISTEN, World};
use crate::cluster::Cluster;
use crate::support::client::{Client, Watch, names};
use crate::support::grpc::{list_of, watch_of};
use crate::support::serve::{acceptor, answering};
use crate::support::{Through, until, within};

const GROUP: &str = "own.example.com";
const THINGS: &str = "/apis/own.example.com/v1/things";
const FAILED_PRECONDITION: &str = "9";

/// Everybody may list on purpose: the server shows each user its own.
fn rights() -> String {
    let rule = json!({"apiGroups": [GROUP], "resources": ["things"], "verbs": ["get", "list", "watch"]});
    let subjects = [account("a", "space"), account("a", "wide"), user("certified")];
    role("", "things", &[rule]) + &binding("", "things", ("ClusterRole", "things"), &subjects)
}

fn thing(user: &str) -> Value {
    let name = user.rsplit(':').next().unwrap();
    let metadata = json!({"name": format!("of-{name}"), "uid": format!("uid-{name}"), "resourceVersion": "5"});
    json!({"apiVersion": "own.example.com/v1", "kind": "Thing", "metadata": metadata})
}

fn things(request: &Request<Incoming>) -> Response<Body> {
    let user = request.headers().get("x-remote-user").map_or("nobody", |user| user.to_str().unwrap()).to_owned();
    let query = request.uri().query().unwrap_or_default();
    match request.uri().path() {
        "/apis/own.example.com/v1" => {
            let things = json!({"name": "things", "singularName": "thing", "namespaced": false, "kind": "Thing", "verbs": ["get", "list", "watch"]});
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "own.example.com/v1", "resources": [things]});
            answer(200, list.to_string())
        }
        THINGS if query.contains("sendInitialEvents=true") => {
            answer(422, Status::failure(422, "Invalid", "sendInitialEvents is forbidden").to_json())
        }
        THINGS if query.contains("watch=") => {
            let kind = if query.contains("resourceVersion=5") { "MODIFIED" } else { "ADDED" };
            let mut event = json!({"type": kind, "object": thing(&user)});
            event["object"]["metadata"]["resourceVersion"] = "6".into();
            endless(vec![format!("{event}\n").into()])
        }
        THINGS => {
            let (items, metadata) = ([thing(&user)], json!({"resourceVersion": "5"}));
            let list =
                json!({"kind": "ThingList", "apiVersion": "own.example.com/v1", "metadata": metadata, "items": items});
            answer(200, list.to_string())
        }
        path if path.starts_with(THINGS) => answer(200, thing(&user).to_string()),
        _ => answer(404, Status::failure(404, "NotFound", "").to_json()),
    }
}

/// Starts the server, and returns its port.
async fn start() -> u16 {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = acceptor(made.cert.der().clone(), key);
    answering(Some(tls), |request| async move { things(&request) }).await.port()
}

/// Has the cluster pass requests on to the server.
async fn serve(cluster: &Cluster) {
    cluster.apply(&service(start().await)).await;
    cluster.apply(&rights()).await;
}

/// The server has this port.
fn service(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: things, namespace: default}}\nspec: {{type: ExternalName, externalName: localhost}}\n---\n\
         apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{GROUP}}}\n\
         spec: {{group: {GROUP}, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {{name: things, namespace: default, port: {port}}}}}\n"
    )
}

/// The name in the first event.
async fn first(mut watch: Watch) -> String {
    assert_eq!(watch.status, 200);
    watch.next().await.unwrap().unwrap()["object"]["metadata"]["name"].as_str().unwrap().to_owned()
}

fn all(group: &str, version: &str) -> v1::Selection {
    let resource = Some(v1::Resource { group: group.into(), version: version.into(), resource: "things".into() });
    v1::Selection { resource, ..Default::default() }
}

fn list() -> v1::ListRequest {
    list_of(all(GROUP, "v1"))
}

async fn until_listed(client: &Client, name: &str) {
    until(&format!("{name} is listed"), async || {
        let answer = client.get(THINGS).await;
        answer.status == 200 && names(&answer.json()) == [name]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_gets_its_own() {
    let authority = Authority::new("ours");
    let yaml = format!("explainHeader: true\nauthentication: {{clientCa: {}}}\n", authority.bundle.display());
    let cluster = Cluster::start_with(&[]).await;
    serve(&cluster).await;
    let world = World::before(cluster, &yaml).await;
    world.settled().await;
    let trusting = world.trusting();
    // The apiserver passes them on, and informerd has them in a cache for those who read as itself.
    until_listed(&world.admin(), "of-admin").await;
    until_listed(&trusting, "of-admin").await;
    assert_eq!(names(&trusting.json(&format!("{THINGS}?resourceVersion=0")).await), ["of-admin"]);
    let informers = world.daemon.daemon.factory.informers();
    assert!(informers.iter().any(|informer| &*informer.key().gvr.group == GROUP), "it has an informer");

    let metadata = ("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
    for account in ["space", "wide"] {
        let own = format!("of-{account}");
        let client = world.through(Some(&world.token(account, &[]).await));
        until_listed(&client, &own).await;
        for query in ["", "?resourceVersion=0", "?limit=1", "?limit=500&resourceVersion=0", "?resourceVersion=5"] {
            for accept in [("accept", "application/json"), metadata] {
                let answer = client.request(Method::GET, &format!("{THINGS}{query}"), &[accept], "").await;
                assert_eq!(answer.status, 200, "{query}: {}", answer.text());
                assert_eq!(answer.headers["x-informerd-plan"], "forwarded; reason=aggregated", "{query} {accept:?}");
                assert_eq!(names(&answer.json()), [&*own], "{query} {accept:?}");
            }
        }
        let object = client.json(&format!("{THINGS}/any?resourceVersion=0")).await;
        assert_eq!(object["metadata"]["name"], *own);
        for query in ["watch=1", "watch=1&resourceVersion=0", "watch=1&resourceVersion=5"] {
            assert_eq!(first(client.watch(&format!("{THINGS}?{query}")).await).await, own, "{query}");
        }
        let (code, body) = status(&client, "List", &list()).await;
        assert_eq!((&*code, body.is_empty()), (FAILED_PRECONDITION, true));
        assert_eq!(status(&client, "Watch", &watch_of(all(GROUP, "v1"))).await.0, FAILED_PRECONDITION);
    }
    // Who may not list is told nothing else.
    let nothing = world.through(Some(&world.token("nothing", &[]).await));
    assert_eq!(nothing.get(THINGS).await.status, 403);
    assert_eq!(status(&nothing, "List", &list()).await.0, PERMISSION_DENIED);
    // A certificate cannot be forwarded.
    let certified = world.certified(&authority.issue("certified", &[]), None);
    let answer = certified.get(&format!("{THINGS}?resourceVersion=0")).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("cannot forward the request: a client certificate"), "{}", answer.text());
    // Custom resources and what is built in are answered from caches as before.
    let wide = world.through(Some(&world.token("wide", &[]).await));
    world.warm(&["/api/v1/configmaps"]).await;
    let maps = wide.get("/api/v1/configmaps?resourceVersion=0").await;
    assert!(!maps.headers["x-informerd-plan"].to_str().unwrap().starts_with("forwarded"), "{:?}", maps.headers);

    // An operator who knows that it shows everybody the same.
    let yaml = format!("explainHeader: true\nauthorization: {{sharedAggregatedGroups: [{GROUP}]}}\n");
    let shared = Through::of(world.cluster.admin(), &format!("{LISTEN}{yaml}")).await;
    shared.ready().await;
    let client = shared.bearer(0, &world.token("wide", &[]).await);
    let answer = client.get(&format!("{THINGS}?resourceVersion=0")).await;
    assert_eq!(names(&answer.json()), ["of-admin"], "{:?}", answer.headers);
}

/// A definition of the same group version, whose resources everybody shares.
const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.own.example.com}
spec:
  group: own.example.com
  scope: Cluster
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: v1
kind: Service
metadata: {name: things, namespace: default}
spec: {type: ExternalName, externalName: localhost}
"#;
const THING: &str = "{apiVersion: own.example.com/v1, kind: Thing, metadata: {name: of-all}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_open_ends_when_a_service_takes_the_group_over() {
    let cluster = Cluster::start_with(&[]).await;
    cluster.apply(DEFINITION).await;
    cluster.apply(THING).await;
    cluster.apply(&rights()).await;
    let world = World::before(cluster, "explainHeader: true\n").await;
    world.settled().await;
    world.warm(&[THINGS]).await;
    let token = world.token("space", &[]).await;
    let client = world.through(Some(&token));
    until_listed(&client, "of-all").await;
    let cached = client.get(&format!("{THINGS}?resourceVersion=0")).await;
    assert!(cached.headers["x-informerd-plan"].to_str().unwrap().starts_with("served"), "{:?}", cached.headers);
    let mut watch = client.watch(&format!("{THINGS}?watch=1&resourceVersion=0")).await;
    assert_eq!(watch.next().await.unwrap().unwrap()["object"]["metadata"]["name"], "of-all");
    let mut stream = send(&client, "Watch", &watch_of(all(GROUP, "v1"))).await.into_body();
    let mut worker = work(&world, &token, "g", Some(all(GROUP, "v1"))).await.unwrap();

    // The APIService that the apiserver made for the definition gets a service.
    let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}");
    let mut service = world.admin().json(&path).await;
    service["metadata"]["labels"] = Value::Null;
    service["spec"]["insecureSkipTLSVerify"] = true.into();
    service["spec"]["service"] = json!({"name": "things", "namespace": "default", "port": start().await});
    world.admin().write(Method::PUT, &path, &service).await;

    assert_eq!(error(&mut watch).await["code"], 410);
    let trailers = within("the stream ends", trailers(&mut stream)).await;
    assert_eq!(trailers["grpc-status"], FAILED_PRECONDITION);
    assert_eq!(worker.refused().await.code(), tonic::Code::FailedPrecondition);
    until_listed(&client, "of-space").await;
    for query in ["", "?resourceVersion=0", "?limit=1"] {
        let answer = client.get(&format!("{THINGS}{query}")).await;
        assert_eq!(answer.headers["x-informerd-plan"], "forwarded; reason=aggregated", "{query}");
        assert_eq!(names(&answer.json()), ["of-space"], "{query}");
    }
    until_listed(&world.trusting(), "of-admin").await;
}

/// What the apiserver has of a group is not known while its server does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_about_a_group_whose_server_is_down_may_be_tried_again() {
    const UNAVAILABLE: &str = "14";
    const NOT_FOUND: &str = "5";
    let cluster = Cluster::start_with(&[]).await;
    // Nobody listens on the port of `discard`.
    cluster.apply(&service(9)).await;
    cluster.apply(&rights()).await;
    let world = World::before(cluster, "").await;
    world.settled().await;
    let trusted = Client::http2(&world.trusting_url());
    let known = world.through(Some(&world.token("space", &[]).await));
    let nothing = world.through(Some(&world.token("nothing", &[]).await));
    for version in ["v1", ""] {
        let asked = |group: &str| list_of(all(group, version));
        assert_eq!(status(&trusted, "List", &asked(GROUP)).await.0, UNAVAILABLE, "{version}");
        assert_eq!(status(&trusted, "List", &asked("apps")).await.0, NOT_FOUND, "{version}");
        assert_eq!(status(&known, "List", &asked(GROUP)).await.0, FAILED_PRECONDITION, "{version}");
        assert_eq!(status(&nothing, "List", &asked(GROUP)).await.0, PERMISSION_DENIED, "{version}");
    }
}
