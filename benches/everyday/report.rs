//! The figures of all patterns as a table, without informerd, with it, and the ratio.

use super::Pattern;
use super::meter::Cost;

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

pub(crate) struct Row {
    pattern: Pattern,
    without: Cost,
    with: Cost,
    /// Of informerd, its start included.
    own_cpu_seconds: f64,
    /// Reads that informerd answered, and that it forwarded by reason.
    served: f64,
    forwarded: Vec<(String, f64)>,
    compared: usize,
    unlike: Vec<String>,
}

// === impl Row ===

impl Row {
    /// `metrics`: informerd's, at its end.
    pub(crate) fn new(
        pattern: Pattern,
        without: Cost,
        with: Cost,
        own_cpu_seconds: f64,
        metrics: &str,
        compared: usize,
        unlike: Vec<String>,
    ) -> Self {
        let (mut served, mut forwarded) = (0.0, Vec::new());
        for line in metrics.lines().filter(|line| line.starts_with("informerd_reads_total{")) {
            let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse().ok()).unwrap_or(0.0);
            let reason = line.split_once("reason=\"").and_then(|(_, rest)| rest.split_once('"'));
            if line.contains(r#"plan="forward""#) && count > 0.0 {
                forwarded.push((reason.map_or_else(String::new, |(reason, _)| reason.to_owned()), count));
            } else if line.contains(r#"plan="serve""#) || line.contains(r#"plan="wait""#) {
                served += count;
            }
        }
        Self { pattern, without, with, own_cpu_seconds, served, forwarded, compared, unlike }
    }
}

// === impl Report ===

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("{:?}: {:?}\n{:?}\nunlike {:?}", row.pattern, row.without, row.with, row.unlike);
        self.rows.push(row);
    }

    pub(crate) fn unlike(&self) -> Vec<String> {
        self.rows.iter().flat_map(|row| row.unlike.iter().map(|what| format!("{:?}: {what}", row.pattern))).collect()
    }

    pub(crate) fn print(&self) {
        println!("\n| pattern | | requests | lists | gets | watches | others | MB sent | CPU s | etcd's CPU s | s |");
        println!("|---|---|---|---|---|---|---|---|---|---|---|");
        for Row { pattern, without, with, .. } in &self.rows {
            for (name, cost) in [("without", without), ("with", with)] {
                let (lists, gets, watches) = (cost.of("LIST"), cost.of("GET"), cost.of("WATCH"));
                println!(
                    "| {pattern:?} | {name} | {:.0} | {lists:.0} | {gets:.0} | {watches:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} |",
                    cost.total(),
                    cost.total() - lists - gets - watches,
                    cost.bytes as f64 / 1e6,
                    cost.cpu_seconds,
                    cost.etcd_cpu_seconds,
                    cost.wall_seconds,
                );
            }
            println!(
                "| {pattern:?} | ratio | {:.1} | | | | | {:.1} | {:.1} | {:.1} | |",
                without.total() / with.total().max(1.0),
                without.bytes as f64 / with.bytes.max(1) as f64,
                without.cpu_seconds / with.cpu_seconds.max(0.01),
                without.etcd_cpu_seconds / with.etcd_cpu_seconds.max(0.01),
            );
        }
        println!(
            "\n| pattern | reads answered by informerd | forwarded | answers compared | unlike | informerd's CPU s |\n|---|---|---|---|---|---|"
        );
        for Row { pattern, served, forwarded, compared, unlike, own_cpu_seconds, .. } in &self.rows {
            let all = served + forwarded.iter().map(|(_, count)| count).sum::<f64>();
            let reasons: Vec<_> = forwarded.iter().map(|(reason, count)| format!("{reason} {count:.0}")).collect();
            println!(
                "| {pattern:?} | {served:.0} of {all:.0} ({:.0} %) | {} | {compared} | {} | {own_cpu_seconds:.2} |",
                served * 100.0 / all.max(1.0),
                reasons.join(", "),
                unlike.len(),
            );
        }
    }
}
