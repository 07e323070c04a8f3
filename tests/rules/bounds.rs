//! Each bound of the program is held to a test that goes to it and beyond: `tests/data/bounds.txt`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::program;

/// So many bounds have no test. Fewer is better; more is a mistake.
const WITHOUT: usize = 34;

/// A number whose name has one of these words is a bound.
const WORDS: &str = "MAX MOST LARGEST LONGEST DEEPEST WAITING ROOM ENTRIES HELD LASTING UNJUDGED SAYS BODIES DECODED \
    REDIRECTS";

/// The text of each source file, by its path in its room.
fn texts() -> BTreeMap<String, String> {
    let name = |file| program::in_room(file).to_str().unwrap().to_owned();
    program::files().iter().map(|file| (name(file), program::read(file))).collect()
}

/// The program in a file, without its tests.
fn untested<'t>(file: &str, text: &'t str) -> &'t str {
    if file.ends_with("tests.rs") {
        return "";
    }
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// The names of the numbers in a program that are bounds.
fn bounds(program: &str) -> impl Iterator<Item = &str> {
    program.lines().filter_map(|line| {
        let (_, declared) = line
            .split_once("const ")
            .filter(|(before, _)| before.trim_start().is_empty() || before.trim_start().starts_with("pub"))?;
        let (name, value) = declared.split_once(": ")?;
        let is_number = ["usize", "u8", "u16", "u32", "u64", "i64"].contains(&value.split(' ').next()?);
        let is_bound = name.split('_').any(|word| WORDS.split(' ').any(|known| known == word));
        (is_number && is_bound).then_some(name)
    })
}

/// The text of each test with this name.
fn tests<'t>(texts: &'t BTreeMap<String, String>, name: &str) -> Vec<&'t str> {
    let head = format!("fn {name}(");
    let of = |text: &'t str, at: usize| -> Option<&'t str> {
        let mut before = text[..at].rsplit('\n');
        let indent = before.next()?.chars().take_while(|c| *c == ' ').count();
        let mut attributes = before.map(str::trim_start).take_while(|line| line.starts_with("#["));
        attributes.find(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))?;
        text[at..].split(&format!("\n{}}}", " ".repeat(indent))).next()
    };
    texts.values().flat_map(|text| text.match_indices(&head).filter_map(|(at, _)| of(text, at))).collect()
}

#[test]
fn each_bound_is_held_to_a_test() {
    let texts = texts();
    let list = include_str!("../data/bounds.txt");
    let (mut listed, mut without) = (BTreeSet::new(), 0);
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let is_without = line.starts_with("- ");
        without += usize::from(is_without);
        let mut words = line.trim_start_matches("- ").splitn(4, ' ');
        let (file, bound, test) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        assert!(listed.insert((file, bound)), "{line}: twice");
        let stands = words.next().unwrap_or(bound);
        let is_tested = tests(&texts, test).iter().any(|test| test.contains(stands));
        assert!(is_without || is_tested, "{line}: no test of this name has {stands:?} in it");
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
