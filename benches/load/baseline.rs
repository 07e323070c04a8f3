//! What a unit of work costs, kept in a file, to notice when it costs more.
//!
//! Times of two machines, or of one machine on two days, cannot be compared. So the file has ratios: the processor time
//! of a list or a delivery, divided by what the first server needed for it in the same run, which is the
//! kube-apiserver.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};

/// Processor time for each unit of work, the first server's being 1, by kind of work and server.
pub(crate) type Units = BTreeMap<String, f64>;

/// A row that needs this much more than in the file is a regression.
const MOST: f64 = 1.10;

/// Writes the file.
pub(crate) fn record(path: &Path, units: &Units) -> anyhow::Result<()> {
    let rounded: BTreeMap<&String, f64> = units.iter().map(|(row, ratio)| (row, (ratio * 1e4).round() / 1e4)).collect();
    let text = serde_json::to_string_pretty(&rounded)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Prints each row of the file beside what was measured now.
///
/// # Errors
/// A row of informerd needs more than [`MOST`] times what it needed, or was not measured.
pub(crate) fn compare(path: &Path, now: &Units) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let before: Units = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    println!("\nProcessor time for each unit of work; the first server needs 1:\n");
    println!("| work | before | now | |\n|---|---|---|---|");
    let mut worse = Vec::new();
    for (row, before) in &before {
        let Some(now) = now.get(row) else {
            println!("| {row} | {before:.4} | – | |");
            worse.push(format!("{row}: not measured"));
            continue;
        };
        let ratio = now / before;
        // The other servers are there to be compared with.
        let is_ours = row.contains("informerd");
        let verdict = if ratio <= MOST {
            ""
        } else if is_ours {
            "more"
        } else {
            "more, a peer"
        };
        println!("| {row} | {before:.4} | {now:.4} | {ratio:.2} {verdict} |");
        if is_ours && ratio > MOST {
            worse.push(format!("{row}: {ratio:.2} times as much"));
        }
    }
    ensure!(worse.is_empty(), "more processor time than in {}:\n{}", path.display(), worse.join("\n"));
    Ok(())
}
