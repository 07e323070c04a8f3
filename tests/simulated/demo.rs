//! `informerd demo` as a newcomer meets it: the binary, its output, and the commands that it prints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Child;

use crate::support::binary::{BINARY, informerd};
use crate::support::client::Client;
use crate::support::lines::Lines;
use crate::support::metrics::sum;
use crate::support::{tied, within};

struct Demo {
    child: Child,
    lines: Lines,
}

impl Demo {
    fn start(line: &str) -> Self {
        let mut child = informerd(line).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(&mut child.stdout);
        Self { child, lines }
    }

    /// The next line with these words.
    async fn until(&mut self, words: &str) -> String {
        self.lines.until(words).await
    }

    async fn address(&mut self, name: &str) -> String {
        let line = self.until(name).await;
        line.split_whitespace().last().unwrap().trim_end_matches("/status").to_owned()
    }
}

/// The first line of the command's output.
async fn first_line(command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut command = tied::command(words.next().unwrap());
    command.args(words).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    Lines::of(&mut child.stdout).next().await.unwrap_or_default()
}

async fn served(admin: &Client) -> f64 {
    sum(&admin.metrics().await, "informerd_reads_total", &["plan=\"serve\",reason=\"\""])
}

/// `events 3,569 -> 390` as both numbers.
fn pair(line: &str, name: &str) -> (f64, f64) {
    let words = line.split_once(&format!("{name} ")).unwrap_or_else(|| panic!("{name} in {line}")).1;
    let (without, with) = words.split(", ").next().unwrap().split_once(" -> ").unwrap();
    let number = |text: &str| {
        let mut parts = text.split_whitespace();
        let number: f64 = parts.next().unwrap().replace(',', "").parse().unwrap();
        match parts.next() {
            Some("KiB") => number * 1024.0,
            Some("MiB") => number * 1024.0 * 1024.0,
            _ => number,
        }
    };
    (number(without), number(with))
}

fn all_saved(line: &str) -> bool {
    ["open watches", "events", "bytes", "CPU time"].iter().all(|name| {
        let (without, with) = pair(line, name);
        0.0 < with && with < without
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_what_is_saved_and_survives_its_outage() {
    let mut demo = Demo::start(
        "demo --listen http://127.0.0.1:0 --admin 127.0.0.1:0 --explain-header true --pods 60 --churn 100 \
         --outage-after 1s --outage 2s",
    );
    let url = demo.address("serving ").await;
    let admin_address = demo.address("status ").await;
    let admin = Client::new(&admin_address);
    demo.until("Try in another terminal").await;

    // gRPC forwards nothing: an answer with objects is one of the cache.
    let get = demo.until(" get pods ").await;
    assert!(first_line(&get).await.starts_with("team-1/"), "{get}");
    let watch = demo.until(" watch pods ").await;
    assert!(first_line(&watch).await.starts_with("ADDED    team-1/"), "{watch}");
    let curl = demo.until("curl ").await;
    let path = curl.split('\'').nth(1).unwrap().strip_prefix(&url).expect("a URL of the listener").to_owned();
    let before = served(&admin).await;
    let node = Client::new(&url).get(&path).await;
    assert_eq!(node.json()["kind"], "Node");
    let plan = node.headers["x-informerd-plan"].to_str().unwrap();
    assert!(plan.starts_with("serve"), "{plan}");
    assert!(served(&admin).await > before);
    let status = format!("{BINARY} status -o json --admin {}", admin_address.trim_start_matches("http://"));
    let status: Value = serde_json::from_str(&first_line(&status).await).unwrap();
    let mut programs = status["clients"].as_array().unwrap().iter().map(|client| client["program"].as_str().unwrap());
    assert!(programs.any(|program| program == concat!("informerd/", env!("CARGO_PKG_VERSION"))), "{status}");

    demo.until("The apiserver is cut off for 2s").await;
    demo.until("The apiserver is back").await;
    assert_eq!(demo.until("watches stayed open").await, "  51 of 51 watches stayed open (without informerd 0 of 51),");
    let lists = demo.until("lists of any state").await;
    let (answered, all) = lists.trim().split_once(" lists").unwrap().0.split_once(" of ").unwrap();
    assert!(answered == all && answered != "0", "{lists}");
    demo.until("watches of informerd follow the apiserver again").await;
    // The clients without informerd may still connect again.
    let mut lines: Vec<String> = Vec::new();
    while !lines.last().is_some_and(|line| all_saved(line)) {
        assert!(lines.len() < 5, "{lines:?}");
        lines.push(demo.until(" -> ").await);
    }

    tied::signal(demo.child.id().unwrap(), "INT");
    demo.until("the apiserver was spared:").await;
    demo.until(" of the events (").await;
    demo.until("Try while a demo runs").await;
    assert!(within("the demo ends", demo.child.wait()).await.unwrap().success());
    assert!(!demo.lines.text.contains('\x1b'), "colors in a file: {}", demo.lines.text);
}
