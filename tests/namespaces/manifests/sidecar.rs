//! The overlay `sidecar`.

use http::Method;
use serde_json::json;

use super::pod::{ACCOUNT, Pod, Process};
use super::{ADMIN, EXAMPLE as NAMESPACE, PROBES, SERVED, image, objects, programs};
use crate::cluster::Cluster;
use crate::process;
use crate::support::client::Client;
use crate::support::lines::Lines;
use crate::support::{tied, within};

pub(super) async fn gates_serves_and_ends() {
    let cluster = Cluster::start().await;
    objects::apply(&cluster, "sidecar").await;
    let pod = Pod::of(&cluster, "deployment", NAMESPACE, "app").await;
    let container = pod.container("informerd");
    let probes = Client::new(PROBES);

    // The gate: nothing else of the pod is started while this is not 200.
    cluster.stop_apiserver().await;
    let mut daemon = container.start_in(&image::binary().await).await;
    until(&mut daemon, &probes, "/livez", 200).await;
    assert_eq!(probes.get("/readyz").await.status, 503);
    cluster.start_apiserver().await;
    until(&mut daemon, &probes, "/readyz", 200).await;
    stands_alone(&daemon);

    let admin = Client::new(ADMIN);
    let caches = admin.json("/debug/caches").await;
    let caches = caches["caches"].as_array().unwrap();
    let mut cached: Vec<_> = caches.iter().map(|cache| cache["resource"].as_str().unwrap()).collect();
    cached.sort_unstable();
    assert_eq!(cached, ["endpointslices.discovery.k8s.io", "pods", "services"]);
    assert!(caches.iter().all(|cache| cache["ready"] == true && cache["namespace"] == NAMESPACE), "{caches:#?}");
    let role = objects::get(&cluster, &["role", "informerd-sidecar", "--namespace", NAMESPACE]).await;
    objects::reads_exactly(&role["rules"], &[("", "pods"), ("", "services"), ("discovery.k8s.io", "endpointslices")]);

    let client = Client::new(SERVED);
    serves(&cluster, &client, &probes).await;
    is_refused_the_rest(&client).await;
    has_seats_of_its_own(&cluster, &pod).await;
    the_program_beside_it_sees_a_pod_come(&cluster, &pod).await;

    // The last to get SIGTERM: open watches end in order, and so does the process.
    let mut watch = client.watch(&format!("/api/v1/namespaces/{NAMESPACE}/pods?watch=1&resourceVersion=0")).await;
    tied::signal(daemon.child.id().unwrap(), "TERM");
    while watch.next_line().await.expect("the watch ends as the apiserver ends one").is_some() {}
    let status = within("the process ends", daemon.child.wait()).await.unwrap();
    assert!(status.success(), "{status}\n{}", daemon.log());

    // And all of it needs nothing beside the program, and no user in particular.
    let mut daemon = pod.container("informerd").bare(4_321_000).start_in(&image::binary().await).await;
    until(&mut daemon, &probes, "/readyz", 200).await;
    runs_as(&daemon, 4_321_000);
    let list = client.json(&format!("/api/v1/namespaces/{NAMESPACE}/pods?resourceVersion=0")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert!(daemon.signal("TERM").await.success(), "{}", daemon.log());
}

/// Waits for a probe's answer.
pub(super) async fn until(daemon: &mut Process, probes: &Client, path: &str, status: u16) {
    crate::support::until(&format!("{path} is {status}"), async || {
        let ended = daemon.child.try_wait().unwrap();
        assert!(ended.is_none(), "informerd has ended: {ended:?}\n{}", daemon.log());
        probes.try_get(path).await.is_ok_and(|answer| answer.status == status)
    })
    .await;
}

/// One file is all it runs from, and it is the user that the manifest names.
pub(super) fn stands_alone(daemon: &Process) {
    runs_as(daemon, 65532);
}

/// One file is all it runs from, and it is this user.
fn runs_as(daemon: &Process, user: u32) {
    let of = |file: &str| {
        let path = format!("/proc/{}/{file}", daemon.child.id().expect("it runs"));
        std::fs::read_to_string(path).expect("readable")
    };
    let mapped: std::collections::BTreeSet<_> =
        of("maps").lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned())).collect();
    assert_eq!(mapped.len(), 1, "a static program maps itself and nothing else: {mapped:?}");
    if super::isolated::is_root() {
        assert!(of("status").contains(&format!("\nUid:\t{user}\t{user}\t{user}\t{user}\n")), "{}", of("status"));
        assert!(of("status").contains("\nGroups:\t \n"), "{}", of("status"));
    }
    let root = of("mountinfo").lines().any(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        fields[4] == "/" && fields[5].split(',').any(|option| option == "ro")
    });
    assert!(root, "its root directory is read-only:\n{}", of("mountinfo"));
}

