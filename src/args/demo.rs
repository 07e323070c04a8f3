//! The command line of `informerd demo`.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command as Clap};

use super::exit::{Exit, fail};
use crate::config::{Mistake, Origin, parse_duration};

/// The size of the simulated cluster, its clients, and its outage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoArgs {
    pub nodes: u32,
    pub pods: u32,
    pub namespaces: u32,
    /// Changes a second.
    pub churn: u32,
    pub seed: u64,
    /// Clients that watch.
    pub watchers: u32,
    /// The simulated apiserver is cut off this long after the start, if at all.
    pub outage_after: Option<Duration>,
    /// For how long it is cut off.
    pub outage: Duration,
    /// The demo ends by itself after this time.
    pub duration: Option<Duration>,
}

/// A numeric flag of the demo: flag, default, smallest, largest, help.
const NUMBERS: &[(&str, u64, u64, u64, &str)] = &[
    ("nodes", 20, 1, 5_000, "simulated nodes"),
    ("pods", 500, 0, 50_000, "simulated pods"),
    ("namespaces", 10, 1, 1_000, "simulated namespaces"),
    ("churn", 20, 0, 10_000, "changes a second"),
    ("seed", 1, 0, u64::MAX, "seed of the simulation; the same seed makes the same cluster"),
    ("watchers", 50, 0, 1_000, "clients that watch"),
];

const DURATIONS: &[(&str, &str)] = &[
    ("outage-after", "cut the apiserver off this long after the start; 0s disables it [default: 20s]"),
    ("outage", "how long the apiserver is cut off [default: 10s]"),
    ("for", "end after this time, such as 30s"),
];
const OUTAGE_AFTER: Duration = Duration::from_secs(20);
const OUTAGE: Duration = Duration::from_secs(10);

/// Settings that have no meaning for the demo, which has its own apiserver.
pub(super) const NOT_IN_DEMO: &[&str] = &["kubeconfig", "context"];

pub(super) fn command() -> Clap {
    Clap::new("demo")
        .hide(!cfg!(feature = "demo"))
        .about("Serve a simulated cluster, to try informerd without a cluster")
        .args(NUMBERS.iter().map(|(name, default, least, most, help)| {
            let bounds = if *most == u64::MAX { String::new() } else { format!(", {least} to {most}") };
            Arg::new(*name).long(*name).value_name("N").help(format!("{help}{bounds} [default: {default}]"))
        }))
        .args(DURATIONS.iter().map(|(name, help)| Arg::new(*name).long(*name).value_name("duration").help(*help)))
}

pub(super) fn demo_args(matches: &ArgMatches) -> Result<DemoArgs, Exit> {
    let mut mistakes = Vec::new();
    let mut wrong = |name: &str, message: String| {
        mistakes.push(Mistake::new(Origin::Flag(format!("--{name}")), message));
    };
    let mut number = |name: &str| {
        let (_, default, least, most, _) = NUMBERS.iter().find(|(known, ..)| *known == name)?;
        let Some(text) = matches.get_one::<String>(name) else { return Some(*default) };
        let number = text.replace('_', "").parse::<u64>().ok().filter(|number| (least..=most).contains(&number));
        if number.is_none() {
            wrong(name, format!("{text:?} is no number from {least} to {most}"));
        }
        number
    };
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
    let (nodes, pods, namespaces) = (small(number("nodes")), small(number("pods")), small(number("namespaces")));
    let (churn, seed) = (small(number("churn")), number("seed").unwrap_or_default());
    let watchers = small(number("watchers"));
    let mut time = |name: &str| {
        let text = matches.get_one::<String>(name)?;
        parse_duration(text).map_err(|message| wrong(name, message)).ok()
    };
    let (after, outage, duration) = (time("outage-after"), time("outage"), time("for"));
    fail(mistakes)?;
    Ok(DemoArgs {
        nodes,
        pods,
        namespaces,
        churn,
        seed,
        watchers,
        outage_after: Some(after.unwrap_or(OUTAGE_AFTER)).filter(|after| !after.is_zero()),
        outage: outage.unwrap_or(OUTAGE),
        duration,
    })
}
