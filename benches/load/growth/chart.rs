//! Lines on logarithmic axes, as SVG for light and dark pages.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result};

use super::{Line, Panel};

pub(crate) struct Chart<'a> {
    pub(crate) title: &'static str,
    /// What the numbers count, and what the values are.
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) unit: Unit,
    /// Whether all panels have the same axes.
    pub(crate) alike: bool,
    pub(crate) panels: &'a [Panel],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Micros,
}

/// A logarithmic axis: the values `low` and `high` are at the places `from` and `to`.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

const COLUMNS: usize = 2;
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 280.0;
const HEAD: f64 = 40.0;
/// Around the lines of a panel: left, right, above, below.
const MARGINS: [f64; 4] = [82.0, 22.0, 34.0, 44.0];
const LEGEND_WIDTH: f64 = 200.0;
const LEGEND_LINE: f64 = 20.0;
const STYLE: &str = "
    .bg { fill: #ffffff } text { fill: #1f2328 } .small { font-size: 12px; fill: #57606a } .head { font-weight: 600 }
    .grid { stroke: #d8dee4 } path.line { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 5 4 }
    .own { stroke: #0969da; fill: #0969da } .one { stroke: #8250df; fill: #8250df }
    .apiserver { stroke: #57606a; fill: #57606a } .peer { stroke: #bc4c00; fill: #bc4c00 }
    @media (prefers-color-scheme: dark) {
      .bg { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #30363d }
      .own { stroke: #58a6ff; fill: #58a6ff } .one { stroke: #bc8cff; fill: #bc8cff }
      .apiserver { stroke: #b1bac4; fill: #b1bac4 } .peer { stroke: #f0883e; fill: #f0883e }
    }
  ";

// === impl Chart ===

impl Display for Chart<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> Result {
        let Self { title, panels, .. } = self;
        let servers: BTreeSet<&str> = panels.iter().flat_map(|panel| panel.lines.keys()).map(String::as_str).collect();
        let missing =
            panels.iter().flat_map(|panel| panel.lines.iter().map(move |(server, line)| (panel, server, line)));
        let missing: Vec<_> = missing
            .flat_map(|(panel, server, line)| line.left_out.iter().map(move |(at, why)| (panel, server, at, why)))
            .collect();
        let below = HEAD + panels.len().div_ceil(COLUMNS) as f64 * HEIGHT;
        let width = COLUMNS as f64 * WIDTH;
        let height = below + (missing.len() + 1) as f64 * LEGEND_LINE + 12.0;
        writeln!(
            to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title\" \
             font-family=\"system-ui, sans-serif\" font-size=\"14\">\n  <title id=\"title\">{title}</title>\n  \
             <style>{STYLE}</style>\n  <rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n  \
             <text class=\"head\" x=\"18\" y=\"26\">{title}</text>"
        )?;
        for (index, panel) in panels.iter().enumerate() {
            let (column, row) = (index % COLUMNS, index / COLUMNS);
            self.panel(panel, column as f64 * WIDTH, HEAD + row as f64 * HEIGHT, to)?;
        }
        let mut y = below + 14.0;
        for (index, server) in servers.into_iter().enumerate() {
            let (x, middle) = (18.0 + index as f64 * LEGEND_WIDTH, y - 4.0);
            let (classes, text) = (classes(server), x + 42.0);
            writeln!(
                to,
                "  <path class=\"line {classes}\" d=\"M{x} {middle}h34\"/><text class=\"small\" x=\"{text}\" y=\"{y}\">{server}</text>"
            )?;
        }
        for (Panel { title, .. }, server, at, why) in missing {
            y += LEGEND_LINE;
            let why = why.replace('&', "&amp;").replace('<', "&lt;");
            writeln!(
                to,
                "  <text class=\"small\" x=\"18\" y=\"{y}\">{title}, {server}, {at} {}: {why}</text>",
                self.x
            )?;
        }
        writeln!(to, "</svg>")
    }
}

impl Chart<'_> {
    fn panel(&self, panel: &Panel, left: f64, top: f64, to: &mut Formatter<'_>) -> Result {
        let [before, after, above, under] = MARGINS;
        let (left, right, top, bottom) = (left + before, left + WIDTH - after, top + above, top + HEIGHT - under);
        let compared = if self.alike { self.panels } else { std::slice::from_ref(panel) };
        let lines = || compared.iter().flat_map(|panel| panel.lines.values());
        let (low, high) = bounds(lines().flat_map(|line| line.points.values().copied()));
        let y = Axis { low, high, from: bottom, to: top };
        let numbers: BTreeSet<usize> = lines().flat_map(|line| line.points.keys().copied()).collect();
        let ends = numbers.first().zip(numbers.last()).unwrap_or((&1, &10));
        let x = Axis { low: *ends.0 as f64, high: *ends.1 as f64, from: left + 12.0, to: right - 12.0 };

        writeln!(to, "  <text x=\"{left}\" y=\"{}\">{}</text>", top - 12.0, panel.title)?;
        let (across, down) = (left - 62.0, top.midpoint(bottom));
        writeln!(
            to,
            "  <text class=\"small\" text-anchor=\"middle\" transform=\"translate({across} {down})rotate(-90)\">{}</text>",
            self.y
        )?;
        let (middle, below) = (left.midpoint(right), bottom + 34.0);
        writeln!(to, "  <text class=\"small\" text-anchor=\"middle\" x=\"{middle}\" y=\"{below}\">{}</text>", self.x)?;
        for value in ticks(low, high) {
            let (at, label, text) = (y.place(value), self.unit.label(value), left - 6.0);
            writeln!(
                to,
                "  <path class=\"grid\" d=\"M{left} {at:.1}H{right}\"/><text class=\"small\" text-anchor=\"end\" x=\"{text}\" y=\"{:.1}\">{label}</text>",
                at + 4.0
            )?;
        }
        for number in numbers {
            let (at, label, text) = (x.place(number as f64), Unit::Count.label(number as f64), bottom + 17.0);
            writeln!(
                to,
                "  <path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/><text class=\"small\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{text}\">{label}</text>"
            )?;
        }
        panel.lines.iter().try_for_each(|(server, line)| self.line(server, line, &x, &y, to))
    }

    fn line(&self, server: &str, line: &Line, x: &Axis, y: &Axis, to: &mut Formatter<'_>) -> Result {
        let classes = classes(server);
        let points = || line.points.iter().map(|(at, value)| (x.place(*at as f64), y.place(*value), at, *value));
        if line.points.is_empty() {
            return Ok(());
        }
        let path: Vec<String> = points().map(|(x, y, ..)| format!("{x:.1} {y:.1}")).collect();
        writeln!(to, "  <path class=\"line {classes}\" d=\"M{}\"/>", path.join("L"))?;
        for (x, y, at, value) in points() {
            let (counted, value) = (self.x, self.unit.label(value));
            writeln!(
                to,
                "  <circle class=\"{classes}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{server}, {at} {counted}: {value}</title></circle>"
            )?;
        }
        Ok(())
    }
}

/// The colour of a server. informerd with one thread is dashed.
fn classes(server: &str) -> &'static str {
    match server {
        "kube-apiserver" => "apiserver",
        "informerd, 1 thread" => "one dashed",
        _ if server.starts_with("informerd") => "own",
        _ => "peer",
    }
}

// === impl Axis ===

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let all = (self.high / self.low).ln();
        let part = if all > 0.0 { (value / self.low).ln() / all } else { 0.5 };
        self.from + (self.to - self.from) * part
    }
}

/// The round numbers between which all values are.
fn bounds(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().reduce(f64::min).unwrap_or(1.0);
    let high = values.reduce(f64::max).unwrap_or(10.0);
    let below = round_numbers(low / 10.0, low).last().unwrap_or(low);
    (below, round_numbers(high.max(low * 2.0), high * 20.0).next().unwrap_or(high))
}

/// Those that are marked: powers of ten, and where there are few, all round numbers.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let all: Vec<f64> = round_numbers(low, high).collect();
    let powers = all.iter().copied().filter(|value| (value.log10() - value.log10().round()).abs() < 1e-6);
    if all.len() > 12 { powers.collect() } else { all }
}

/// Powers of ten, twice and five times them, from `low` to `high`.
fn round_numbers(low: f64, high: f64) -> impl Iterator<Item = f64> {
    const NEAR: f64 = 1.0 + 1e-9;
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * 10f64.powi(power)));
    all.filter(move |value| *value * NEAR >= low && *value <= high * NEAR)
}

// === impl Unit ===

impl Unit {
    fn label(self, value: f64) -> String {
        let steps = match self {
            Self::Count => [(1e6, "M"), (1e3, "k"), (1.0, "")],
            Self::Micros => [(1e6, " s"), (1e3, " ms"), (1.0, " µs")],
        };
        let (step, name) = steps.into_iter().find(|(step, _)| value >= *step).unwrap_or(steps[2]);
        let scaled = value / step;
        let digits = usize::from(scaled < 10.0 && (scaled - scaled.round()).abs() > 0.05);
        format!("{scaled:.digits$}{name}")
    }
}
