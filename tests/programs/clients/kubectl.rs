//! kubectl through informerd, which has to print what it prints at the kube-apiserver itself: results, errors and the
//! lines of watches, byte for byte but for the server's address.

#![allow(clippy::expect_used, clippy::panic, reason = "test code")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::daemon::Daemon;
use super::scene;
use super::truth::open_watches;
use crate::cluster::Cluster;
use crate::process;
use crate::support::client::Client;
use crate::support::metrics::sum;
use crate::support::patience::SOON;
use crate::support::until;
use crate::world::admin;

/// What a kubectl printed and how it ended, with the server's address taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Printed {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A place to run kubectl at.
pub(crate) struct Kubectl {
    name: &'static str,
    kubeconfig: PathBuf,
    /// The server with its scheme.
    server: String,
    home: PathBuf,
}

/// Commands that change nothing, a line each. `POD` is a pod.
const READS: &str = "
get pods -A
get pods -n one
get pods -n one -o wide
get pods -n one -o json
get pods -n one -o yaml
get pods -n one -o name
get pods -A -o custom-columns=N:.metadata.name,V:.metadata.resourceVersion
get pods -A --sort-by=.metadata.name
get pods -A --chunk-size=2
get pods -A --chunk-size=0 -o json
get pods -A --field-selector metadata.name=POD -o json
get pods -A --field-selector spec.nodeName=,status.phase!=Running -o name
get pods -A --field-selector data.a=1
get pods -A --field-selector =
get pods -A -l !!
get pods -A -l color=red,(
get pod POD -n one
get pod POD -n one -o json
get pod missing -n one
get pod POD missing -n one -o name
get configmaps -A -l color=red,picked
get configmaps -A -l 'color notin (red)' -o json
get configmaps -n one --show-labels -L color
get secrets -A
get nodes
get nodes -o json
get events -A
get endpoints -A -o name
get namespaces
get widgets -A
get wd -A -o json
get widgets.v1.example.com -n one
get widget missing -n one
get nosuch
get nosuch.example.com
get all -n one
get pods,configmaps,widgets -n one
get deployments.apps -n missing
get crd widgets.example.com -o jsonpath={.spec.names.plural}
get --raw /api/v1/namespaces/one/pods/POD
get --raw /apis/example.com/v1
get --raw /version
get --raw /nonexistent
get --raw /api/v1/namespaces/one/pods?limit=-1
get --raw /api/v1/pods?resourceVersion=x
get --raw /api/v1/pods?continue=x
get --raw /api/v1/pods?resourceVersionMatch=Exact
get --raw /api/v1/pods?watch=true&sendInitialEvents=true
get --raw /api/v1/pods?resourceVersion=0 --as=nobody
get --raw /healthz
describe pod POD -n one
describe configmap -n one
describe namespace one
describe widgets -n one
describe pod missing -n one
api-resources
api-resources --api-group=example.com -o wide
api-versions
version -o json
explain pods.spec.containers.image
explain widgets.spec --recursive
explain nosuch
cluster-info
auth can-i list pods -A
auth can-i --list -n one
auth whoami
get pods -A --as=nobody
get widgets -n one --as=nobody
auth can-i create pods --as=nobody
logs POD -n one
logs POD -n one -f
logs missing -n one
exec POD -n one -- ls
attach POD -n one
port-forward pod/POD -n one 0:80
top pods -n one
rollout status deployment/missing -n one
wait --for=condition=Ready pod/POD -n one --timeout=1s
wait --for=jsonpath={.metadata.name}=POD pod/POD -n one --timeout=5s
wait --for=delete pod/missing -n one --timeout=5s
delete pod missing -n one
create configmap kube -n missing
scale deployment missing -n one --replicas=2
";

/// Commands that build something up, change it and take it away again; each sees what the ones before did.
const WRITES: &[(&str, &str)] = &[
    ("create configmap made -n one --from-literal=a=b", ""),
    ("create configmap made -n one --from-literal=a=b", ""),
    ("get configmap made -n one -o jsonpath={.data}", ""),
    ("label configmap made -n one color=red picked=yes", ""),
    ("label configmap made -n one color=blue", ""),
    ("get configmaps -n one -l color=red,picked=yes -o jsonpath={.items[?(@.metadata.name=='made')].data}", ""),
    ("annotate configmap made -n one a=b", ""),
    ("patch configmap made -n one --type=json -p [{\"op\":\"replace\",\"path\":\"/data/a\",\"value\":\"c\"}]", ""),
    ("patch configmap made -n one --type=merge -p {\"data\":{\"a\":\"d\"}}", ""),
    ("apply -f -", DEPLOYMENT),
    ("apply -f -", DEPLOYMENT),
    ("diff -f -", DEPLOYMENT),
    ("get deployment made -n one -o jsonpath={.spec.replicas}", ""),
    ("scale deployment made -n one --replicas=5", ""),
    ("get deployment made -n one -o jsonpath={.spec.replicas}", ""),
    ("set image deployment/made -n one main=other", ""),
    ("rollout restart deployment/made -n one", ""),
    ("expose deployment made -n one --port=80 --cluster-ip=None", ""),
    ("apply --server-side -f -", DEPLOYMENT),
    ("apply --server-side --force-conflicts -f -", DEPLOYMENT),
    ("apply -f -", WIDGET),
    ("apply -f -", BAD_WIDGET),
    ("create -f -", "apiVersion: v1\nkind: Pod\nmetadata: {name: made, namespace: one}\n"),
    ("create -f - --validate=false", "apiVersion: v1\nkind: Pod\nmetadata: {name: made, namespace: one}\n"),
    ("run made -n one --image=none --restart=Never", ""),
    ("delete pod made -n one --now", ""),
    ("get pod made -n one", ""),
    ("create serviceaccount made -n one", ""),
    ("create token made -n one --duration=10m", ""),
    ("create role made -n one --verb=get --resource=pods", ""),
    ("create -f - --dry-run=server -o name", WIDGET),
    ("replace -f -", WIDGET),
    ("delete -f - --wait=true", WIDGET),
    ("delete configmap/made deployment/made service/made serviceaccount/made role/made -n one", ""),
    ("get configmap/made deployment/made service/made -n one", ""),
];

/// Watches of every kind.
const WATCHES: &str = "
get pods -n one -w -o custom-columns=N:.metadata.name,V:.metadata.resourceVersion --no-headers
get pods -n one -w --output-watch-events -o name
get configmaps -A -l color=red,picked --watch-only -o json
get pods -n one -w
get widgets -A -w --watch-only
get widgets -A -w --output-watch-events -o jsonpath={.object.metadata.resourceVersion}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: made, namespace: one}
spec:
  replicas: 2
  selector: {matchLabels: {app: made}}
  template:
    metadata: {labels: {app: made}}
    spec: {containers: [{name: main, image: none}]}
