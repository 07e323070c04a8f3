//! The holes of the past can still be put back: `tests/holes/run` shows that a test finds each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use crate::children::sources;
use crate::program;

/// The files that a patch changes, and of each change the lines before it and after it.
fn hunks(patch: &str) -> Vec<(&str, String, String)> {
    let (mut file, mut hunks) = ("", Vec::<(&str, String, String)>::new());
    for line in patch.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = name;
        } else if line.starts_with("@@ ") {
            hunks.push((file, String::new(), String::new()));
        } else if let Some((_, before, after)) =
            hunks.last_mut().filter(|_| !line.starts_with("diff ") && !line.starts_with("--- "))
        {
            let text = format!("{}\n", line.get(1..).unwrap_or_default());
            match line.chars().next() {
                Some('-') => *before += &text,
                Some('+') => *after += &text,
                _ => {
                    *before += &text;
                    *after += &text;
                }
            }
        }
    }
    hunks
}

#[test]
fn each_hole_can_be_put_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("tests/holes/table")).unwrap();
    let readme = fs::read_to_string(root.join("tests/README.md")).unwrap();
    let mut files = program::files();
    sources(&root.join("tests"), &mut files);
    let files: Vec<String> = files.iter().map(program::read).collect();
    let mut count = 0;
    for entry in fs::read_dir(root.join("tests/holes")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".patch") else { continue };
        assert!(table.lines().any(|line| line.split(' ').next() == Some(name)), "tests/holes/table lacks {name}");
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("tests/README.md lacks {name}"));
        let test = row.rsplit('`').nth(1).and_then(|test| test.rsplit("::").next()).unwrap();
        let is_there = files.iter().any(|text| text.contains(&format!("fn {test}(")));
        assert!(is_there, "{name} is found by {test}, which does not exist");
        let patch = fs::read_to_string(entry.path()).unwrap();
        let hunks = hunks(&patch);
        assert!(!hunks.is_empty(), "{name}");
        for (file, before, after) in hunks {
            let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
            assert!(
                before != after && text.contains(&before),
                "tests/holes/{name}.patch does not apply to {file} any more; it wants\n{before}"
            );
        }
        count += 1;
    }
    assert!(count >= 6, "{count}");
}
