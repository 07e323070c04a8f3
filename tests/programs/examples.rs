//! The programs of `examples/`, in four languages, against a real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use informerd::lifecycle;
use informerd::upstream::client::ConfigSource;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use super::clients::ledger::{Line, State};
use super::clients::raw::RawWatch;
use crate::cluster::Cluster;
use crate::process::prepared;
use crate::support::Through;
use crate::support::{tied, until, within};

pub(super) const LANGUAGES: [&str; 4] = ["go", "python", "rust", "typescript"];
const COLORS: [&str; 3] = ["red", "green", "blue"];

/// A running example.
pub(super) struct Program {
    name: &'static str,
    pub(super) child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<Vec<String>>>,
}

// === impl Program ===

impl Program {
    async fn start(language: &'static str, program: &str, through: &Through, arguments: &[&str]) -> Self {
        Self::start_at(language, program, &through.url, arguments).await
    }

    pub(super) async fn start_at(language: &'static str, program: &str, url: &str, arguments: &[&str]) -> Self {
        Self::start_with(language, program, &[("INFORMERD_ADDRESS", url)], arguments).await
    }

    async fn start_with(language: &'static str, program: &str, env: &[(&str, &str)], arguments: &[&str]) -> Self {
        let prepared = prepared(&format!("example-{language}")).await;
        let words: Vec<&str> = prepared.iter().map(String::as_str).collect();
        let mut command = match words.as_slice() {
            [directory] => tied::command(format!("{directory}/{program}")),
            [interpreter, directory] => {
                let ending = if language == "python" { "py" } else { "js" };
                let mut command = tied::command(interpreter);
                command.arg(format!("{directory}/{program}.{ending}"));
                command
            }
            other => panic!("{other:?}"),
        };
        // Go knows single dashes, and takes double ones.
        command.envs(env.iter().copied()).args(arguments);
        Self::run(language, command)
    }

    fn run(name: &'static str, mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = collected(child.stdout.take().unwrap(), false);
        let errors = collected(child.stderr.take().unwrap(), true);
        Self { name, child, lines, errors }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// What it says on standard error.
    pub(super) fn errors(&self) -> Vec<String> {
        self.errors.lock().clone()
    }

    /// What a consumer printed, as the other clients of the tests print it.
    fn ledger_lines(&self) -> Vec<Line> {
        let mut initial = true;
        let mut items = BTreeMap::new();
        let mut lines = vec![];
        for line in self.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == "SYNCED" {
                initial = false;
                lines.push(Line { t: "SYNCED".to_owned(), ..Line::default() });
                continue;
            }
            let [t, key, rv] = words.as_slice() else { panic!("{}: {line}", self.name) };
            if *t == "DELETED" {
                items.remove(*key)
            } else {
                items.insert((*key).to_owned(), (*rv).to_owned())
            };
            lines.push(Line {
                t: (*t).to_owned(),
                key: (*key).to_owned(),
                rv: (*rv).to_owned(),
                initial,
                ..Line::default()
            });
        }
        lines.push(Line { t: "STATE".to_owned(), items, ..Line::default() });
        lines
    }

    pub(super) fn holds(&self) -> State {
        let lines = self.ledger_lines();
        let state = lines.last().map(|line| line.items.clone()).unwrap_or_default();
        state.into_iter().map(|(key, rv)| (key, rv.parse().unwrap())).collect()
    }
}

fn collected(from: impl AsyncRead + Send + Unpin + 'static, show: bool) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let into = lines.clone();
    lifecycle::spawn("output of an example", async move {
        let mut from = BufReader::new(from).lines();
        while let Ok(Some(line)) = from.next_line().await {
            if show {
                eprintln!("{line}");
            }
            into.lock().push(line);
        }
    });
    lines
}

