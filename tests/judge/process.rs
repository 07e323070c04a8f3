//! Running the judge: finding or building it, and its subcommands that run to an end.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot have its judge is over")]

#[allow(clippy::duplicate_mod, reason = "the benches have the judge, and nothing else of the tests")]
#[path = "../support/patience.rs"]
pub(crate) mod patience;
#[allow(clippy::duplicate_mod, reason = "the benches have the judge, and nothing else of the tests")]
#[path = "../support/tied.rs"]
pub(crate) mod tied;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use patience::within;

/// So long a program may take to be built, with all that it needs fetched first.
const BUILD: Duration = Duration::from_secs(3 * 3600);

/// The path of the judge: `INFORMERD_JUDGE`, or what `tests/cluster/build.sh` builds, once per process.
pub(crate) async fn judge() -> &'static Path {
    static JUDGE: OnceCell<PathBuf> = OnceCell::const_new();
    JUDGE.get_or_init(|| built("INFORMERD_JUDGE", "tests/cluster/build.sh")).await
}

/// The program that this variable names, or that this script builds.
pub(crate) async fn built(variable: &str, script: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "{variable} names {}, which is no file", path.display());
        return path;
    }
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = timeout(BUILD, tied::command(whole).stderr(Stdio::inherit()).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{script} goes on for {BUILD:?}"));
    let output = output.unwrap_or_else(|error| panic!("{script} cannot be run: {error}"));
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default());
    let is_built = output.status.success() && path.is_file();
    assert!(is_built, "{script} failed with {}, and {variable} names no program", output.status);
    path
}

/// What `tests/clients/prepare` says of a client in another language, once it can be run.
pub(crate) async fn prepared(what: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/prepare");
    let output = tied::command(script).arg(what).stderr(Stdio::inherit()).output().await.expect("it runs");
    assert!(output.status.success(), "there is no {what}: tests/clients/prepare failed");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// The path of a tool of `tests/clients/prepare`.
pub(crate) fn tool(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/prepare");
    let output = tied::blocking(script).arg(name).output().expect("bash");
    assert!(output.status.success(), "no {name}: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// The minor version of Kubernetes that the judge is of: 36 for 1.36.3.
pub(crate) async fn minor_version() -> u32 {
    let mut command = tied::command(judge().await);
    command.args(["kubectl", "version", "--client", "--output=json"]);
    let answer: serde_json::Value = parse(&stdout("the judge's version", run(command, "").await));
    let version =
        answer["clientVersion"]["gitVersion"].as_str().and_then(|version| version.split('.').nth(1)?.parse().ok());
    version.unwrap_or_else(|| panic!("no version in {answer}"))
}

/// A subcommand of the judge that talks to the server of `kubeconfig`.
pub(crate) async fn command(name: &str, kubeconfig: &Path) -> Command {
    let mut command = tied::command(judge().await);
    command.arg(name).arg("--kubeconfig").arg(kubeconfig);
    command
}

/// Runs a command to its end with `input` as its stdin; panics if it has none.
pub(crate) async fn run(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the judge starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let feed = async move {
        // A command may end without reading its input; its exit status tells more than this would.
        stdin.write_all(input.as_bytes()).await.ok();
    };
    let both = async { tokio::join!(child.wait_with_output(), feed) };
    let (output, ()) = within(&format!("{command:?} has ended"), both).await;
    output.expect("the judge runs")
}

/// The stdout of a process that has to have succeeded.
pub(crate) fn stdout(what: &str, output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text is UTF-8")
}

/// What a line of JSON from the judge says.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> T {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("the judge said {line:?}: {error}"))
}