async fn serves(cluster: &Cluster, client: &Client, probes: &Client) {
    create_pod(cluster, NAMESPACE, "one").await;
    let before = programs::served(PROBES).await;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let mut watch = client.watch(&format!("{pods}?watch=1&resourceVersion=0")).await;
    let line = watch.next_line().await.unwrap().expect("the pod");
    assert!(line.contains(r#""name":"one""#), "{line}");
    let list = client.json(&format!("{pods}?resourceVersion=0")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(client.get(&format!("{pods}/one")).await.status, 200);
    assert!(programs::served(PROBES).await >= before + 2.0, "served, not forwarded");
    assert_eq!(client.get("/version").await.status, 200);
    assert_eq!(probes.get("/debug/caches").await.status, 404);
}

pub(super) async fn create_pod(cluster: &Cluster, namespace: &str, name: &str) {
    create_pod_as(cluster, namespace, name, "default", "").await;
}

/// Of an account, and placed already, as by the scheduler.
pub(super) async fn create_pod_as(cluster: &Cluster, namespace: &str, name: &str, account: &str, node: &str) {
    let security = r#"{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}"#;
    cluster
        .apply(&format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}"}},"spec":{{"serviceAccountName":"{account}","nodeName":"{node}","containers":[{{"name":"a","image":"a","securityContext":{security}}}]}}}}"#
        ))
        .await;
}

async fn is_refused_the_rest(client: &Client) {
    for path in [
        "/api/v1/pods",
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/namespaces/default/pods?resourceVersion=0",
        &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
        &format!("/api/v1/namespaces/{NAMESPACE}/secrets?resourceVersion=0"),
        "/api/v1/nodes?resourceVersion=0",
        &format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"),
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        assert!(answer.text().contains("system:serviceaccount:informerd-example:app"), "{}", answer.text());
    }
    // Without credentials of its own, a program may read and nothing else.
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let json = [("content-type", "application/json")];
    let body = json!({"metadata": {"name": "two"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}).to_string();
    for (method, path) in [(Method::POST, pods.clone()), (Method::DELETE, format!("{pods}/one"))] {
        let answer = client.request(method, &path, &json, &body).await;
        assert!(matches!(answer.status.as_u16(), 401 | 403), "{path}: {} {}", answer.status, answer.text());
    }
}

/// Requests with this identity are in the flow schema of the manifest.
async fn has_seats_of_its_own(cluster: &Cluster, pod: &Pod) {
    let schema = objects::get(cluster, &["flowschema", "informerd-example"]).await;
    let token = std::fs::read_to_string(pod.volume(ACCOUNT).join("token")).unwrap();
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, &token);
    // The apiserver takes a moment to take up a new one.
    crate::support::until("the flow schema is the manifest's", async || {
        let answer = direct.get(&format!("/api/v1/namespaces/{NAMESPACE}/pods?limit=1")).await;
        assert_eq!(answer.status, 200);
        answer.headers["x-kubernetes-pf-flowschema-uid"] == schema["metadata"]["uid"].as_str().unwrap()
    })
    .await;
}

/// The workload's own container, kubectl, with the arguments of the manifest.
async fn the_program_beside_it_sees_a_pod_come(cluster: &Cluster, pod: &Pod) {
    let kubectl = [process::judge().await.display().to_string(), "kubectl".to_owned()];
    let mut app = pod.container("app");
    // Without a home kubectl writes its cache into the directory it is started in.
    let cache = tempfile::tempdir().unwrap();
    app.env.insert("KUBECACHEDIR".into(), cache.path().display().to_string());
    let mut program = app.start_program(&kubectl).await;
    let mut lines = Lines::of(&mut program.child.stdout);
    for name in ["one", "two"] {
        if name == "two" {
            create_pod(cluster, NAMESPACE, name).await;
        }
        assert_eq!(lines.next().await, Some(format!("pod/{name}")), "{}", program.log());
    }
}
