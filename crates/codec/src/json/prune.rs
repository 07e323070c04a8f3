//! Removes parts of objects. Members are kept or dropped by path; their order and their bytes stay unchanged.

use std::collections::BTreeMap;

use super::scan::{Result, Scanner};

/// Which members to keep and which to drop. By default every member is kept. If any path is marked as kept, only the
/// marked paths are kept. A path applies to every element of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prune {
    keep: Option<Tree>,
    drop: Tree,
}

/// A tree of member names. A leaf stands for everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Tree(BTreeMap<Box<str>, Tree>);

/// A depth limit that no path of a Kubernetes type reaches.
const DEEPEST: usize = 512;

// === impl Prune ===

impl Prune {
    /// Keeps the value at this path. Everything that no call names is dropped.
    pub fn keep<'p>(&mut self, path: impl Iterator<Item = &'p str>) {
        let tree = self.keep.get_or_insert_default();
        let fresh = tree.0.is_empty();
        tree.add(path, fresh);
    }

    pub fn drop<'p>(&mut self, path: impl Iterator<Item = &'p str>) {
        let fresh = self.drop.0.is_empty();
        self.drop.add(path, fresh);
    }

    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.drop.0.is_empty()
    }

    /// # Errors
    /// When the bytes are not one JSON value.
    pub fn apply(&self, object: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(object.len());
        let mut scanner = Scanner::new(object);
        value(&mut scanner, self.keep.as_ref(), Some(&self.drop), 0, &mut out)?;
        scanner.end()?;
        Ok(out)
    }
}

// === impl Tree ===

impl Tree {
    /// `fresh` means that this call created the tree. An empty tree that is not fresh is a leaf that already covers
    /// everything below.
    fn add<'p>(&mut self, mut path: impl Iterator<Item = &'p str>, fresh: bool) {
        let Some(name) = path.next() else {
            self.0.clear();
            return;
        };
        if !fresh && self.0.is_empty() {
            return;
        }
        let known = self.0.contains_key(name);
        self.0.entry(name.into()).or_default().add(path, !known);
    }

    /// The subtree for a member: `None` if no path names it, an empty tree for the whole member, or a part of it.
    fn below(&self, name: &str) -> Option<&Self> {
        self.0.get(name)
    }
}

/// Copies the value at the scanner's position. `keep`: copy only these parts, or all if `None`. `drop`: omit these
/// parts.
fn value(
    scanner: &mut Scanner<'_>,
    keep: Option<&Tree>,
    drop: Option<&Tree>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let keep = keep.filter(|tree| !tree.0.is_empty());
    let drop = drop.filter(|tree| !tree.0.is_empty());
    let start = scanner.position();
    match scanner.peek()? {
        b'{' if keep.is_some() || drop.is_some() => {
            out.push(b'{');
            let mut first = true;
            scanner.object(|scanner, key| {
                let name = key.get();
                let kept = keep.map(|tree| tree.below(&name));
                let dropped = drop.and_then(|tree| tree.below(&name));
                if kept == Some(None) || dropped.is_some_and(|tree| tree.0.is_empty()) {
                    return scanner.skip_value();
                }
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                out.push(b'"');
                out.extend_from_slice(key.raw);
                out.extend_from_slice(b"\":");
                value(scanner, kept.flatten(), dropped, depth + 1, out)
            })?;
            out.push(b'}');
        }
        // Nested arrays may be deeper than the stack allows.
        b'[' if depth < DEEPEST && (keep.is_some() || drop.is_some()) => {
            out.push(b'[');
            scanner.array(|scanner, index| {
                if index > 0 {
                    out.push(b',');
                }
                value(scanner, keep, drop, depth + 1, out)
            })?;
            out.push(b']');
        }
        _ => {
            scanner.skip_value()?;
            out.extend_from_slice(scanner.since(start));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &[u8] = br#"{"kind":"Pod","metadata":{"name":"p","labels":{"a.b/c":"x","d":"y"},"managedFields":[{"a":1}]},"spec":{"containers":[{"name":"m","image":"i"},{"name":"n"}],"nodeName":"k"}}"#;

    fn pruned(keep: &[&[&str]], drop: &[&[&str]]) -> String {
        let mut prune = Prune::default();
        for path in keep {
            prune.keep(path.iter().copied());
        }
        for path in drop {
            prune.drop(path.iter().copied());
        }
        String::from_utf8(prune.apply(POD).unwrap()).unwrap()
    }

    /// The fuzz target `prune` does the same to a tree, but for the bytes that stay.
    #[test]
    fn keeps_and_drops_what_is_named() {
        assert_eq!(
            pruned(&[&["kind"], &["metadata", "labels", "a.b/c"], &["spec", "containers", "image"], &["no"]], &[]),
            r#"{"kind":"Pod","metadata":{"labels":{"a.b/c":"x"}},"spec":{"containers":[{"image":"i"},{}]}}"#
        );
        let spec = r#"{"spec":{"containers":[{"name":"m","image":"i"},{"name":"n"}],"nodeName":"k"}}"#;
        assert_eq!(pruned(&[&["spec", "nodeName"], &["spec"]], &[]), spec);
        assert_eq!(
            pruned(&[&["metadata"]], &[&["metadata", "managedFields"], &["metadata", "labels", "d"]]),
            r#"{"metadata":{"name":"p","labels":{"a.b/c":"x"}}}"#
        );
        assert_eq!(pruned(&[], &[]), std::str::from_utf8(POD).unwrap());
        for (arrays, inner) in [(DEEPEST - 1, "{}"), (DEEPEST, r#"{"b":1}"#)] {
            let text = |inner| format!(r#"{{"a":{}{inner}{}}}"#, "[".repeat(arrays), "]".repeat(arrays));
            let mut prune = Prune::default();
            prune.drop(["a", "b"].into_iter());
            assert_eq!(prune.apply(text(r#"{"b":1}"#).as_bytes()).unwrap(), text(inner).into_bytes());
        }
    }
}
