//! The first ten minutes of each deployment, as its page in docs/tasks tells them: the commands are read and done, one after the other.
//! There is no kubelet and no controller here, so what these would do is done by hand: a rollout starts the containers of
//! the workload as processes, in their order and behind their gates, and logs are what those write.

use std::collections::BTreeMap;
use std::path::Path;

use super::pod::{Pod, Process};
use super::sidecar::until;
use super::{image, isolated, objects, programs};
use crate::cluster::Cluster;
use crate::process;
use crate::support::client::Client;
use crate::support::lines::Lines;
use crate::support::{NODE_NAME, read};

type Running = (Process, Lines);

/// A reader who does what the page says.
struct Reader {
    cluster: Cluster,
    /// Containers that run, by workload and name, and what they have written.
    running: BTreeMap<(String, String), Running>,
    /// What keeps their volumes.
    pods: Vec<Pod>,
    forwarded: Vec<u16>,
}

pub(super) async fn is_walked() {
    let built = commands("operations.md", "## The image");
    assert_eq!(built.len(), 1, "{built:?}");
    let hosts = tempfile::tempdir().unwrap();
    let _service = programs::Service::start(hosts.path()).await;
    for (page, heading, informerd, steps) in [
        ("tasks/sidecar.md", "## Try the example", "informerd-example/deployment/app", 6),
        ("tasks/node-agent.md", "## Install it", "informerd-node-agent/daemonset/informerd", 9),
        ("tasks/tier.md", "## Install it with kustomize", "informerd-tier/deployment/informerd", 8),
    ] {
        let cluster = Cluster::start().await;
        objects::create_node(&cluster, NODE_NAME, isolated::HOST_IP).await;
        let mut reader = Reader { cluster, running: BTreeMap::new(), pods: Vec::new(), forwarded: Vec::new() };
        let commands = commands(page, heading);
        assert_eq!(commands.len(), steps, "{page}: {commands:?}");
        for command in built.iter().chain(&commands) {
            reader.does(command).await;
        }
        // What ran was informerd, and it says nothing that would make a newcomer doubt.
        let key = (informerd.to_owned(), "informerd".to_owned());
        let (daemon, _) = reader.running.get_mut(&key).expect("it was started");
        let log = daemon.log();
        assert!(!log.contains("\"level\":\"ERROR\""), "{log}");
        assert!(daemon.signal("TERM").await.success(), "{log}");
    }
}

/// The commands of the first block below a heading of a page in docs, without what is said beside them.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let text = read(&format!("docs/{page}"));
    let section = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{page} has no {heading}")).1;
    let block = section.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("\n```")).expect("a block").0;
    block.lines().map(|line| line.split_once(" #").map_or(line, |(command, _)| command).trim().to_owned()).collect()
}

// === impl Reader ===

impl Reader {
    async fn does(&mut self, command: &str) {
        let words: Vec<_> = command.split_whitespace().collect();
        match words[..] {
            ["docker", "build", "-t", tag, "."] => {
                for (overlay, _) in objects::NAMESPACES {
                    let path = objects::manifests().join("overlays").join(overlay).display().to_string();
                    let rendered = self.cluster.kubectl_ok(["kustomize", &path]).await;
                    assert!(rendered.contains(&format!("image: {tag}\n")), "{overlay} does not run {tag}");
                }
            }
            ["kubectl", "apply", "--server-side", "-k", directory] => {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
                objects::apply_directory(&self.cluster, &path).await;
            }
            ["kubectl", "-n", namespace, "rollout", "status", workload] => self.roll_out(namespace, workload).await,
            ["kubectl", "-n", namespace, "logs", workload, ref rest @ ..] => {
                let key = format!("{namespace}/{workload}");
                let of_workload =
                    |(at, name): &&(String, String)| *at == key && rest.last().is_none_or(|last| name == last);
                let keys: Vec<_> = self.running.keys().filter(of_workload).cloned().collect();
                assert_eq!(keys.len(), 1, "{command} names one container that runs: {keys:?}");
                let (process, lines) = self.running.get_mut(&keys[0]).expect("it runs");
                let line = lines.next().await;
                assert!(line.as_ref().is_some_and(|line| line.starts_with("pod/")), "{line:?}\n{}", process.log());
            }
            ["kubectl", "-n", namespace, "port-forward", workload, port, "&"] => {
                let key = format!("{namespace}/{workload}");
                assert!(self.running.keys().any(|(at, _)| *at == key), "{command}: nothing runs");
                self.forwarded.push(port.parse().expect("a port"));
            }
            ["kill", "%1"] => assert!(self.forwarded.pop().is_some(), "nothing is forwarded"),
            ["curl", "-s", "--retry", _, "--retry-connrefused", url, "|", "grep", what] => {
                let what = what.trim_matches('\'');
                let (base, path) = url.split_at(url.rfind('/').expect("a path"));
                assert!(
                    self.forwarded.iter().any(|port| base.ends_with(&format!(":{port}"))),
                    "{command}: nothing listens"
                );
                // One line, which shows a newcomer that the cache has answered; a program first lists, and then watches.
                crate::support::until(command, async || {
                    let answer = Client::new(base).get(path).await.text();
                    let found: Vec<_> =
                        answer.lines().filter(|line| line.contains(what) && !line.starts_with('#')).collect();
                    assert!(found.len() == 1, "{command}: {found:#?}");
                    !found[0].ends_with(" 0")
                })
                .await;
            }
            _ => panic!("nobody here knows how to do this: {command}"),
        }
    }

    /// What the controllers and the kubelet do until a rollout is complete.
    async fn roll_out(&mut self, namespace: &str, workload: &str) {
        let (kind, name) = workload.split_once('/').expect("KIND/NAME");
        Pod::place(&self.cluster, kind, namespace, name, NODE_NAME).await;
        let pod = self.mounted(kind, namespace, name).await;
        for container_name in pod.names() {
            let container = pod.container(&container_name);
            let mut process = if container.image.starts_with("informerd:") {
                container.start_in(&image::binary().await).await
            } else {
                assert!(container.image.starts_with("registry.k8s.io/kubectl:"), "{}", container.image);
                let mut container = container.clone();
                // Without a home kubectl writes its cache into the directory it is started in.
                container.env.insert("KUBECACHEDIR".into(), self.cluster.dir().join("cache").display().to_string());
                let kubectl = [process::judge().await.display().to_string(), "kubectl".to_owned()];
                container.start_program(&kubectl).await
            };
            if let Some((path, port)) = &container.gate {
                until(&mut process, &Client::new(&format!("http://127.0.0.1:{port}")), path, 200).await;
            }
            let lines = Lines::of(&mut process.child.stdout);
            self.running.insert((format!("{namespace}/{workload}"), container_name), (process, lines));
        }
        self.pods.push(pod);
    }

    /// A pod with its volumes. The kubelet waits for a ConfigMap's keys.
    async fn mounted(&self, kind: &str, namespace: &str, name: &str) -> Pod {
        let mut pod = None;
        crate::support::until(&format!("{namespace}/{name} has its volumes"), async || {
            pod = Pod::try_of(&self.cluster, kind, namespace, name).await.ok();
            pod.is_some()
        })
        .await;
        pod.unwrap()
    }
}
