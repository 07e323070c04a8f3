//! A native sidecar's life: before, beside and after the other containers of its pod, killed and started again, and with
//! no more memory than its manifest says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};

use super::pod::{Pod, Process};
use super::programs::Program;
use super::sidecar::{create_pod, stands_alone, until};
use super::{EXAMPLE as NAMESPACE, PROBES, SERVED, image, objects, pod, programs};
use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::support::metrics::sum;

const PODS: &str = "/api/v1/namespaces/informerd-example/pods";
/// Of the informers of the Go program.
const INFORMERS: usize = 3;

pub(super) async fn serves_through_a_restart_and_ends_last() {
    let cluster = Cluster::start().await;
    objects::apply_example(&cluster, "drop-in-sidecar").await;
    let pod = Pod::of(&cluster, "deployment", NAMESPACE, "app").await;
    let sidecar = pod.container("informerd");
    assert_eq!(pod.names(), ["informerd", "app"], "it is started first");
    let mut daemon = sidecar.start_in(&image::binary().await).await;
    until(&mut daemon, &Client::new(PROBES), "/readyz", 200).await;
    stands_alone(&daemon);
    let account = pod.volume("account");
    let mut files: Vec<_> =
        std::fs::read_dir(account).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ["ca.crt", "namespace", "token"], "all are there before the gate opens");
    let bundle = std::fs::read_to_string(account.join("ca.crt")).unwrap();
    assert!(bundle.starts_with(std::fs::read_to_string(&cluster.info.ca).unwrap().trim_end()), "the cluster's CA");
    assert!(bundle.matches("BEGIN CERTIFICATE").count() > 1, "and ours");
    programs::see_pods_come(&cluster, &pod, "app", NAMESPACE, PROBES, true).await;
    may_write_with_its_own_token(&pod).await;

    // It dies, as something new happens at every moment, and is started again with the same files.
    let mut program = Program::start(pod.container("app"), "go", NAMESPACE).await;
    program.synced(INFORMERS).await;
    for i in 0..30 {
        create_pod(&cluster, NAMESPACE, &format!("through-{i:02}")).await;
        if i == 10 {
            assert!(!daemon.signal("KILL").await.success());
        }
        if i == 20 {
            daemon = sidecar.start_in(&image::binary().await).await;
        }
    }
    until(&mut daemon, &Client::new(PROBES), "/readyz", 200).await;
    assert_eq!(std::fs::read_to_string(account.join("ca.crt")).unwrap(), bundle, "its CA outlives it");
    for i in 0..30 {
        program.sees(&format!("{NAMESPACE}/through-{i:02}"), INFORMERS).await;
    }

    // The pod ends: first the program, which is served to its last moment, then the sidecar.
    create_pod(&cluster, NAMESPACE, "last").await;
    program.sees(&format!("{NAMESPACE}/last"), INFORMERS).await;
    let states = program.end(INFORMERS).await;
    let all = Client::new(SERVED).json(&format!("{PODS}?resourceVersion=0")).await;
    let all: Vec<_> = all["items"].as_array().unwrap().iter().map(|pod| &pod["metadata"]).collect();
    for state in states {
        let wanted = all
            .iter()
            .map(|meta| (format!("{NAMESPACE}/{}", meta["name"].as_str().unwrap()), meta["resourceVersion"].clone()));
        assert_eq!(state, Value::Object(wanted.collect()), "nothing lost, nothing that is not there");
    }
    assert_eq!(Client::new(PROBES).get("/readyz").await.status, 200);
    let status = daemon.signal("TERM").await;
    assert!(status.success(), "{status}\n{}", daemon.log());
}

/// What the cache has no part in goes to the apiserver as who the program is.
async fn may_write_with_its_own_token(pod: &Pod) {
    let account = pod.volume("account");
    let token = std::fs::read_to_string(account.join("token")).unwrap();
    let client = Client::tls("https://127.0.0.1:8443", &account.join("ca.crt"), &token);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = client.request(Method::POST, path, &[("content-type", "application/json")], &review).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["status"]["userInfo"]["username"], format!("system:serviceaccount:{NAMESPACE}:app"));
}

