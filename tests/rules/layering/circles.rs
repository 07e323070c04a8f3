//! Holds the files of each room to an order: no two import each other, directly or around a corner.
//!
//! A file that shows what others define (`pub use`) imports nothing by that, nor by `mod`. Whoever imports such a name
//! imports the file that defines it. Test code may import more.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::Source;
use super::{made_up, program_sources};

/// Each file by its module.
type Files<'s> = BTreeMap<&'s [String], &'s Source>;
/// Which file imports which file of its room, and the names that it imports.
type Arrows<'s> = BTreeMap<&'s [String], BTreeMap<&'s [String], BTreeSet<String>>>;

/// Each circle of files, with its arrows.
fn circles(sources: &[Source]) -> Vec<String> {
    let test_modules: Vec<_> = sources.iter().flat_map(|source| &source.test_modules).collect();
    let is_test = |source: &&Source| source.is_test || test_modules.iter().any(|test| source.module.starts_with(test));
    let program = sources.iter().filter(|source| !source.module.is_empty() && !is_test(source));
    let files: Files<'_> = program.map(|source| (&source.module[..], source)).collect();
    let arrows = arrows(&files);
    let reached: BTreeMap<_, _> = files.keys().map(|file| (*file, reach(file, &arrows))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        circles.insert(others.iter().copied().filter(|other| reached[other].contains(file)).collect::<Vec<_>>());
    }
    circles.iter().filter(|circle| !circle.is_empty()).map(|circle| told(circle, &files, &arrows)).collect()
}

fn arrows<'s>(files: &Files<'s>) -> Arrows<'s> {
    let mut arrows = Arrows::new();
    for (from, source) in files {
        for path in source.paths.iter().filter(|path| !path.in_tests && path.shown_as.is_none()) {
            let Some(to) = definer(files, &path.segments).filter(|to| to != from && to[0] == from[0]) else { continue };
            let name = path.segments[path.segments.len().saturating_sub(2)..].join("::");
            arrows.entry(*from).or_default().entry(to).or_default().insert(name);
        }
    }
    arrows
}

/// The file that defines what a path names. None if that is a whole file, or outside.
fn definer<'s>(files: &Files<'s>, segments: &[String]) -> Option<&'s [String]> {
    let at = (1..=segments.len()).rev().find(|at| files.contains_key(&segments[..*at]))?;
    let (source, name) = (files[&segments[..at]], segments.get(at)?);
    let shown = source.paths.iter().find(|path| !path.in_tests && path.shown_as.as_ref() == Some(name));
    shown.map_or(Some(&source.module[..]), |path| definer(files, &[&path.segments[..], &segments[at + 1..]].concat()))
}

/// The files that a file imports, directly or through others.
fn reach<'s>(from: &'s [String], arrows: &Arrows<'s>) -> BTreeSet<&'s [String]> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(arrows.get(file).into_iter().flat_map(BTreeMap::keys).copied().filter(|to| reached.insert(*to)));
    }
    reached
}

fn told(circle: &[&[String]], files: &Files<'_>, arrows: &Arrows<'_>) -> String {
    let mut told = format!("{} files:", circle.len());
    for (from, imports) in circle.iter().filter_map(|from| Some((from, arrows.get(from)?))) {
        for (to, names) in imports.iter().filter(|(to, _)| circle.contains(to)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let [from, to] = [from, to].map(|module| files[module].file.display());
            told += &format!("\n    {from} -> {to}: {}", names.join(", "));
        }
    }
    told
}

#[test]
fn files_of_a_room_form_no_circles() {
    let circles = circles(&program_sources());
    assert!(
        circles.is_empty(),
        "{} circles of files. Move what both sides need into a file that both import:\n{}",
        circles.len(),
        circles.join("\n")
    );
}

#[test]
fn finds_circles_in_made_up_sources() {
    let found =
        |files: &[(&str, &str)]| circles(&files.iter().map(|(file, text)| made_up(file, text)).collect::<Vec<_>>());
    let facade = ("a/mod.rs", "mod x;\nmod y;\npub use x::X;\npub(crate) use self::y::{Y as Why, helper};");
    let y = ("a/y.rs", "use super::x;\npub struct Y;\npub fn helper() {}");

    // Both ways; through the facade, under another name and around a corner.
    let direct = found(&[("a/x.rs", "use super::y::Y;"), ("a/y.rs", "fn f() { crate::a::x::g() }")]);
    assert_eq!(direct, ["2 files:\n    src/a/x.rs -> src/a/y.rs: y::Y\n    src/a/y.rs -> src/a/x.rs: x::g"]);
    let shown = found(&[facade, ("a/x.rs", "use super::{Why, Other};"), ("a/y.rs", "use crate::a::X;")]);
    assert_eq!(shown, ["2 files:\n    src/a/x.rs -> src/a/y.rs: a::Why\n    src/a/y.rs -> src/a/x.rs: a::X"]);
    let corner = [facade, ("a/x.rs", "use crate::a::{Why::*, helper};"), ("a/z.rs", "use super::X;")];
    assert_eq!(found(&[&corner[..], &[("a/y.rs", "mod m { use super::super::z::Z; }")]].concat()).len(), 1);
    // A facade that does more than show.
    let does = ("a/mod.rs", "mod x;\npub use x::X;\nfn f() { x::g() }\npub struct S;");
    assert_eq!(found(&[does, ("a/x.rs", "use super::S;")]).len(), 1);

    // A facade that only shows; another room; tests and what only they have.
    assert!(found(&[facade, ("a/x.rs", "use super::Why;"), y]).is_empty());
    assert!(found(&[("a/x.rs", "use crate::b::y::Y;"), ("b/y.rs", "use crate::a::x::X;")]).is_empty());
    let tested = ("a/y.rs", "#[cfg(test)]\nmod tests { use crate::a::x::X; }\n#[cfg(test)]\nmod model;");
    assert!(found(&[("a/x.rs", "use super::y::Y;"), tested]).is_empty());
    let model = [("a/y/model.rs", "use crate::a::{x::X, y::Y};"), ("a/x.rs", "use super::y::{Y, model::M};")];
    assert!(found(&[&model[..], &[tested]].concat()).is_empty());
}
