//! The programs of `examples/`, in four languages, against a real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::clients::ledger::{Line, State, held};
use super::clients::scene::exists;
use super::clients::truth::Truth;
use crate::cluster::Cluster;
use crate::process::prepared;
use crate::support::client::Client;
use crate::support::history::state;
use crate::support::lines::keep;
use crate::support::{file, tied, until, within};
use crate::world::{JSON, World, admin};

pub(super) const LANGUAGES: [&str; 4] = ["go", "python", "rust", "typescript"];
const MAPS: &str = "/api/v1/namespaces/one/configmaps";
const COLORS: [&str; 3] = ["red", "green", "blue"];

/// A running example.
pub(super) struct Program {
    name: &'static str,
    pub(super) child: Child,
    lines: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
}

// === impl Program ===

impl Program {
    pub(super) async fn start_at(language: &'static str, program: &str, url: &str, arguments: &[&str]) -> Self {
        Self::start_with(language, program, &[("INFORMERD_ADDRESS", url)], arguments).await
    }

    /// This program in each language.
    pub(super) async fn all(program: &str, env: &[(&str, &str)], arguments: &[&str]) -> Vec<Self> {
        let mut programs = vec![];
        for language in LANGUAGES {
            programs.push(Self::start_with(language, program, env, arguments).await);
        }
        programs
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
        let (lines, errors) = Default::default();
        keep(&mut child.stdout, &lines, false);
        keep(&mut child.stderr, &errors, true);
        Self { name, child, lines, errors }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().lines().map(str::to_owned).collect()
    }

    /// What it says on standard error.
    pub(super) fn errors(&self) -> Vec<String> {
        self.errors.lock().lines().map(str::to_owned).collect()
    }

    /// What a consumer printed, as the other clients of the tests print it.
    fn ledger_lines(&self) -> Vec<Line> {
        let mut initial = true;
        let mut lines = vec![];
        for line in self.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == "SYNCED" {
                initial = false;
                lines.push(Line { t: "SYNCED".to_owned(), ..Line::default() });
                continue;
            }
            let [t, key, rv] = words.as_slice() else { panic!("{}: {line}", self.name) };
            lines.push(Line {
                t: (*t).to_owned(),
                key: (*key).to_owned(),
                rv: (*rv).to_owned(),
                initial,
                ..Line::default()
            });
        }
        let items = held(&lines).into_iter().map(|(key, rv)| (key, rv.to_string())).collect();
        lines.push(Line { t: "STATE".to_owned(), items, ..Line::default() });
        lines
    }

    pub(super) fn holds(&self) -> State {
        held(&self.ledger_lines())
    }
}

