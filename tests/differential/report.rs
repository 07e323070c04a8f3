//! What is said of differences: enough to see one, and to make it happen again by hand.

use std::fmt::Write;

use parking_lot::Mutex;

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
        pair: [&Endpoint; 2],
        asks: &[Ask; 2],
        said: &[Answer; 2],
        found: &[Difference],
    ) {
        self.count(&asks[0], said);
        if found.is_empty() {
            self.equal();
            return;
        }
        let mut more = String::new();
        for (endpoint, ask) in pair.iter().zip(asks) {
            let _ = writeln!(more, "  {}", curl(endpoint, ask));
        }
        for difference in found {
            let _ = writeln!(more, "  {difference}");
        }
        for (side, answer) in ["direct: ", "through:"].iter().zip(said) {
            let at = found.iter().find_map(|difference| match difference {
                Difference::Body { at, .. } | Difference::Ages { at } => Some(*at),
                _ => None,
            });
            let _ = writeln!(more, "  {side} {} {} {}", answer.status, answer.reason, excerpt(&answer.body, at));
        }
        self.wrong(what, &more);
    }
}

/// The request for a shell. Credentials are left to whoever runs it.
pub(crate) fn curl(endpoint: &Endpoint, ask: &Ask) -> String {
    let mut line = String::from("curl -sik --path-as-is");
    if ask.method == "HEAD" {
        line.push_str(" -I");
    } else if ask.method != "GET" {
        let _ = write!(line, " -X {}", ask.method);
    }
    if !ask.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent")) {
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
