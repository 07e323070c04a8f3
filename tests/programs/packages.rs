//! The client packages of `clients/`: their own tests, their stubs, and their programs in `examples/` where informerd is not
//! what it should be.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use informerd_sim as sim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::examples::{LANGUAGES, Program, all_hold, all_say, begun, churn};
use crate::process::prepared;
use crate::support::Through;
use crate::support::ports::Port;
use crate::support::{read, tied, until, within};
use crate::world::World;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a directory that are not caches of Python's.
fn files(directory: &Path) -> BTreeMap<PathBuf, String> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: &Path| path.strip_prefix(directory).unwrap().to_owned();
    paths.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

#[tokio::test]
async fn the_stubs_are_those_of_the_definitions() {
    let generated = PathBuf::from(prepared("stubs").await.remove(0));
    for (language, stubs, least) in [
        ("go", "clients/go/informerd/v1", 6),
        ("python", "clients/python/informerd/v1", 6),
        ("typescript", "clients/typescript/src/generated/informerd/v1", 3),
        ("typescript", "clients/typescript/src/generated/google/rpc", 2),
    ] {
        let mut committed = files(&root().join(stubs));
        // It only makes a package of them.
        committed.remove(Path::new("__init__.py"));
        let generated = files(&generated.join(stubs));
        assert!(generated.len() >= least, "{generated:?}");
        let all = generated.keys().chain(committed.keys());
        let differ: Vec<_> = all.filter(|name| generated.get(*name) != committed.get(*name)).collect();
        assert!(differ.is_empty(), "run clients/{language}/generate.sh: {differ:?} of {stubs} are not what it makes");
    }
}

/// Runs the tests of a client, which says this if it has none.
async fn passes(command: &mut Command, none: &str) {
    let output = command.output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && !said.contains(none), "{said}");
}

#[tokio::test]
async fn the_go_client_passes_its_tests() {
    let program = prepared("client-go").await.remove(0);
    passes(tied::command(program).arg("-test.timeout=5m"), "no tests to run").await;
}

#[tokio::test]
async fn the_python_client_passes_its_tests() {
    let python = prepared("python-tools").await.remove(0);
    let mut command = tied::command(python);
    passes(command.args(["-B", "-m", "unittest"]).current_dir(root().join("clients/python")), "Ran 0 tests").await;
}

#[tokio::test]
async fn the_typescript_client_passes_its_tests_and_is_packed_without_them() {
    let prepared = prepared("client-typescript").await;
    let [node, directory] = prepared.as_slice() else { panic!("{prepared:?}") };
    let mut command = tied::command(node);
    command.args(["--test", "--test-timeout=300000", "dist/tests/"]).current_dir(directory);
    passes(&mut command, "tests 0").await;
    let packed = Path::new(directory).join("package");
    let there = |name: &str| packed.join(name).exists();
    assert!(there("package.json") && there("README.md") && there("dist/src/index.d.ts"), "{}", packed.display());
    assert!(!there("dist/tests") && !there("tests"), "{}", packed.display());
}

