//! `informerd explain`: how a request would be answered.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::terminal::escaped;

/// The prediction for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// `served`, `waited`, `forwarded` or `refused`, as in `X-Informerd-Plan`.
    pub plan: String,
    /// The reason, as in that header; empty if there is none.
    pub reason: String,
    pub cause: String,
    /// What to change; empty if nothing can be done.
    pub change: String,
    /// The informer whose cache answers; empty if none does.
    pub informer: String,
    /// What differs on listeners that authenticate their clients; empty if nothing does.
    pub authenticating: String,
}

// === impl Explanation ===

impl Explanation {
    /// The lines for a terminal. `target`: what was asked about.
    pub fn render(&self, target: &str) -> String {
        let Self { plan, reason, cause, change, informer, authenticating } = self;
        let [plan, reason, cause, change, informer, authenticating] =
            [plan, reason, cause, change, informer, authenticating].map(|text| escaped(text));
        // The request was not sent.
        let would = match plan.as_str() {
            "waited" => "would wait".to_owned(),
            other => format!("would be {other}"),
        };
        let mut text = format!("GET {target}\n{would}");
        // Writing to a String cannot fail.
        let _ = if reason.is_empty() { writeln!(text) } else { writeln!(text, ": {reason}") };
        let _ = writeln!(text, "  why     {cause}");
        for (name, value) in [("change  ", change), ("cache   ", informer)] {
            if !value.is_empty() {
                let _ = writeln!(text, "  {name}{value}");
            }
        }
        if !authenticating.is_empty() {
            let _ = writeln!(text, "on a listener that authenticates its clients: {authenticating}");
        }
        text
    }
}
