//! Members kept and dropped by their paths: a line of paths, then an object, against the same done to a tree.

use informerd::codec::json::Prune;

use super::input::repeated;
use super::json::{Json, is_beyond, is_valid};

/// The names of one path.
type Path<'a> = &'a [&'a str];

pub fn check(data: &[u8]) {
    let data = &*repeated(data);
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, object) = data.split_at(at);
    let object = object.trim_ascii_start();
    let line = String::from_utf8_lossy(line);
    let (mut keep, mut drop) = (Vec::new(), Vec::new());
    let mut prune = Prune::default();
    for path in line.split(' ').take(16) {
        let (names, of) = match path.strip_prefix('-') {
            Some(path) => (path, &mut drop),
            None => (path, &mut keep),
        };
        let names: Vec<&str> = names.split('.').take(32).collect();
        if !names.iter().all(|name| name.is_empty()) {
            of.push(names);
        }
    }
    keep.iter().for_each(|path| prune.keep(path.iter().copied()));
    drop.iter().for_each(|path| prune.drop(path.iter().copied()));
    let pruned = prune.apply(object);
    if is_beyond(&pruned, object) {
        return;
    }
    assert_eq!(pruned.is_ok(), is_valid(object), "{pruned:?}");
    let (Ok(pruned), Some(json)) = (pruned, Json::read(object).filter(Json::is_whole)) else { return };
    let (keep, drop) = (paths(&keep), paths(&drop));
    let expected = rest(&json, Some(&keep).filter(|keep| !keep.is_empty()).map(|keep| &keep[..]), &drop);
    assert_eq!(Json::read(&pruned), Some(expected));
    assert!(pruned.len() <= object.len());
}

fn paths<'a>(of: &'a [Vec<&'a str>]) -> Vec<Path<'a>> {
    of.iter().map(Vec::as_slice).collect()
}

/// `keep` is nothing where all is kept.
fn rest(json: &Json, keep: Option<&[Path<'_>]>, drop: &[Path<'_>]) -> Json {
    match json {
        Json::Object(members) => {
            let kept = members.iter().filter_map(|(name, value)| {
                let (keep, drop) = (keep.map(|paths| below(paths, name)), below(drop, name));
                if keep.as_ref().is_some_and(Vec::is_empty) || drop.iter().any(|path| path.is_empty()) {
                    return None;
                }
                // A whole member is kept where a path ends at it.
                let keep = keep.filter(|paths| !paths.iter().any(|path| path.is_empty()));
                Some((name.clone(), rest(value, keep.as_deref(), &drop)))
            });
            Json::Object(kept.collect())
        }
        Json::Array(elements) => Json::Array(elements.iter().map(|element| rest(element, keep, drop)).collect()),
        _ => json.clone(),
    }
}

/// What follows this name in the paths that begin with it.
fn below<'p>(paths: &[Path<'p>], name: &str) -> Vec<Path<'p>> {
    paths
        .iter()
        .filter_map(|path| path.split_first())
        .filter(|(first, _)| **first == name)
        .map(|(_, rest)| rest)
        .collect()
}
