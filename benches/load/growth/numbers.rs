//! What was measured, kept in a file to be drawn again, and how it is drawn.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::chart::{Chart, Panel, Unit};

/// Lines by what they show. Each has a value for each number of watchers or objects.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Numbers {
    /// Deliveries for each CPU second of the server.
    pub(crate) deliveries_http2: Vec<Line>,
    pub(crate) deliveries_http1: Vec<Line>,
    /// Microseconds of CPU for each request, or for each change.
    pub(crate) list: Vec<Line>,
    pub(crate) first_page: Vec<Line>,
    pub(crate) middle_page: Vec<Line>,
    pub(crate) get: Vec<Line>,
    pub(crate) change: Vec<Line>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Line {
    pub(crate) server: String,
    pub(crate) points: BTreeMap<usize, f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) left_out: BTreeMap<usize, String>,
}

// === impl Numbers ===

impl Numbers {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }

    /// The charts, by the names of their files.
    pub(crate) fn charts(&self) -> [(&'static str, Chart<'_>); 2] {
        let panel = |title, unit, lines| Panel { title, x: "objects", unit, lines };
        let watchers = |title, lines| Panel { title, x: "watchers", unit: Unit::Count, lines };
        let deliveries = Chart {
            title: "Deliveries for each CPU second of the server, by the number of watchers",
            panels: vec![
                watchers("HTTP/2 and gRPC", &self.deliveries_http2),
                watchers("HTTP/1.1", &self.deliveries_http1),
            ],
        };
        let requests = Chart {
            title: "CPU time of the server for each request and each change, by the number of objects",
            panels: vec![
                panel("a list of all objects", Unit::Micros, &self.list),
                panel("the first page of 500", Unit::Micros, &self.first_page),
                panel("a page of 500 in the middle", Unit::Micros, &self.middle_page),
                panel("a get", Unit::Micros, &self.get),
                panel("a change: written, or followed", Unit::Micros, &self.change),
            ],
        };
        [("growth-deliveries.svg", deliveries), ("growth-requests.svg", requests)]
    }
}

// === impl Line ===

impl Line {
    pub(crate) fn new(server: String) -> Self {
        Self { server, ..Self::default() }
    }

    /// A cost that cannot be told from none is left out.
    pub(crate) fn add(&mut self, at: usize, value: f64) {
        eprintln!("{}, {at}: {value:.1}", self.server);
        if value > 0.0 && value.is_finite() {
            self.points.insert(at, (value * 10.0).round() / 10.0);
        } else {
            self.leave_out(at, "too small to be measured".into());
        }
    }

    pub(crate) fn leave_out(&mut self, at: usize, why: String) {
        eprintln!("{}, {at}: {why}", self.server);
        self.left_out.insert(at, why);
    }
}