/// Creates, changes, relabels, deletes.
pub(super) async fn churn(api: &Api<ConfigMap>, steps: usize) {
    for step in 0..steps {
        let name = format!("c{}", step * 7 % 9);
        let labels = json!({"color": COLORS[step / 2 % 3]});
        let value = |n| if n < step % 4 { json!(step.to_string()) } else { json!(null) };
        // A null takes the key away from what is there.
        let data: BTreeMap<String, Value> = (0..3).map(|n| (format!("k{n}"), value(n))).collect();
        match (api.get_opt(&name).await.unwrap().is_some(), step % 5) {
            (true, 3) => drop(api.delete(&name, &DeleteParams::default()).await.unwrap()),
            (true, _) => {
                let patch = Patch::Merge(json!({"metadata": {"labels": labels}, "data": data}));
                drop(api.patch(&name, &PatchParams::default(), &patch).await.unwrap());
            }
            (false, _) => {
                let data: BTreeMap<_, _> = data.into_iter().filter(|(_, value)| !value.is_null()).collect();
                let object = json!({"metadata": {"name": name, "labels": labels}, "data": data});
                let object = serde_json::from_value(object).unwrap();
                drop(api.create(&PostParams::default(), &object).await.unwrap());
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A cluster with some ConfigMaps in the namespace `one`.
pub(super) async fn begun() -> (Cluster, kube::Client, Api<ConfigMap>) {
    let cluster = Cluster::start().await;
    cluster.namespace("one").await;
    let direct = super::clients::raw::client(cluster.admin()).await;
    let api: Api<ConfigMap> = Api::namespaced(direct.clone(), "one");
    churn(&api, 20).await;
    (cluster, direct, api)
}

/// Until every program has printed a line that begins like this.
pub(super) async fn all_say(programs: &[Program], what: &str) {
    let says = |program: &Program| program.lines().iter().any(|line| line.starts_with(what));
    until(what, async || programs.iter().all(says)).await;
}

/// Until the controllers have counted everything, and every consumer holds it.
pub(super) async fn all_hold(api: &Api<ConfigMap>, consumers: &[Program]) {
    until("every consumer has everything", async || {
        let there = api.list(&Default::default()).await.unwrap().into_iter().map(|object| {
            let version = object.metadata.resource_version.unwrap().parse().unwrap();
            (format!("one/{}", object.metadata.name.unwrap()), version)
        });
        let there = there.collect();
        counted(api).await && consumers.iter().all(|program| program.holds() == there)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_see_what_a_watch_by_http_sees() {
    let (cluster, direct, api) = begun().await;
    let path = "/api/v1/namespaces/one/configmaps?labelSelector=color%20in%20%28red%2Cgreen%29";
    let (_, body) = super::clients::raw::get(&direct, path).await;
    let (initial, start) = super::clients::raw::listed(&body);
    let truth = RawWatch::start(&direct, &format!("{path}&watch=1&resourceVersion={start}")).await;

    let through = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
    let arguments = ["--namespace", "one", "--selector", "color in (red,green)", "v1/configmaps"];
    let mut programs = vec![];
    for language in LANGUAGES {
        programs.push(Program::start(language, "consumer", &through, &arguments).await);
    }
    all_say(&programs, "SYNCED").await;
    churn(&api, 300).await;
    let (_, body) = super::clients::raw::get(&direct, path).await;
    let (last, _) = super::clients::raw::listed(&body);
    until("every consumer has everything", async || programs.iter().all(|program| program.holds() == last)).await;
    until("the watch by HTTP", async || truth.ledger(initial.clone()).last() == last).await;
    let ledger = truth.ledger(initial);
    assert!(ledger.changes.len() > 100);
    for program in &programs {
        assert_eq!(ledger.check(&program.ledger_lines()), Vec::<String>::new(), "{}", program.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_all_languages_share_the_work_and_lose_nothing() {
    let (cluster, _, api) = begun().await;
    let through = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
    let arguments = ["--namespace", "one", "--workers", "2"];
    let mut programs = vec![];
    for language in LANGUAGES {
        programs.push(Program::start(language, "controller", &through, &arguments).await);
    }
    let vanishing = async {
        for language in LANGUAGES {
            tokio::time::sleep(Duration::from_millis(700)).await;
            // Killed with whatever it holds, and started again.
            programs.remove(0);
            programs.push(Program::start(language, "controller", &through, &arguments).await);
        }
    };
    tokio::join!(churn(&api, 300), vanishing);
    until("all are counted", async || counted(&api).await).await;
    all_work(&api, &programs).await;
}

/// Each does its part: as many objects at once as all of them take, until all have done something.
async fn all_work(api: &Api<ConfigMap>, programs: &[Program]) {
    let worked = |program: &Program| program.lines().iter().any(|line| line.starts_with("counted"));
    until("every controller works", async || {
        for n in 0..12 {
            let data: BTreeMap<_, _> = [("n".to_owned(), n.to_string())].into();
            let name = format!("more-{}-{n}", programs.iter().map(|program| program.lines().len()).sum::<usize>());
            let object = ConfigMap { data: Some(data), ..Default::default() };
            let metadata = kube::api::ObjectMeta { name: Some(name), ..Default::default() };
            api.create(&PostParams::default(), &ConfigMap { metadata, ..object }).await.ok();
        }
        programs.iter().all(worked)
    })
    .await;
}

/// Whether the controllers have written down the number of keys of every object.
async fn counted(api: &Api<ConfigMap>) -> bool {
    api.list(&Default::default()).await.unwrap().into_iter().all(|object| {
        let keys = object.data.map_or(0, |data| data.len()).to_string();
        object.metadata.annotations.unwrap_or_default().remove("example.com/keys") == Some(keys)
    })
}

/// As at a tier or a node agent: the listener has a certificate of its own CA, and asks the cluster who comes.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_and_controllers_show_a_token_over_tls() {
    let (cluster, _, api) = begun().await;
    let source = ConfigSource::kubeconfig(cluster.admin());
    let through = Through::start(source, "listen: ['delegated+https://127.0.0.1:0']\n").await;
    let files = tempfile::tempdir().unwrap();
    let token = files.path().join("token");
    std::fs::write(&token, "admin-token\n").unwrap();
    let (token, ca) = (token.display().to_string(), through.daemon.ca_file.clone().unwrap().display().to_string());
    assert!(through.url.starts_with("https://"), "{}", through.url);
    let (mut consumers, mut controllers) = (vec![], vec![]);
    for language in LANGUAGES {
        let env =
            [("INFORMERD_ADDRESS", &*through.url), ("INFORMERD_CA_FILE", &*ca), ("INFORMERD_TOKEN_FILE", &*token)];
        let arguments = ["--namespace", "one", "v1/configmaps"];
        consumers.push(Program::start_with(language, "consumer", &env, &arguments).await);
        controllers.push(Program::start_with(language, "controller", &env, &["--namespace", "one"]).await);
    }
    churn(&api, 50).await;
    all_work(&api, &controllers).await;
    all_hold(&api, &consumers).await;
    // Nobody is let in without the token.
    let env = [("INFORMERD_ADDRESS", &*through.url), ("INFORMERD_CA_FILE", &*ca)];
    for language in LANGUAGES {
        let mut program = Program::start_with(language, "consumer", &env, &["v1/configmaps"]).await;
        assert_eq!(within("the program ends", program.child.wait()).await.unwrap().code(), Some(1), "{language}");
    }
}

/// Says twenty times a second what the consumer below it holds.
const SAYS: &str = r#"
import json, threading, time
objects = {}
def say():
    while True:
        versions = {"/".join(key): json.loads(o)["metadata"]["resourceVersion"] for key, o in list(objects.items())}
        print(json.dumps(versions), flush=True)
        time.sleep(0.05)
threading.Thread(target=say, daemon=True).start()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_of_the_documentation_holds_what_is_there() {
    let (cluster, direct, api) = begun().await;
    let through = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;

    let documentation = include_str!("../../docs/grpc.md");
    let (_, section) = documentation.split_once("\n## A correct consumer\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```python\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    let authority = through.url.strip_prefix("http://").unwrap();
    let code = blocks.collect::<String>();
    assert!(code.contains("127.0.0.1:8001"), "{code}");
    let code = code.replace("127.0.0.1:8001", authority);
    let prepared = prepared("example-python").await;
    let [python, directory] = prepared.as_slice() else { panic!("{prepared:?}") };
    let mut command = tied::command(python);
    command.args(["-c", &format!("{SAYS}{code}")]).env("PYTHONPATH", directory);
    let program = Program::run("documentation", command);
    let holds = || {
        let line = program.lines().pop().unwrap_or_else(|| "{}".to_owned());
        serde_json::from_str::<BTreeMap<String, String>>(&line).unwrap()
    };
    until("a first snapshot", async || !holds().is_empty()).await;
    churn(&api, 100).await;
    until("it holds what is there", async || {
        let (_, body) = super::clients::raw::get(&direct, "/api/v1/configmaps").await;
        let (last, _) = super::clients::raw::listed(&body);
        let last: BTreeMap<_, _> = last.into_iter().map(|(key, rv)| (key, rv.to_string())).collect();
        holds() == last
    })
    .await;
}
