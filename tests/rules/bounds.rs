//! Each bound of the program is held to a test that goes to it and beyond: `tests/data/bounds.txt`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::children::sources;
use crate::program;

/// So many bounds have no test. Fewer is better; more is a mistake.
const WITHOUT: usize = 41;

/// A number, or a time, whose name has one of these words is a bound.
const WORDS: &str = "MAX MOST LARGEST LONGEST DEEPEST WAITING ROOM ENTRIES HELD LASTING UNJUDGED SAYS BODIES DECODED \
    REDIRECTS AHEAD ATTEMPTS CONFIRMATIONS CONNECTIONS EXPIRED FREE KEPT LEVELS LIMIT ONCE PAGES PARALLEL PENDING POINTS \
    REBUILT REMEMBERED REQUESTS SHARE WATCHES";

const TYPES: [&str; 8] = ["usize", "u8", "u16", "u32", "u64", "u128", "i64", "Duration"];

/// The directory of the tests that start more than one module.
const LARGER: &str = "tests";

/// The text of each source file, by its path in its room, and of each file of the larger tests.
fn texts() -> BTreeMap<String, String> {
    let name = |file: &PathBuf| program::in_room(file).to_str().unwrap().to_owned();
    let mut texts: BTreeMap<_, _> = program::files().iter().map(|file| (name(file), program::read(file))).collect();
    let (root, mut larger) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    sources(&root.join(LARGER), &mut larger);
    for file in larger {
        let name = file.strip_prefix(root).unwrap().to_str().unwrap();
        texts.insert(name.to_owned(), fs::read_to_string(&file).unwrap());
    }
    texts
}

/// The program in a file, without its tests.
fn untested<'t>(file: &str, text: &'t str) -> &'t str {
    if file.ends_with("tests.rs") || Path::new(file).starts_with(LARGER) {
        return "";
    }
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// The names of the numbers and times in a program that are bounds.
fn bounds(program: &str) -> impl Iterator<Item = &str> {
    program.lines().filter_map(|line| {
        let (_, declared) = line
            .split_once("const ")
            .filter(|(before, _)| before.trim_start().is_empty() || before.trim_start().starts_with("pub"))?;
        let (name, value) = declared.split_once(": ")?;
        let is_number = TYPES.contains(&value.split(' ').next()?);
        let is_bound = name.split('_').any(|word| WORDS.split(' ').any(|known| known == word));
        (is_number && is_bound).then_some(name)
    })
}

/// The text of each test with this name in a file.
fn tests<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let head = format!("fn {name}(");
    let of = |at: usize| -> Option<&'t str> {
        let mut before = text[..at].rsplit('\n');
        let indent = before.next()?.chars().take_while(|c| *c == ' ').count();
        let mut attributes = before.map(str::trim_start).take_while(|line| line.starts_with("#["));
        attributes.find(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))?;
        text[at..].split(&format!("\n{}}}", " ".repeat(indent))).next()
    };
    text.match_indices(&head).filter_map(|(at, _)| of(at)).collect()
}

/// Whether the reason for a bound without a test of its own is that callers have the limit, and names a file and a test in it
/// that holds them to one. `None` for any other reason.
fn is_of_callers(texts: &BTreeMap<String, String>, reason: &str) -> Option<bool> {
    let (_, by) = reason.split_once("a limit of callers")?;
    let named = by.strip_prefix(": ").and_then(|by| by.split_once(' '));
    Some(named.is_some_and(|(file, test)| texts.get(file).is_some_and(|text| !tests(text, test).is_empty())))
}

#[test]
fn each_bound_is_held_to_a_test() {
    let texts = texts();
    let list = include_str!("../data/bounds.txt");
    let (mut listed, mut without) = (BTreeSet::new(), 0);
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let is_without = line.starts_with("- ");
        let mut words = line.trim_start_matches("- ").splitn(4, ' ');
        let (file, bound, test) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        assert!(listed.insert((file, bound)), "{line}: twice");
        let stands = words.next().unwrap_or(bound);
        let is_tested = texts.values().flat_map(|text| tests(text, test)).any(|test| test.contains(stands));
        assert!(is_without || is_tested, "{line}: no test of this name has {stands:?} in it");
        let of_callers = is_of_callers(&texts, line);
        assert!(of_callers.unwrap_or(true), "{line}: `a limit of callers: ` names a file and a test in it");
        without += usize::from(is_without && of_callers.is_none());
    }
    let programs = texts.iter().map(|(file, text)| (&**file, untested(file, text)));
    let there: BTreeSet<_> =
        programs.flat_map(|(file, program)| bounds(program).map(move |name| (file, name))).collect();
    assert!(there.len() > 100, "{there:?}");
    let new: Vec<_> = there.difference(&listed).collect();
    assert!(
        new.is_empty(),
        "tests/data/bounds.txt lacks {new:?}: test each at the bound and beyond, and name the test there"
    );
    let old: Vec<_> = listed.difference(&there).collect();
    assert!(old.is_empty(), "tests/data/bounds.txt has {old:?}, which the program has not");
    assert_eq!(without, WITHOUT, "bounds without a test");
}
