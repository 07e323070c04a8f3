//! What is said of differences: enough to see one, and to make it happen again by hand.

use std::fmt::Write;
use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::compare::Difference;
use super::served::Tally;
use super::wire::{Answer, Ask, Endpoint};

/// Bytes shown around the first that differs.
const AROUND: usize = 160;
/// Differences shown whole; of more only the first line.
const WHOLE: usize = 60;

/// Counts what was compared and keeps what differed. Shared by whatever compares at the same time.
#[derive(Default)]
pub(crate) struct Report {
    inner: Mutex<Inner>,
    /// Says nothing while it runs: for what is meant to differ.
    quiet: bool,
    /// What is said behind each difference.
    of: String,
}

#[derive(Default)]
struct Inner {
    compared: u64,
    different: Vec<String>,
    /// `(what, why)` of rows that a running server cannot show.
    left_out: Vec<(String, String)>,
    /// Since it was last taken.
    tally: Tally,
}

// === impl Report ===

impl Report {
    pub(crate) fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }

    /// One for a part of what this one is for: each difference says which.
    pub(crate) fn another(&self, of: String) -> Self {
        Self { quiet: self.quiet, of, ..Self::default() }
    }

    pub(crate) fn compared(&self) -> u64 {
        self.inner.lock().compared
    }

    pub(crate) fn different(&self) -> Vec<String> {
        self.inner.lock().different.clone()
    }

    pub(crate) fn left_out(&self) -> Vec<(String, String)> {
        self.inner.lock().left_out.clone()
    }

    pub(crate) fn equal(&self) {
        self.inner.lock().compared += 1;
    }

    /// Counts answers that were compared.
    pub(crate) fn count(&self, ask: &Ask, said: &[Answer; 2]) {
        self.inner.lock().tally.add(ask, said);
    }

    pub(crate) fn take_tally(&self) -> Tally {
        std::mem::take(&mut self.inner.lock().tally)
    }

    /// Takes what another has found, and counted: `tally`.
    pub(crate) fn merge(&self, other: &Self, tally: Tally) {
        let mut other = other.inner.lock();
        let mut inner = self.inner.lock();
        inner.compared += other.compared;
        inner.different.append(&mut other.different);
        inner.tally.merge(tally);
    }

    pub(crate) fn leave_out(&self, what: &str, why: &str) {
        self.inner.lock().left_out.push((what.to_owned(), why.to_owned()));
    }

    /// Something is wrong, `what` in one line, `more` in several.
    pub(crate) fn wrong(&self, what: &str, more: &str) {
        let (what, mut inner) = (format!("{what}{}", self.of), self.inner.lock());
        inner.compared += 1;
        inner.different.push(what.clone());
        if self.quiet {
            return;
        }
        if inner.different.len() <= WHOLE {
            println!("DIFFERENT {what}\n{more}");
        } else {
            println!("DIFFERENT {what}");
        }
    }

    /// The outcome of one comparison; both requests may have been worded by what each side had said before.
    pub(crate) fn outcome(
        &self,
        what: &str,
        pair: &[Endpoint; 2],
        asks: &[Ask; 2],
        said: &[Answer; 2],
        found: &[Difference],
    ) {
        self.count(&asks[0], said);
        let mut wrong: Vec<_> = found.iter().map(Difference::to_string).collect();
        let at = found.iter().find_map(|difference| match difference {
            Difference::Body { at, .. } | Difference::Ages { at } => Some(*at),
            _ => None,
        });
        for (side, answer) in ["direct: ", "through:"].iter().zip(said).filter(|_| !found.is_empty()) {
            wrong.push(format!("{side} {} {} {}", answer.status, answer.reason, excerpt(&answer.body, at)));
        }
        self.judged(what, pair, asks, &wrong);
    }

    /// Nothing is wrong with the answers to two requests, or this.
    pub(crate) fn judged(&self, what: &str, pair: &[Endpoint; 2], asks: &[Ask; 2], wrong: &[String]) {
        if wrong.is_empty() {
            return self.equal();
        }
        let requests = pair.iter().zip(asks).map(|(endpoint, ask)| curl(endpoint, ask));
        let lines: Vec<_> = requests.chain(wrong.iter().cloned()).map(|line| format!("  {line}\n")).collect();
        self.wrong(what, &lines.concat());
    }
}

/// Does all of this, so much at once. What panics is reported.
pub(crate) async fn at_once<F>(what: &str, most: usize, work: impl Iterator<Item = F>, report: &Report)
where
    F: Future<Output = ()> + Send + 'static,
{
    let gate = Arc::new(Semaphore::new(most));
    let mut tasks = Vec::new();
    for one in work {
        let Ok(permit) = Arc::clone(&gate).acquire_owned().await else { return };
        tasks.push(lifecycle::spawn("differential", async move {
            one.await;
            drop(permit);
        }));
    }
    for task in tasks {
        if let Err(error) = task.await {
            report.wrong(&format!("{what}: the harness itself"), &format!("  {error}\n"));
        }
    }
}

/// The request for a shell. Credentials are left to whoever runs it.
fn curl(endpoint: &Endpoint, ask: &Ask) -> String {
    let mut line = String::from("curl -sik --path-as-is");
    if ask.method == "HEAD" {
        line.push_str(" -I");
    } else if ask.method != "GET" {
        let _ = write!(line, " -X {}", ask.method);
    }
    if !ask.has("user-agent") {
        line.push_str(" -A differential");
    }
    for (name, value) in &ask.headers {
        let _ = write!(line, " -H '{name}: {}'", value.replace('\'', r"'\''"));
    }
    if let Some(body) = &ask.body {
        let _ = write!(line, " --data-binary '{}'", body.replace('\'', r"'\''"));
    }
    let target = ask.target.replace('\'', r"'\''");
    if target.starts_with('/') {
        let _ = write!(line, " '{}{target}'", endpoint.url());
    } else {
        let _ = write!(line, " --request-target '{target}' '{}'", endpoint.url());
    }
    line
}

/// The bytes around a place, as text.
pub(crate) fn excerpt(body: &[u8], at: Option<usize>) -> String {
    let middle = at.unwrap_or(0).min(body.len());
    let (from, to) = (middle.saturating_sub(AROUND), (middle + AROUND).min(body.len()));
    let before = if from > 0 { format!("[{from} bytes]…") } else { String::new() };
    let after = if to < body.len() { format!("…[{} bytes]", body.len() - to) } else { String::new() };
    let text: String = body[from..to].iter().map(|&byte| printable(byte)).collect();
    format!("{before}{text}{after}")
}

fn printable(byte: u8) -> String {
    match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        b'\n' => "⏎".to_owned(),
        other => format!("\\x{other:02x}"),
    }
}