/// Creates, changes, relabels, deletes.
pub(super) async fn churn(direct: &Client, steps: usize) {
    for step in 0..steps {
        let name = format!("c{}", step * 7 % 9);
        let path = format!("{MAPS}/{name}");
        let labels = json!({"color": COLORS[step / 2 % 3]});
        let value = |n| if n < step % 4 { json!(step.to_string()) } else { json!(null) };
        // A null takes the key away from what is there.
        let data: BTreeMap<String, Value> = (0..3).map(|n| (format!("k{n}"), value(n))).collect();
        match (exists(direct, &path).await, step % 5) {
            (true, 3) => direct.write(Method::DELETE, &path, &Value::Null).await,
            (true, _) => {
                let patch = json!({"metadata": {"labels": labels}, "data": data});
                direct.write(Method::PATCH, &path, &patch).await
            }
            (false, _) => {
                let data: BTreeMap<_, _> = data.into_iter().filter(|(_, value)| !value.is_null()).collect();
                let object = json!({"metadata": {"name": name, "labels": labels}, "data": data});
                direct.write(Method::POST, MAPS, &object).await
            }
        };
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Before a cluster with some ConfigMaps in the namespace `one`.
pub(super) async fn begun(yaml: &str) -> World {
    let cluster = Cluster::start().await;
    cluster.namespace("one").await;
    churn(&admin(&cluster), 20).await;
    World::before(cluster, yaml).await
}

/// Until every program has printed a line that begins like this.
pub(super) async fn all_say(programs: &[Program], what: &str) {
    let says = |program: &Program| program.lines().iter().any(|line| line.starts_with(what));
    until(what, async || programs.iter().all(says)).await;
}

/// Until the controllers have counted everything, and every consumer holds it.
pub(super) async fn all_hold(direct: &Client, consumers: &[Program]) {
    until("every consumer has everything", async || {
        let there = state(&direct.json(MAPS).await);
        counted(direct).await && consumers.iter().all(|program| program.holds() == there)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_see_what_a_watch_by_http_sees() {
    let world = begun("").await;
    let truth = Truth::start(&world.direct, &format!("{MAPS}?labelSelector=color%20in%20%28red%2Cgreen%29&")).await;
    let arguments = ["--namespace", "one", "--selector", "color in (red,green)", "v1/configmaps"];
    let programs = Program::all("consumer", &[("INFORMERD_ADDRESS", &world.daemon.url)], &arguments).await;
    all_say(&programs, "SYNCED").await;
    churn(&world.direct, 300).await;
    let ledger = truth.complete().await;
    let last = ledger.last();
    until("every consumer has everything", async || programs.iter().all(|program| program.holds() == last)).await;
    assert!(ledger.changes.len() > 100);
    for program in &programs {
        assert_eq!(ledger.check(&program.ledger_lines()), Vec::<String>::new(), "{}", program.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_all_languages_share_the_work_and_lose_nothing() {
    let World { direct, daemon, cluster: _cluster, .. } = begun("").await;
    let arguments = ["--namespace", "one", "--workers", "2"];
    let mut programs = Program::all("controller", &[("INFORMERD_ADDRESS", &daemon.url)], &arguments).await;
    let vanishing = async {
        for language in LANGUAGES {
            tokio::time::sleep(Duration::from_millis(700)).await;
            // Killed with whatever it holds, and started again.
            programs.remove(0);
            programs.push(Program::start_at(language, "controller", &daemon.url, &arguments).await);
        }
    };
    tokio::join!(churn(&direct, 300), vanishing);
    until("all are counted", async || counted(&direct).await).await;
    all_work(&direct, &programs).await;
}

/// Each does its part: as many objects at once as all of them take, until all have done something.
async fn all_work(direct: &Client, programs: &[Program]) {
    let worked = |program: &Program| program.lines().iter().any(|line| line.starts_with("counted"));
    until("every controller works", async || {
        for n in 0..12 {
            let name = format!("more-{}-{n}", programs.iter().map(|program| program.lines().len()).sum::<usize>());
            let object = json!({"metadata": {"name": name}, "data": {"n": n.to_string()}});
            // It may be there already.
            direct.request(Method::POST, MAPS, &[JSON], object.to_string()).await;
        }
        programs.iter().all(worked)
    })
    .await;
}

/// Whether the controllers have written down the number of keys of every object.
async fn counted(direct: &Client) -> bool {
    direct.json(MAPS).await["items"].as_array().unwrap().iter().all(|object| {
        let keys = object["data"].as_object().map_or(0, serde_json::Map::len).to_string();
        object["metadata"]["annotations"]["example.com/keys"].as_str() == Some(&*keys)
    })
}

/// As at a tier or a node agent: the listener has a certificate of its own CA, and asks the cluster who comes.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_and_controllers_show_a_token_over_tls() {
    let world = begun("listen: ['delegated+https://127.0.0.1:0']\n").await;
    let files = tempfile::tempdir().unwrap();
    let token = file(files.path(), "token", "admin-token\n");
    let [token, ca] = [token, world.daemon.ca()].map(|path| path.display().to_string());
    let url = &*world.daemon.url;
    assert!(url.starts_with("https://"), "{url}");
    let env = [("INFORMERD_ADDRESS", url), ("INFORMERD_CA_FILE", &*ca), ("INFORMERD_TOKEN_FILE", &*token)];
    let consumers = Program::all("consumer", &env, &["--namespace", "one", "v1/configmaps"]).await;
    let controllers = Program::all("controller", &env, &["--namespace", "one"]).await;
    churn(&world.direct, 50).await;
    all_work(&world.direct, &controllers).await;
    all_hold(&world.direct, &consumers).await;
    // Nobody is let in without the token.
    for mut program in Program::all("consumer", &env[..2], &["v1/configmaps"]).await {
        let ended = within("the program ends", program.child.wait()).await.unwrap();
        assert_eq!(ended.code(), Some(1), "{}", program.name);
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
    let world = begun("").await;
    let documentation = include_str!("../../docs/grpc.md");
    let (_, section) = documentation.split_once("\n## A correct consumer\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```python\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    let authority = world.daemon.url.strip_prefix("http://").unwrap();
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
        let versions: BTreeMap<String, String> = serde_json::from_str(&line).unwrap();
        versions.into_iter().map(|(key, rv)| (key, rv.parse().unwrap())).collect::<State>()
    };
    until("a first snapshot", async || !holds().is_empty()).await;
    churn(&world.direct, 100).await;
    until("it holds what is there", async || holds() == state(&world.direct.json("/api/v1/configmaps").await)).await;
}
