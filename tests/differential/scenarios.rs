//! Every scenario that the project's requirements number is shown by something, and what shows it is said.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use super::args::Phase;
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
const PHASES: &[(&str, Phase, &str)] = &[
    ("A26", Phase::Users, "what users with little rights are refused, and with which text"),
    ("B1-B9", Phase::Curated, "the vectors of tests/data/list-options.txt"),
    ("H1-H60", Phase::Curated, "the vectors of tests/data/selectors.txt"),
    ("C15, C16, E2-10, E2-11", Phase::Pages, "walks with and without a selector, while objects change"),
    ("E2-12, E2-16", Phase::Generated, "lists at revisions of the past, by match and selector"),
    ("E21, E22, E23", Phase::Watches, "from every revision of the churn, each event once and in order"),
    ("F1-F15", Phase::Watches, "objects that come into selections, leave them, are deleted slowly and come again"),
    ("G10, G11", Phase::Cuts, "connections that are cut and relists, under open watches"),
    ("G12, G15", Phase::Watches, "what ends early or speaks after an error is reported"),
];

/// Fails with the ids that nothing shows or that are none, and with the tests that do not exist.
pub(crate) fn are_accounted_for() -> Result<(), String> {
    let all: BTreeSet<String> =
        ALL.iter().flat_map(|(letter, numbers)| numbers.clone().map(move |n| format!("{letter}{n}"))).collect();
    let mut shown: BTreeSet<String> = rows::all().map(|row| row.id).filter(|id| id != "odd").collect();
    shown.extend(scripts::SHOWN.iter().map(|id| (*id).to_owned()));
    for ids in PHASES.iter().map(|row| row.0).chain(rows::LEFT_OUT.iter().map(|row| row.0)) {
        shown.extend(expanded(ids));
    }
    let mut wrong: Vec<String> = all.difference(&shown).map(|id| format!("nothing shows {id}")).collect();
    wrong.extend(shown.difference(&all).map(|id| format!("there is no {id}")));
    let tests = rows::LEFT_OUT.iter().flat_map(|row| row.2);
    wrong.extend(tests.filter(|test| !exists(test)).map(|test| format!("there is no test {test}")));
    // A look that finds everything finds nothing out.
    wrong.extend(
        Some("a test that is none is found".to_owned()).filter(|_| exists("tests/real/recovery.rs::no_such_test")),
    );
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ")) }
}

/// Whether the source of the test has a function of this name behind the attribute of a test, or within `proptest!`.
fn exists(test: &str) -> bool {
    let Some((file, name)) = test.split_once("::") else { return false };
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default();
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let starts = |line: &str| line.trim_start_matches("async ").starts_with(&format!("fn {name}("));
    lines.iter().enumerate().any(|(at, line)| {
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with(['#', '/']));
        starts(line) && above.clone().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
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