";
const WIDGET: &str = "
apiVersion: example.com/v1
kind: Widget
metadata: {name: made, namespace: one}
spec: {size: 3}
";
const BAD_WIDGET: &str = "
apiVersion: example.com/v1
kind: Widget
metadata: {name: made, namespace: one}
spec: {size: large}
";

/// What somebody gets to see who may do nothing, with credentials of their own.
const FORBIDDEN: &str = "
auth whoami
auth can-i list pods
api-resources --api-group=example.com
get pods -A
get pods -n one -w
get pod missing -n one
get widgets -n one -o json
get configmaps -n one -l color=red
describe configmap made -n one
create configmap made -n one
delete pod missing -n one
";

/// Compares what a user who may do nothing is told; panics with all that differs.
pub(crate) async fn compare_forbidden(direct: &Kubectl, other: &Kubectl) {
    let mut wrong = Vec::new();
    for line in FORBIDDEN.trim().lines() {
        let (expected, found) = (direct.run(&words(line), "").await, other.run(&words(line), "").await);
        wrong.extend(differs(line, &expected, other, &found));
    }
    assert!(wrong.is_empty(), "{} commands differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Compares everything; panics with all that differs. `others` are those of the daemon.
pub(crate) async fn compare(cluster: &Cluster, direct: &Kubectl, others: &[Kubectl], daemon: &Daemon) {
    scene::set_up(cluster).await;
    let client = admin(cluster);
    scene::churn(&client, 40, 3, Duration::ZERO).await;
    let pods = cluster.kubectl_ok(["get", "pods", "-n", "one", "-o", "jsonpath={.items[0].metadata.name}"]).await;

    let mut wrong = Vec::new();
    let reads: Vec<String> = READS.trim().lines().map(|line| line.replace("POD", &pods)).collect();
    let found = stream::iter(reads.iter().enumerate())
        .map(async |(at, read)| {
            // The first of the others does all, the rest a sample: what it is over differs, what is asked does not.
            let mut wrong = Vec::new();
            for (other, kubectl) in others.iter().enumerate() {
                if other == 0 || at % 4 == other {
                    wrong.extend(direct.same(kubectl, read).await.err());
                }
            }
            wrong
        })
        .buffer_unordered(3)
        .collect::<Vec<_>>()
        .await;
    wrong.extend(found.into_iter().flatten());

    let mut expected = Vec::new();
    for (command, input) in WRITES {
        expected.push(direct.run(&words(command), input).await);
    }
    for kubectl in others {
        for ((command, input), expected) in WRITES.iter().zip(&expected) {
            let mut found = kubectl.run(&words(command), input).await;
            if command.starts_with("create token") {
                assert_eq!(found.code, Some(0), "{found:?}");
                found = expected.clone();
            }
            wrong.extend(differs(command, expected, kubectl, &found));
        }
    }

    wrong.extend(watch(&client, direct, others, daemon).await);
    assert!(wrong.is_empty(), "{} commands differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Runs the same watches everywhere while objects change, until nothing comes any more.
async fn watch(client: &Client, direct: &Kubectl, others: &[Kubectl], daemon: &Daemon) -> Vec<String> {
    let open = async || {
        let ours = sum(&daemon.metrics().await, "informerd_http_watches", &[]) as usize;
        let all = join_all(["pods", "configmaps", "widgets"].map(|of| open_watches(client, of))).await;
        (all.iter().sum::<i64>(), ours)
    };
    let (mut running, before) = (Vec::new(), open().await);
    for (at, arguments) in WATCHES.trim().lines().enumerate() {
        let mut everywhere = Vec::new();
        for kubectl in std::iter::once(direct).chain(others) {
            let file = kubectl.home.join(format!("watch-{}-{at}", kubectl.name));
            let out = std::fs::File::create(&file).expect("a file for its output");
            let mut command = kubectl.command(&words(arguments)).await;
            let child = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).spawn().expect("kubectl starts");
            everywhere.push((kubectl.name, file, child));
        }
        running.push((arguments, everywhere));
    }
    // All have to be watching before anything happens.
    until("all watch", async || {
        let (all, ours) = open().await;
        all >= before.0 + running.len() as i64 && ours >= before.1 + running.len() * others.len()
    })
    .await;
    scene::churn(client, 60, 4, Duration::from_millis(5)).await;

    // A table's last column is the age, and the others are as wide as it lets them be.
    let cells = |line: &str| line.rsplit_once(' ').map_or("", |(cells, _)| cells).trim_end().to_owned() + "\n";
    let read = |file: &Path, arguments: &str| {
        let text = std::fs::read_to_string(file).expect("its output is text");
        if arguments.contains(" -o ") { text } else { text.lines().map(cells).collect() }
    };
    let deadline = Instant::now() + SOON;
    let mut before = Vec::new();
    loop {
        sleep(Duration::from_millis(1000)).await;
        let now: Vec<Vec<String>> = running
            .iter()
            .map(|(arguments, everywhere)| everywhere.iter().map(|(_, file, _)| read(file, arguments)).collect())
            .collect();
        let all_equal = now.iter().all(|texts| texts.windows(2).all(|pair| pair[0] == pair[1]));
        if Instant::now() > deadline || (all_equal && now == before) {
            break;
        }
        before = now;
    }
    let mut wrong = Vec::new();
    for (arguments, everywhere) in &mut running {
        let expected = read(&everywhere[0].1, arguments);
        if expected.len() < 60 {
            wrong.push(format!("kubectl {arguments}: the server itself said hardly anything: {expected:?}"));
        }
        for (name, file, child) in everywhere {
            if let Some(status) = child.try_wait().expect("a process can be asked") {
                wrong.push(format!("kubectl {arguments}, {name}: it has ended: {status}"));
            }
            let found = read(file, arguments);
            if found != expected {
                wrong.push(format!("kubectl {arguments}, {name}: {}", first_difference(&expected, &found)));
            }
        }
    }
    wrong
}

// === impl Kubectl ===

impl Kubectl {
    pub(crate) fn new(name: &'static str, kubeconfig: &Path, home: &Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let server = text.split_whitespace().skip_while(|word| *word != "server:").nth(1).expect("a server");
        let server = server.trim_matches(['"', '\'', ',', '}']).to_owned();
        Self { name, kubeconfig: kubeconfig.to_owned(), server, home: home.to_owned() }
    }

    /// The same server for a user with a token.
    pub(crate) async fn with_token(&self, name: &'static str, token: &str) -> Self {
        let kubeconfig = self.home.join(format!("{name}.kubeconfig"));
        std::fs::copy(&self.kubeconfig, &kubeconfig).expect("a kubeconfig can be copied");
        let kubectl = Self { name, kubeconfig, server: self.server.clone(), home: self.home.clone() };
        for command in [
            format!("config set-credentials {name} --token={token}"),
            format!("config set-context --current --user={name}"),
        ] {
            let printed = kubectl.run(&words(&command), "").await;
            assert_eq!(printed.code, Some(0), "{printed:?}");
        }
        kubectl
    }

    /// Runs a command that has to succeed.
    pub(crate) async fn prints(&self, command: &str) {
        let printed = self.run(&words(command), "").await;
        assert_eq!(printed.code, Some(0), "kubectl {command}: {printed:?}");
    }

    /// A command that goes on; what it prints is dropped.
    pub(crate) async fn start(&self, command: &str) -> tokio::process::Child {
        let mut started = self.command(&words(command)).await;
        started.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        started.spawn().expect("kubectl starts")
    }

    async fn command(&self, words: &[String]) -> Command {
        let mut command = process::command("kubectl", &self.kubeconfig).await;
        command.env("HOME", &self.home).env("KUBECACHEDIR", self.home.join("cache")).env("KUBERC", "off");
        command.args(words);
        command
    }

    async fn run(&self, words: &[String], input: &str) -> Printed {
        let output = process::run(self.command(words).await, input).await;
        let text = |bytes: Vec<u8>| {
            let (_, address) = self.server.split_once("://").expect("a URL");
            // What kubectl logs has the time and its process in front.
            let text = String::from_utf8_lossy(&bytes).replace(&self.server, "SERVER").replace(address, "ADDRESS");
            let lines = text.split_inclusive('\n').map(|line| match line.split_once("] ") {
                Some((head, rest)) if head.starts_with('E') && head.contains(".go:") => rest,
                _ => line,
            });
            lines.collect::<String>()
        };
        Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Whether `other` prints the same. Ages move on meanwhile, so it is compared with before and after, and tried again.
    pub(crate) async fn same(&self, other: &Self, command: &str) -> Result<(), String> {
        let words = &words(command);
        let mut before = self.run(words, "").await;
        let mut tries = 0;
        loop {
            let found = other.run(words, "").await;
            if found == before {
                return Ok(());
            }
            let after = self.run(words, "").await;
            if found == after {
                return Ok(());
            }
            tries += 1;
            // On a busy machine, every command may be a second later.
            let is_same = (before.code, &before.stderr) == (found.code, &found.stderr);
            if tries == 5 && is_same && are_between(&before.stdout, &found.stdout, &after.stdout) {
                return Ok(());
            }
            // Where the server agrees with itself, another try would be one too many.
            if before == after || tries == 5 {
                return Err(differs(command, &after, other, &found).unwrap_or_default());
            }
            before = after;
        }
    }
}

/// Whether all words are the same but ages, which are between those before and after.
fn are_between(before: &str, found: &str, after: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (before, found, after) = (words(before), words(found), words(after));
    let is_between = |((before, found), after): ((&String, &String), &String)| {
        let ages = [age(before), age(found), age(after)];
        before == found || ages[0].is_some() && ages.is_sorted()
    };
    [before.len(), after.len()] == [found.len(); 2] && before.iter().zip(&found).zip(&after).all(is_between)
}

/// `2m5s` in seconds.
fn age(word: &str) -> Option<u64> {
    let mut seconds = 0;
    for part in word.split_inclusive(['s', 'm', 'h', 'd']) {
        let (number, unit) = part.split_at_checked(part.len().checked_sub(1)?)?;
        let unit = [("s", 1), ("m", 60), ("h", 3600), ("d", 86400)].into_iter().find(|(name, _)| *name == unit)?.1;
        seconds += number.parse::<u64>().ok()? * unit;
    }
    Some(seconds)
}

fn differs(command: &str, expected: &Printed, kubectl: &Kubectl, found: &Printed) -> Option<String> {
    let mut out = Vec::new();
    if expected.code != found.code {
        out.push(format!("exit code {:?} instead of {:?}", found.code, expected.code));
    }
    for (what, expected, found) in
        [("stdout", &expected.stdout, &found.stdout), ("stderr", &expected.stderr, &found.stderr)]
    {
        if expected != found {
            out.push(format!("{what}: {}", first_difference(expected, found)));
        }
    }
    (!out.is_empty()).then(|| format!("kubectl {command}, {}: {}", kubectl.name, out.join("; ")))
}

fn first_difference(expected: &str, found: &str) -> String {
    let (mut expected, mut found) = (expected.lines(), found.lines());
    let mut line = 0;
    loop {
        line += 1;
        match (expected.next(), found.next()) {
            (None, None) => return "only the ends of lines differ".to_owned(),
            (a, b) if a == b => {}
            (a, b) => {
                let cut =
                    |text: Option<&str>| text.map_or("nothing".to_owned(), |text| text.chars().take(400).collect());
                return format!("line {line}\n    {}\n  instead of\n    {}", cut(b), cut(a));
            }
        }
    }
}

/// The words of a command; single quotes hold one together.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    // Not in JSON paths, whose own quotes stand inside a word.
    for letter in command.chars() {
        match letter {
            '\'' if quoted || words.last().is_some_and(String::is_empty) => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("never empty").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