/// Its pods become more than fit into what the manifest lets it use: they are forwarded, and the process lives, also when it
/// starts anew before all of them.
pub(super) async fn lives_with_its_memory() {
    let cluster = Cluster::start().await;
    objects::apply(&cluster, "sidecar").await;
    let pod = Pod::of(&cluster, "deployment", NAMESPACE, "app").await;
    let sidecar = pod.container("informerd");
    let mut daemon = sidecar.start_in(&image::binary().await).await;
    let probes = Client::new(PROBES);
    until(&mut daemon, &probes, "/readyz", 200).await;
    let spec = objects::get(&cluster, &["deployment", "app", "--namespace", NAMESPACE]).await;
    let limit = &spec["spec"]["template"]["spec"]["initContainers"][0]["resources"]["limits"]["memory"];
    let limit = pod::bytes(limit.as_str().unwrap());
    assert_eq!(metric(&probes, "informerd_memory_limit_bytes", &[]).await, limit as f64, "it knows what it may use");
    assert_eq!(metric(&probes, "informerd_cache_refused", &[]).await, 0.0);

    let client = Client::new(SERVED);
    fill(&cluster, usize::try_from(limit).unwrap()).await;
    crate::support::until("what does not fit is refused by the cache", async || {
        lives(&mut daemon);
        metric(&probes, "informerd_cache_refused", &[]).await > 0.0
    })
    .await;
    is_forwarded(&cluster, &client, &probes).await;
    lives(&mut daemon);

    // Not one that is killed, starts, reads it all and is killed again.
    assert!(!daemon.signal("KILL").await.success());
    assert_eq!(daemon.killed_for_memory(), 0);
    let mut daemon = sidecar.start_in(&image::binary().await).await;
    until(&mut daemon, &probes, "/readyz", 200).await;
    is_forwarded(&cluster, &client, &probes).await;
    assert!(daemon.log().contains("pinned, but not cached, its reads are forwarded"), "{}", daemon.log());
    lives(&mut daemon);
    assert!(daemon.signal("TERM").await.success());
    assert_eq!(daemon.killed_for_memory(), 0);
}

fn lives(daemon: &mut Process) {
    let ended = daemon.child.try_wait().unwrap();
    assert!(ended.is_none(), "it has ended: {ended:?}\n{}", daemon.log());
}

/// Pods of more bytes together than this, of which packing saves nothing.
async fn fill(cluster: &Cluster, bytes: usize) {
    let admin = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    let large = || {
        let mut random = vec![0; 180 << 10];
        rand::fill(&mut random[..]);
        STANDARD.encode(random)
    };
    let security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}});
    let creations = (0..=bytes / (240 << 10)).map(|i| {
        let pod = json!({"metadata": {"name": format!("large-{i}"), "annotations": {"x": large()}},
            "spec": {"containers": [{"name": "a", "image": "a", "securityContext": security}]}});
        let admin = admin.clone();
        async move {
            admin.write(Method::POST, PODS, &pod).await;
        }
    });
    stream::iter(creations).buffer_unordered(4).collect::<()>().await;
}

async fn is_forwarded(cluster: &Cluster, client: &Client, probes: &Client) {
    let forwarded = async || metric(probes, "informerd_reads_total", &["plan=\"forward\"", "reason=\"memory\""]).await;
    let before = forwarded().await;
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token").get(PODS).await;
    // What the apiserver's own cache has at a moment may lack the last pod: it is to wait for it.
    let newest = direct.json()["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let answer = client.get(&format!("{PODS}?resourceVersion={newest}")).await;
    assert!(
        answer.status == 200 && answer.json()["items"] == direct.json()["items"],
        "{} bytes, {}",
        answer.body.len(),
        direct.body.len()
    );
    crate::support::until("it is counted", async || forwarded().await > before).await;
}

async fn metric(probes: &Client, name: &str, labels: &[&str]) -> f64 {
    sum(&probes.metrics().await, name, labels)
}