#[tokio::test]
async fn the_rust_client_passes_its_tests() {
    let directory = prepared("client-rust").await.remove(0);
    let programs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(programs.len(), 2, "{programs:?}");
    for program in programs {
        passes(&mut tied::command(&program), "running 0 tests").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_daemon_loses_and_doubles_nothing() {
    let World { cluster, daemon: through, direct, .. } = begun("").await;
    let url = through.url.clone();
    let env = [("INFORMERD_ADDRESS", &*url)];
    let consumers = Program::all("consumer", &env, &["--namespace", "one", "v1/configmaps"]).await;
    let controllers = Program::all("controller", &env, &["--namespace", "one"]).await;
    all_say(&consumers, "SYNCED").await;
    let restarted = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        through.stop(Duration::ZERO).await;
        drop(through);
        tokio::time::sleep(Duration::from_millis(500)).await;
        Through::of(cluster.admin(), &format!("listen: ['{url}']\n")).await
    };
    let ((), _through) = tokio::join!(churn(&direct, 200), restarted);
    all_hold(&direct, &consumers).await;
    for consumer in &consumers {
        assert_eq!(contradictions(&consumer.lines()), Vec::<String>::new());
        assert_eq!(consumer.errors().iter().filter(|line| line.contains("does not answer")).count(), 1);
    }
    all_say(&controllers, "counted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumers_of_the_documentation_are_the_smallest_examples() {
    let page = read("docs/clients.md");
    for (language, consumer, controller) in [
        ("go", "examples/go/pods/main.go", "examples/go/controller/main.go"),
        ("python", "examples/python/pods.py", "examples/python/controller.py"),
        ("rust", "examples/rust/src/bin/pods.rs", "examples/rust/src/bin/controller.rs"),
        ("typescript", "examples/typescript/pods.ts", "examples/typescript/controller.ts"),
    ] {
        let text = read(consumer);
        assert!(page.contains(&format!("```{language}\n{text}```")), "docs/clients.md shows another {consumer}");
        for file in [consumer, controller] {
            let lines = read(file).lines().count();
            let said = format!("[{lines}](../{file})");
            assert!(page.contains(&said), "docs/clients.md does not say that {file} has {lines} lines: {said}");
        }
    }
    let readme = read("clients/rust/README.md");
    assert!(readme.contains(&read("examples/rust/src/bin/pods.rs")), "the README of the crate shows another consumer");
    let server = sim::Server::builder().start().await.unwrap();
    let through = Through::before(&server, "").await;
    let programs = Program::all("pods", &[("INFORMERD_ADDRESS", &through.url)], &[]).await;
    all_say(&programs, "SYNCED").await;
}

/// Everything but the smallest consumers, which are run.
#[test]
fn the_snippets_of_the_documentation_are_compiled() {
    let page = read("docs/clients.md");
    let without_indentation = |text: &str| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    for (language, file) in [
        ("go", "clients/go/example_test.go"),
        ("python", "clients/python/tests/documented.py"),
        ("rust", "clients/rust/tests/it/documented.rs"),
        ("typescript", "clients/typescript/tests/documented.ts"),
    ] {
        let compiled = without_indentation(&read(file));
        let begin = format!("```{language}\n");
        let blocks: Vec<&str> = page.split(&begin).skip(2).map(|rest| rest.split_once("```").unwrap().0).collect();
        assert!(!blocks.is_empty(), "docs/clients.md has no snippet in {language}");
        for block in blocks {
            assert!(compiled.contains(&without_indentation(block)), "{file} does not have:\n{block}");
        }
    }
}

/// What was told twice, or of an object that is not held.
fn contradictions(lines: &[String]) -> Vec<String> {
    let mut held = BTreeMap::new();
    let mut wrong = vec![];
    for line in lines.iter().filter(|line| !line.starts_with("SYNCED")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = held.insert(words[1], words[2]);
        let right = match (words[0], before) {
            ("ADDED", None) => true,
            ("MODIFIED", Some(version)) => version != words[2],
            ("DELETED", Some(_)) => held.remove(words[1]).is_some(),
            _ => false,
        };
        if !right {
            wrong.push(format!("{line} after {before:?}"));
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_resource_ends_a_program_with_a_clear_error() {
    let server = sim::Server::builder().start().await.unwrap();
    let through = Through::before(&server, "").await;
    for mut program in Program::all("consumer", &[("INFORMERD_ADDRESS", &through.url)], &["v1/configmap"]).await {
        assert_eq!(within("the program ends", program.child.wait()).await.unwrap().code(), Some(1));
        let what = format!("informerd at {}, watch of v1/configmap: ", through.url);
        until(&what, async || {
            let errors = program.errors();
            errors.len() == 1 && errors[0].contains(&what) && errors[0].contains("kubectl api-resources")
        })
        .await;
    }
}

/// Answers HTTP/1.1 alone, as an admin listener does, until so many have come.
async fn something_else(listener: TcpListener, callers: usize) {
    for _ in 0..callers {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.ok();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_port_is_told_once_and_tried_again() {
    let server = sim::Server::builder().start().await.unwrap();
    // The programs connect again and again while nobody listens.
    let port = Port::free();
    let listener = TcpListener::bind(port.address).await.unwrap();
    let url = format!("http://{}", port.address);
    let programs = Program::all("consumer", &[("INFORMERD_ADDRESS", &url)], &["v1/configmaps"]).await;
    something_else(listener, 2 * LANGUAGES.len()).await;
    let told = |program: &Program, what: &str| {
        let errors = program.errors();
        errors.iter().filter(|line| line.contains(what) && line.contains(&url)).count()
    };
    let once = |program: &Program| told(program, "does not answer; trying again") == 1;
    until("one word of it", async || programs.iter().all(once)).await;
    let _through = Through::before(&server, &format!("listen: ['{url}']\n")).await;
    all_say(&programs, "SYNCED").await;
    for program in &programs {
        assert!(once(program), "{:?}", program.errors());
        assert_eq!(told(program, "answers again"), 1, "{:?}", program.errors());
    }
}
