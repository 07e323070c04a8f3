//! What `tests/data/mutants.txt` says of the code is about code that is there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use crate::program;

#[test]
fn each_mutant_that_lives_is_of_code_that_is_there() {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let files = program::files();
    let list = include_str!("../data/mutants.txt");
    let mutants: Vec<_> = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(!mutants.is_empty());
    for line in mutants {
        let (place, code) = line.split_once(": ").unwrap();
        let (code, _) = code.split_once(" => ").unwrap();
        let (file, function) = place.split_once(' ').unwrap();
        let file = files.iter().find(|path| program::in_room(path) == Path::new(file)).unwrap();
        let text = program::read(file);
        let function = text.find(&format!("fn {function}")).map(|at| squeezed(&text[at..]));
        assert!(function.is_some_and(|text| text.contains(&squeezed(code))), "{line}");
    }
}
