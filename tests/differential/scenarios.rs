//! Every scenario that the project's requirements number is shown by something, and what shows it is said.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::rows;
use super::scripts;

/// Their ids. `H1` to `H60` are the vectors of `tests/data/selectors.txt`.
const ALL: &[(&str, RangeInclusive<u32>)] = &[
    ("A", 1..=26),
    ("B", 1..=16),
    ("C", 1..=35),
    ("D", 1..=7),
    ("E", 1..=26),
    ("E2-", 1..=17),
    ("F", 1..=15),
    ("G", 1..=19),
    ("H", 1..=72),
    ("I", 1..=29),
    ("J", 1..=10),
];

/// What phases show that have no rows, and how.
const PHASES: &[(&str, &str)] = &[
    ("B1-B9", "curated: the vectors of tests/data/list-options.txt"),
    ("H1-H60", "curated: the vectors of tests/data/selectors.txt"),
    ("C15, C16, E2-10, E2-11", "pages: walks with and without a selector, while objects change"),
    ("E2-12, E2-16", "generated: lists at revisions of the past, by match and selector"),
    ("E21, E22, E23", "watches: from every revision of the churn, each event once and in order"),
    ("F1-F15", "watches: objects that come into selections, leave them, are deleted slowly and come again"),
    ("G12, G15", "watches: what ends early or speaks after an error is reported"),
];

/// Fails with the ids that nothing shows, or that are none.
pub(crate) fn are_accounted_for() -> Result<(), String> {
    let all: BTreeSet<String> =
        ALL.iter().flat_map(|(letter, numbers)| numbers.clone().map(move |n| format!("{letter}{n}"))).collect();
    let mut shown: BTreeSet<String> =
        rows::all().map(|row| row.0).filter(|id| *id != "odd").map(String::from).collect();
    shown.extend(scripts::SHOWN.iter().map(|id| (*id).to_owned()));
    for (ids, _) in PHASES.iter().chain(rows::LEFT_OUT) {
        shown.extend(expanded(ids));
    }
    let named = |set: Vec<&String>| set.into_iter().cloned().collect::<Vec<_>>().join(" ");
    match (named(all.difference(&shown).collect()), named(shown.difference(&all).collect())) {
        (missing, odd) if missing.is_empty() && odd.is_empty() => Ok(()),
        (missing, odd) => Err(format!("nothing shows [{missing}], and there is no [{odd}]")),
    }
}

/// `G1, G6` and `F1-F15`; words are no ids.
fn expanded(ids: &str) -> Vec<String> {
    let mut found = Vec::new();
    for id in ids.split(", ") {
        let number = |id: &str| id.get(1..).and_then(|number| number.parse::<u32>().ok());
        match id.split_once('-') {
            Some((first, last)) if first.get(..1) == last.get(..1) => {
                let (Some(from), Some(to)) = (number(first), number(last)) else { continue };
                found.extend((from..=to).map(|n| format!("{}{n}", &first[..1])));
            }
            _ if id.bytes().last().is_some_and(|byte| byte.is_ascii_digit()) => found.push(id.to_owned()),
            _ => {}
        }
    }
    found
}
