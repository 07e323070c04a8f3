//! How costs grow: a delivery with the watchers, a request and a change with the objects.

mod chart;
mod deliveries;
mod requests;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use chart::{Chart, Unit};
use serde::{Deserialize, Serialize};

use super::Options;
use super::fixture::Fixture;

/// What was measured, kept in a file to be drawn again.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Numbers {
    /// Deliveries for each CPU second, by the number of watchers.
    deliveries: Vec<Panel>,
    /// Microseconds of CPU, by the number of objects.
    requests: Vec<Panel>,
}

/// The servers that are compared in one respect.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Panel {
    title: String,
    lines: BTreeMap<String, Line>,
}

/// What one server has at each number of watchers or objects.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Line {
    points: BTreeMap<usize, f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<usize, String>,
}

const NUMBERS: &str = "growth.json";

pub(crate) async fn measure(fixture: &mut Fixture, directory: &Path, options: &Options) -> anyhow::Result<()> {
    let mut numbers = Numbers::default();
    numbers.keep(directory)?;
    deliveries::measure(fixture, &mut numbers.deliveries, options).await?;
    numbers.keep(directory)?;
    requests::measure(fixture, &mut numbers.requests, options).await?;
    numbers.keep(directory)?;
    numbers.print();
    Ok(())
}

/// Draws what an earlier run has kept.
pub(crate) fn redraw(directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(NUMBERS);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let numbers: Numbers = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    numbers.keep(directory)
}

/// Notes a value, or why there is none.
fn note(panels: &mut Vec<Panel>, title: &str, server: &str, at: usize, value: anyhow::Result<f64>) {
    let index = panels.iter().position(|panel| panel.title == title).unwrap_or_else(|| {
        panels.push(Panel { title: title.to_owned(), ..Panel::default() });
        panels.len() - 1
    });
    let line = panels[index].lines.entry(server.to_owned()).or_default();
    match value {
        Ok(value) => {
            eprintln!("{title}, {server}, {at}: {value:.1}");
            line.points.insert(at, (value * 10.0).round() / 10.0);
        }
        Err(error) => {
            eprintln!("{title}, {server}, {at}: {error:#}");
            line.left_out.insert(at, error.to_string());
        }
    }
}

// === impl Numbers ===

impl Numbers {
    /// Writes the numbers and the charts.
    fn keep(&self, directory: &Path) -> anyhow::Result<()> {
        let deliveries = Chart {
            title: "Deliveries for each CPU second of the server",
            x: "watchers",
            y: "deliveries for each CPU second",
            unit: Unit::Count,
            alike: true,
            panels: &self.deliveries,
        };
        let requests = Chart {
            title: "CPU time of the server for each request and each change",
            x: "objects",
            y: "CPU time",
            unit: Unit::Micros,
            alike: false,
            panels: &self.requests,
        };
        let text = serde_json::to_string_pretty(self)? + "\n";
        let files =
            [(NUMBERS, text), ("deliveries.svg", deliveries.to_string()), ("requests.svg", requests.to_string())];
        std::fs::create_dir_all(directory)?;
        for (name, text) in files {
            let path = directory.join(name);
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn print(&self) {
        for (unit, panels) in [("deliveries for each CPU second", &self.deliveries), ("CPU µs", &self.requests)] {
            for Panel { title, lines } in panels {
                for (index, (server, line)) in lines.iter().enumerate() {
                    let numbers = line.points.keys().chain(line.left_out.keys());
                    let sorted: BTreeMap<_, _> = numbers.map(|at| (at, line.points.get(at))).collect();
                    if index == 0 {
                        let heads: String = sorted.keys().map(|at| format!(" {at} |")).collect();
                        println!("\n{title}, {unit}:\n\n| server |{heads}\n|---|{}", "---|".repeat(sorted.len()));
                    }
                    let cell = |value: &Option<&f64>| value.map_or(" – |".into(), |value| format!(" {value:.0} |"));
                    println!("| {server} |{}", sorted.values().map(cell).collect::<String>());
                }
            }
        }
    }
}
