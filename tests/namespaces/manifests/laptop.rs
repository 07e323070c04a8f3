//! What a reader types on a machine of their own: the commands of README, and of the pages for a laptop, run by a shell as they stand
//! there, with default settings and ports.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::Child;

use super::sidecar::create_pod;
use crate::cluster::Cluster;
use crate::process;
use crate::support::lines::keep;
use crate::support::{eventually, read, tied};

/// What a command prints, and whether it then goes on until Ctrl-C.
enum Shows {
    AndEnds(&'static str),
    AndRuns(&'static str),
}
use Shows::{AndEnds, AndRuns};

/// The pages whose blocks are typed, and how many commands that are.
const PAGES: &[(&str, usize)] = &[
    ("README.md", 6),
    ("docs/quickstart.md", 6),
    ("docs/tasks/kubectl.md", 6),
    ("docs/tasks/snapshots.md", 1),
    ("docs/tasks/grpc-consumer.md", 2),
];

/// Only these commands come in the pages, and all of them.
const COMMANDS: &[(&str, Shows)] = &[
    ("cargo run --release -- demo", AndRuns("Try in another terminal")),
    ("make test", AndEnds("tests/run")),
    ("cargo install --locked --path .", AndEnds("")),
    ("informerd", AndRuns("serving address=http://127.0.0.1:8001")),
    ("informerd check", AndEnds("settings: ok")),
    ("informerd kubeconfig --write /tmp/informerd.kubeconfig", AndEnds("")),
    ("kubectl --kubeconfig /tmp/informerd.kubeconfig get pods --watch", AndRuns("web-1")),
    ("kubectl --kubeconfig /tmp/informerd.kubeconfig get pods --watch -o name", AndRuns("pod/web-1")),
    ("curl -s http://127.0.0.1:8002/metrics | grep informerd_reads_total", AndEnds("informerd_reads_total{plan=\"")),
    (
        "informerd --context staging --listen http://127.0.0.1:8011 --admin 127.0.0.1:8012",
        AndRuns("context=\"staging\"\nadmin address=127.0.0.1:8012"),
    ),
    ("informerd kubeconfig --listen http://127.0.0.1:8011 --write /tmp/staging.kubeconfig", AndEnds("")),
    ("informerd status --admin 127.0.0.1:8012", AndEnds("upstream ")),
    ("informerd explain /api/v1/pods --as kubectl", AndEnds("GET /api/v1/pods")),
    ("informerd get pods -A", AndEnds("default/web-1")),
    ("informerd watch deployments.apps -l app=web -o json", AndRuns("\"type\":\"ADDED\"")),
    ("informerd --snapshots-dir /var/lib/informerd", AndRuns("serving address=http://127.0.0.1:8001")),
];

/// What is there to be watched.
const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default","labels":{"app":"web"}},
"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"a"}]}}}}"#;

/// A shell of the reader, in which only these programs are found first: informerd, kubectl, and those that would build informerd.
struct Shell {
    /// Home, programs, and what the pages put into `/tmp` and `/var/lib`.
    at: PathBuf,
}

/// A command that was typed.
struct Typed {
    line: String,
    child: Child,
    /// What it has written so far, errors included.
    written: Arc<Mutex<String>>,
}

pub(super) async fn is_typed() {
    let cluster = Cluster::start().await;
    create_pod(&cluster, "default", "web-1").await;
    cluster.apply(DEPLOYMENT).await;
    let directory = tempfile::tempdir().unwrap();
    let shell = Shell::new(directory.path(), &cluster).await;
    let mut typed = std::collections::BTreeSet::new();
    for (page, count) in PAGES {
        let commands = commands(page);
        assert_eq!(commands.len(), *count, "{page}: {commands:?}");
        let mut running: Vec<Typed> = Vec::new();
        for line in &commands {
            let shows = COMMANDS.iter().find(|(known, _)| known == line);
            let (_, shows) = shows.unwrap_or_else(|| panic!("{page}: nobody here knows what this shows: {line}"));
            typed.insert(line.clone());
            // A page goes on where the quickstart has ended.
            if page.starts_with("docs/tasks/") && running.is_empty() && !line.starts_with("informerd --") {
                running.push(shell.shows("informerd", "serving address").await);
            }
            match shows {
                AndEnds(words) => {
                    let command = shell.types(line);
                    command.ends(words).await;
                }
                AndRuns(words) => {
                    let command = shell.shows(line, words).await;
                    // It has the ports that the next one takes.
                    if line.ends_with("demo") {
                        command.ctrl_c().await;
                    } else {
                        running.push(command);
                    }
                }
            }
        }
        // The other way around: a client ends before what it reads from.
        for command in running.into_iter().rev() {
            command.ctrl_c().await;
        }
    }
    let never: Vec<_> = COMMANDS.iter().map(|(line, _)| *line).filter(|line| !typed.contains(*line)).collect();
    assert!(never.is_empty(), "on no page: {never:?}");
}

/// The commands of all blocks of a page, without what is said beside them.
fn commands(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split_once("\n```").expect("an end").0);
    let lines = blocks.flat_map(str::lines);
    let commands = lines.map(|line| line.split_once(" #").map_or(line, |(command, _)| command).trim().to_owned());
    // The examples are built and run by tests/programs.
    commands.filter(|command| !command.starts_with("cd examples/")).collect()
}

// === impl Shell ===

impl Shell {
    async fn new(at: &Path, cluster: &Cluster) -> Self {
        let programs = at.join("bin");
        std::fs::create_dir_all(&programs).unwrap();
        std::fs::create_dir_all(at.join("home/.kube")).unwrap();
        let informerd = env!("CARGO_BIN_EXE_informerd");
        let judge = process::judge().await.display();
        // This build is the one of the pages, and the tests do not run within the tests.
        let cargo = format!(
            "case \"$*\" in\n'install --locked --path .') ;;\n'run --release -- '*) shift 3 && exec {informerd} \"$@\" ;;\n*) exit 1 ;;\nesac"
        );
        let make = format!("PATH=${{PATH#*:}} exec make --dry-run --directory {} \"$@\"", env!("CARGO_MANIFEST_DIR"));
        for (name, script) in [
            ("informerd", format!("exec {informerd} \"$@\"")),
            ("kubectl", format!("exec {judge} kubectl \"$@\"")),
            ("cargo", cargo),
            ("make", make),
        ] {
            std::fs::write(programs.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(programs.join(name), mode).unwrap();
        }
        // One cluster by two names.
        let kubeconfig = std::fs::read_to_string(cluster.admin()).unwrap();
        let mut kubeconfig: serde_json::Value = serde_saphyr::from_str(&kubeconfig).expect("YAML");
        let mut staging = kubeconfig["contexts"][0].clone();
        staging["name"] = "staging".into();
        kubeconfig["contexts"].as_array_mut().expect("contexts").push(staging);
        std::fs::write(at.join("home/.kube/config"), kubeconfig.to_string()).unwrap();
        Self { at: at.to_owned() }
    }

    fn types(&self, line: &str) -> Typed {
        // The files of this machine are not the test's.
        let own = line.replace(" /tmp/", &format!(" {}/", self.at.display()));
        let own = own.replace("/var/lib/", &format!("{}/", self.at.display()));
        let path = format!("{}:{}", self.at.join("bin").display(), std::env::var("PATH").unwrap());
        let mut child = tied::command("bash")
            .args(["-o", "pipefail", "-c", &own])
            .env_clear()
            .envs([("PATH", path), ("HOME", self.at.join("home").display().to_string())])
            .current_dir(&self.at)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("bash runs");
        let written = Arc::default();
        keep(&mut child.stdout, &written, false);
        keep(&mut child.stderr, &written, false);
        Typed { line: line.to_owned(), child, written }
    }

    /// Types a command that goes on, and waits for these words of it.
    async fn shows(&self, line: &str, words: &str) -> Typed {
        let mut command = self.types(line);
        command.until(words).await;
        command
    }
}

// === impl Typed ===

impl Typed {
    /// Waits for these words, one on each line.
    async fn until(&mut self, words: &str) {
        let (line, written) = (self.line.clone(), self.written.clone());
        eventually(&format!("{line} shows {words}"), || {
            let ended = self.child.try_wait().unwrap().filter(|status| !status.success());
            assert!(ended.is_none(), "{line} ({ended:?}) never shows {words}:\n{}", written.lock());
            words.lines().all(|words| written.lock().contains(words))
        })
        .await;
    }

    async fn ends(mut self, words: &str) {
        let status = self.wait().await;
        assert!(status.success(), "{}: {status}\n{}", self.line, self.written.lock());
        // The last of it is read after the end.
        self.until(words).await;
    }

    async fn ctrl_c(mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "{} has ended\n{}", self.line, self.written.lock());
        tied::signal(self.child.id().expect("it runs"), "INT");
        let status = self.wait().await;
        // A daemon ends in order; what only prints may die of it.
        let prints = self.line.starts_with("kubectl ") || self.line.starts_with("informerd watch ");
        assert!(prints || status.success(), "{}: {status}\n{}", self.line, self.written.lock());
    }

    async fn wait(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(Duration::from_secs(90), self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("{} does not end\n{}", self.line, self.written.lock())).unwrap()
    }
}
