//! client-go's informers, run by the judge: what a client of the field sees of a server.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot have its informer is over")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout_at};

use super::process::patience::{STREAM, within};
use super::process::{self, parse};

/// What an informer holds: resourceVersions by `namespace/name`.
pub type State = BTreeMap<String, String>;

/// One line of `judge informer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `SYNCED` or `STATE`.
    pub t: String,
    pub key: String,
    pub uid: String,
    pub rv: String,
    /// The resourceVersion before; equal to `rv` when a relist found the object unchanged.
    pub old_rv: String,
    /// `ADDED` of an object that was there from the start.
    pub initial: bool,
    /// `DELETED` found out by a relist: the last state was never seen.
    pub unknown: bool,
    /// Of `STATE` only.
    pub items: State,
    /// Which of several informers in one process.
    pub i: usize,
}

/// A process with one or several informers.
pub struct Informer {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Every event so far, those of all informers in the order they were printed.
    pub events: Vec<Event>,
}

impl Informer {
    /// Starts an informer of `mode` (`typed`, `dynamic` or `metadata`) for `resource` (`GROUP/VERSION/RESOURCE`), with
    /// further flags of `judge informer` in `flags`.
    pub async fn start(kubeconfig: &Path, mode: &str, resource: &str, flags: &[&str]) -> Self {
        let mut child = process::command("informer", kubeconfig)
            .await
            .args(["--mode", mode, "--resource", resource])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the judge starts");
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        Self { child, stdin, lines, events: Vec::new() }
    }

    /// The next event, which is also kept in `events`; `None` when the process has ended.
    ///
    /// Dropping the future loses nothing, so a test may put a timeout around it.
    pub async fn next(&mut self) -> Option<Event> {
        let line = self.lines.next_line().await.expect("the informer's stdout is readable")?;
        let event: Event = parse(&line);
        self.events.push(event.clone());
        Some(event)
    }

    /// Waits for the next event that `wanted` accepts; panics when the process ends before, or when it does not come.
    pub async fn until(&mut self, mut wanted: impl FnMut(&Event) -> bool) -> Event {
        let bound = Instant::now() + STREAM;
        loop {
            let Ok(next) = timeout_at(bound, self.next()).await else {
                panic!("the event that is waited for has not come in {STREAM:?}; {}", self.last_events());
            };
            let Some(event) = next else { panic!("the informer has ended; {}", self.last_events()) };
            if wanted(&event) {
                return event;
            }
        }
    }

    fn last_events(&self) -> String {
        format!("the last events are {:#?}", self.events.iter().rev().take(5))
    }

    /// Waits until `count` informers (all of the process) have synced.
    pub async fn synced(&mut self, count: usize) {
        for _ in 0..count {
            self.until(|event| event.t == "SYNCED").await;
        }
    }

    /// Stops all informers of the process and returns their states and every event there was.
    ///
    /// Events still under way to the handlers are lost to it, so let the informer come to rest first.
    pub async fn stop(mut self) -> (Vec<State>, Vec<Event>) {
        self.stdin.write_all(b"\n").await.expect("the informer takes a line");
        let ended = async {
            while self.next().await.is_some() {}
            self.child.wait().await.expect("the informer ends")
        };
        let status = within("the informer has ended", ended).await;
        assert!(status.success(), "the informer failed: {status}");
        let states = self.events.iter().filter(|event| event.t == "STATE").map(|event| event.items.clone()).collect();
        (states, self.events)
    }
}
