//! A client in a process of its own, and what it prints.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot have its client is over")]

use std::process::Stdio;
use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::ledger::{Line, State, held};
use crate::support::patience::LONG;

/// A running client with one or several informers.
pub(crate) struct Client {
    pub name: String,
    informers: usize,
    /// A program that does not end by itself is killed when it is dropped.
    _child: Child,
    stdin: ChildStdin,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What was printed, and whether that was all.
    lines: Mutex<(Vec<Line>, bool)>,
    more: Notify,
    errors: Mutex<String>,
}

// === impl Client ===

impl Client {
    pub(crate) fn start(name: String, informers: usize, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        let mut stderr = child.stderr.take().expect("stderr is a pipe");
        let shared = Arc::new(Shared::default());
        let (out, errors) = (Arc::clone(&shared), Arc::clone(&shared));
        lifecycle::spawn("client stdout", async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or_else(|error| Line {
                    t: "ERROR".to_owned(),
                    message: format!("{error}: {line}"),
                    ..Line::default()
                });
                out.lines.lock().0.push(line);
                out.more.notify_waiters();
            }
            out.lines.lock().1 = true;
            out.more.notify_waiters();
        });
        lifecycle::spawn("client stderr", async move {
            let mut buffer = vec![0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                let mut errors = errors.errors.lock();
                // Its first words tell most, and nothing may fill the memory.
                if errors.len() < 1 << 16 {
                    errors.push_str(&String::from_utf8_lossy(&buffer[..read]));
                }
            }
        });
        Self { name, informers, _child: child, stdin, shared }
    }

    /// Waits until `enough` holds for the lines so far; says what there is when time is over or the client has ended.
    async fn wait(&self, what: &str, enough: impl Fn(&[Line]) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + LONG;
        loop {
            let more = self.shared.more.notified();
            tokio::pin!(more);
            // From here on no line goes unnoticed.
            more.as_mut().enable();
            let (met, ended) = {
                let lines = self.shared.lines.lock();
                (enough(&lines.0), lines.1)
            };
            if met {
                return Ok(());
            }
            if ended || timeout_at(deadline, more).await.is_err() {
                let lines = self.shared.lines.lock();
                let last: Vec<_> = lines.0.iter().rev().take(3).collect();
                let end = if ended { "it ended" } else { "time is over" };
                let errors = self.errors();
                return Err(format!("{}: {end} before {what}; its last lines: {last:?}\n{errors}", self.name));
            }
        }
    }

    /// Waits until all its informers have synced.
    pub(crate) async fn synced(&self) -> Result<(), String> {
        let all = |lines: &[Line]| lines.iter().filter(|line| line.t == "SYNCED").count() >= self.informers;
        self.wait("it synced", all).await
    }

    /// Waits until the events of all its informers lead to `state`.
    pub(crate) async fn holds(&self, state: &State) -> Result<(), String> {
        let all = |lines: &[Line]| (0..self.informers).all(|i| held(lines.iter().filter(|line| line.i == i)) == *state);
        self.wait("it saw everything", all).await
    }

    /// Stops it and returns what each of its informers printed.
    pub(crate) async fn stop(mut self) -> Result<Vec<Vec<Line>>, String> {
        self.stdin.write_all(b"\n").await.map_err(|error| format!("{}: {error}\n{}", self.name, self.errors()))?;
        let all = |lines: &[Line]| lines.iter().filter(|line| line.t == "STATE").count() >= self.informers;
        self.wait("it said its state", all).await?;
        let lines = std::mem::take(&mut self.shared.lines.lock().0);
        Ok((0..self.informers).map(|i| lines.iter().filter(|line| line.i == i).cloned().collect()).collect())
    }

    pub(crate) fn errors(&self) -> String {
        self.shared.errors.lock().clone()
    }
}
