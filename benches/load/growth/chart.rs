//! Lines on logarithmic axes, as SVG for light and dark pages. The panels of a chart have the same axis of values, so
//! that their lines can be compared.

use std::collections::BTreeSet;

use super::numbers::Line;

pub(crate) struct Chart<'a> {
    pub(crate) title: &'static str,
    pub(crate) panels: Vec<Panel<'a>>,
}

pub(crate) struct Panel<'a> {
    pub(crate) title: &'static str,
    /// What the numbers count.
    pub(crate) x: &'static str,
    pub(crate) unit: Unit,
    pub(crate) lines: &'a [Line],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Micros,
}

/// A logarithmic axis: values from `low` to `high` lie between two places.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// Panels of a row, unless there are fewer.
const COLUMNS: usize = 3;
const WIDTH: f64 = 920.0;
const ROW: f64 = 290.0;
/// Around the lines of a panel: left, right, above, below.
const MARGINS: [f64; 4] = [58.0, 18.0, 34.0, 42.0];
const HEAD: f64 = 40.0;
const LEGEND_LINE: f64 = 22.0;
const STYLE: &str = "
    .bg { fill: #ffffff } text { fill: #1f2328 } .small { font-size: 12px; fill: #57606a } .head { font-weight: 600 }
    .grid { stroke: #d8dee4; stroke-width: 1 }
    .line { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 5 4 }
    .apiserver { stroke: #6e7781 } .http2 { stroke: #0969da } .grpc { stroke: #8250df } .http1 { stroke: #1a7f37 }
    .plain { stroke: #0c7c8a } .peer { stroke: #bc4c00 }
    @media (prefers-color-scheme: dark) {
      .bg { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 }
      .grid { stroke: #30363d }
      .apiserver { stroke: #9198a1 } .http2 { stroke: #58a6ff } .grpc { stroke: #bc8cff } .http1 { stroke: #3fb950 }
      .plain { stroke: #39c5cf } .peer { stroke: #f0883e }
    }
  ";

// === impl Chart ===

impl Chart<'_> {
    pub(crate) fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let width = WIDTH / columns as f64;
        let below = HEAD + self.panels.len().div_ceil(columns) as f64 * ROW;
        let (low, high) = self.range();
        let mut drawn = String::new();
        for (index, panel) in self.panels.iter().enumerate() {
            let (left, top) = ((index % columns) as f64 * width, HEAD + (index / columns) as f64 * ROW);
            let [before, after, above, under] = MARGINS;
            let y = Axis { low, high, from: top + ROW - under, to: top + above };
            panel.draw(left + before, left + width - after, &y, &mut drawn);
        }
        let height = self.legend(below, &mut drawn);
        let title = self.title;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"title\" \
             font-family=\"system-ui, sans-serif\" font-size=\"14\">\n  <title id=\"title\">{title}</title>\n  \
             <style>{STYLE}</style>\n  <rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n  \
             <text class=\"head\" x=\"18\" y=\"26\">{title}</text>\n{drawn}</svg>\n"
        )
    }

    /// The values of all panels lie between these round numbers.
    fn range(&self) -> (f64, f64) {
        let values = || self.panels.iter().flat_map(|panel| panel.lines).flat_map(|line| line.points.values().copied());
        let low = values().reduce(f64::min).unwrap_or(1.0);
        let high = values().reduce(f64::max).unwrap_or(10.0);
        if is_wide(low, high) {
            return (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
        }
        let below = round_numbers(low / 10.0, low).last().unwrap_or(low);
        (below, round_numbers(high, high * 10.0).next().unwrap_or(high))
    }

    /// Draws what each line is, and why values are missing. Returns where it ends.
    fn legend(&self, top: f64, drawn: &mut String) -> f64 {
        let mut names: Vec<&str> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| panel.lines) {
            if !names.contains(&line.server.as_str()) {
                names.push(&line.server);
            }
        }
        let (columns, mut y) = (COLUMNS, top + 14.0);
        for (index, name) in names.iter().enumerate() {
            let x = 18.0 + (index % columns) as f64 * (WIDTH / columns as f64);
            y = top + 14.0 + (index / columns) as f64 * LEGEND_LINE;
            let middle = y - 5.0;
            drawn.push_str(&format!(
                "  <path class=\"{}\" d=\"M{x} {middle}h34\"/><text class=\"small\" x=\"{}\" y=\"{y}\">{name}</text>\n",
                classes(name),
                x + 42.0
            ));
        }
        for panel in &self.panels {
            for (line, (at, why)) in
                panel.lines.iter().flat_map(|line| line.left_out.iter().map(move |out| (line, out)))
            {
                y += LEGEND_LINE;
                let (name, title, x) = (&line.server, panel.title, panel.x);
                drawn.push_str(&format!(
                    "  <text class=\"small\" x=\"18\" y=\"{y}\">{title}, {name}, {at} {x}: {why}</text>\n"
                ));
            }
        }
        y + 16.0
    }
}

// === impl Panel ===

impl Panel<'_> {
    fn draw(&self, left: f64, right: f64, y: &Axis, drawn: &mut String) {
        let numbers: BTreeSet<usize> = self.lines.iter().flat_map(|line| line.points.keys().copied()).collect();
        let (first, last) = numbers.first().zip(numbers.last()).map_or((1, 10), |(first, last)| (*first, *last));
        let x = Axis { low: first as f64, high: last as f64, from: left + 10.0, to: right - 10.0 };
        let (title, middle) = (self.title, left.midpoint(right));
        drawn.push_str(&format!("  <text x=\"{left}\" y=\"{}\">{title}</text>\n", y.to - 12.0));
        let is_wide = is_wide(y.low, y.high);
        for value in round_numbers(y.low, y.high).filter(|value| !is_wide || is_power_of_ten(*value)) {
            let (at, label) = (y.place(value), self.unit.label(value));
            drawn.push_str(&format!(
                "  <path class=\"grid\" d=\"M{left} {at:.1}H{right}\"/><text class=\"small\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{label}</text>\n",
                left - 6.0,
                at + 4.0
            ));
        }
        for number in numbers {
            let (at, label) = (x.place(number as f64), Unit::Count.label(number as f64));
            drawn.push_str(&format!(
                "  <path class=\"grid\" d=\"M{at:.1} {}V{}\"/><text class=\"small\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{}\">{label}</text>\n",
                y.to,
                y.from,
                y.from + 16.0
            ));
        }
        let below = y.from + 32.0;
        drawn.push_str(&format!(
            "  <text class=\"small\" text-anchor=\"middle\" x=\"{middle}\" y=\"{below}\">{}</text>\n",
            self.x
        ));
        for line in self.lines {
            let place = |(number, value): (&usize, &f64)| (x.place(*number as f64), y.place(*value), *value, *number);
            let points: Vec<_> = line.points.iter().map(place).collect();
            let path: Vec<String> = points.iter().map(|(x, y, ..)| format!("{x:.1} {y:.1}")).collect();
            let classes = classes(&line.server);
            drawn.push_str(&format!("  <path class=\"{classes}\" d=\"M{}\"/>\n", path.join("L")));
            for (x, y, value, number) in points {
                let (name, value) = (&line.server, self.unit.label(value));
                drawn.push_str(&format!(
                    "  <circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"><title>{name}, {number}: {value}</title></circle>\n",
                    classes.trim_end_matches(" dashed")
                ));
            }
        }
    }
}

/// The colour of a server and its protocol. The lines of one thread are dashed.
fn classes(server: &str) -> String {
    let color = match server {
        _ if server.starts_with("kube-apiserver") => "apiserver",
        _ if !server.starts_with("informerd") => "peer",
        _ if server.contains("plain") => "plain",
        _ if server.contains("gRPC") => "grpc",
        _ if server.contains("HTTP/1.1") => "http1",
        _ => "http2",
    };
    let dashed = server.contains("1 thread") || server.starts_with("kube-apiserver, HTTP/1.1");
    format!("line {color}{}", if dashed { " dashed" } else { "" })
}

// === impl Axis ===

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let all = (self.high / self.low).ln();
        let part = if all > 0.0 { (value / self.low).ln() / all } else { 0.5 };
        self.from + (self.to - self.from) * part
    }
}

/// 1, 2 and 5 times each power of ten, from `low` to `high`, in ascending order.
fn round_numbers(low: f64, high: f64) -> impl Iterator<Item = f64> {
    const NEAR: f64 = 1.0 + 1e-9;
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let numbers = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * 10f64.powi(power)));
    numbers.filter(move |number| *number * NEAR >= low && *number <= high * NEAR)
}

/// Whether an axis has lines for powers of ten only.
fn is_wide(low: f64, high: f64) -> bool {
    high / low > 200.0
}

fn is_power_of_ten(value: f64) -> bool {
    (value.log10() - value.log10().round()).abs() < 1e-6
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
