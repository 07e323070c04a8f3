//! YAML as kubectl reads it: go-yaml v2 decides what a scalar is (YAML 1.1), and `sigs.k8s.io/yaml` makes JSON of it.
//! What only Go refuses may be accepted here: directives, control characters, aliases that grow much but not too much.

mod mend;
mod scalar;

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError};
use serde_json::{Map, Value};

use self::mend::mended;
use self::scalar::Scalar;

/// What is nested deeper is refused. Go goes to 10,000, on a stack that grows.
const MOST_NESTED: usize = 1_000;
/// How much anchors and aliases may copy, in bytes of text and [`NODE`]s. Go takes at most 400,000 nodes from aliases.
const LARGEST_COPIED: usize = 32 << 20;
/// What a node counts beside its text.
const NODE: usize = 64;

/// The first document, whatever follows it; null if there is none. The last of several members with one name counts.
///
/// # Errors
/// kubectl refuses it too, or it is too large once its aliases are replaced.
pub(super) fn first_document(text: &str) -> Result<Value, String> {
    let mut text = Cow::Borrowed(text);
    let mut left = usize::MAX;
    // The parser starts anew after each mending. A text with more of them is refused.
    for _ in 0..1_000 {
        let error = match parse(&text) {
            Err(Wrong::Syntax(error)) => error,
            Err(Wrong::Meaning(error)) => return Err(error),
            Ok(value) => return Ok(value),
        };
        match mended(&text, &error) {
            Some((mended, behind)) if behind < left => (text, left) = (Cow::Owned(mended), behind),
            _ => return Err(error.to_string()),
        }
    }
    Err("the quoted texts in it have too many lines".to_owned())
}

enum Wrong {
    Syntax(ScanError),
    Meaning(String),
}

fn parse(text: &str) -> Result<Value, Wrong> {
    let options = granit_parser::options! {
        flow_nesting_limit: MOST_NESTED,
        block_nesting_limit: MOST_NESTED,
        emit_comments: false,
    };
    let mut document = Document::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(Wrong::Syntax)?;
        let done = document.take(event).and_then(|root| root.map(Node::value).transpose());
        let done = done.map_err(|error| Wrong::Meaning(format!("line {}: {error}", span.start.line())))?;
        if let Some(root) = done {
            return Ok(root);
        }
    }
    Ok(Value::Null)
}

#[derive(Clone)]
enum Node {
    Scalar(Scalar),
    /// An array or an object.
    Whole(Value),
}

enum Key {
    Name(String),
    /// `<<`
    Merge,
}

/// A collection that has not ended.
struct Open {
    anchor: usize,
    /// The size of the document at its start.
    start: usize,
    /// How deep the collections in it are nested so far.
    depth: usize,
    items: Items,
}

enum Items {
    Sequence(Vec<Value>),
    Mapping(Map<String, Value>, Option<Key>),
}

struct Anchored {
    node: Node,
    size: usize,
    /// How deep its collections are nested.
    depth: usize,
}

/// The document so far.
#[derive(Default)]
struct Document {
    open: Vec<Open>,
    /// The nodes that are whole and have an anchor.
    anchors: HashMap<usize, Anchored>,
    /// The size of all nodes, with those that stand for aliases.
    size: usize,
    copied: usize,
}

// === impl Document ===

impl Document {
    /// The root, once it is whole.
    fn take(&mut self, event: Event<'_>) -> Result<Option<Node>, String> {
        let start = self.size;
        self.size += NODE;
        let mut open = |anchor, items| self.open.push(Open { anchor, start, depth: 1, items });
        match event {
            Event::SequenceStart(_, anchor, _) => open(anchor, Items::Sequence(Vec::new())),
            Event::MappingStart(_, anchor, _) => open(anchor, Items::Mapping(Map::new(), None)),
            Event::Scalar(text, style, anchor, tag) => {
                self.size += text.len();
                let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                let may_merge = is_plain || matches!(tag.as_deref(), Some("!" | "tag:yaml.org,2002:merge"));
                if text == "<<" && may_merge && self.wants_key() {
                    self.key(Key::Merge);
                    return Ok(None);
                }
                let scalar = if is_plain { Scalar::plain(&text) } else { Scalar::tagged(tag.as_deref(), &text)? };
                return self.place(Node::Scalar(scalar), anchor, start, 0);
            }
            Event::Alias(anchor) => {
                let Anchored { node, size, depth } = self.anchors.get(&anchor).ok_or("an anchor contains itself")?;
                self.copied += size;
                self.size += size;
                // What uses the value recurses into it.
                if self.copied > LARGEST_COPIED || self.open.len() + depth > MOST_NESTED {
                    return Err("its aliases stand for too much".to_owned());
                }
                let (node, depth) = (node.clone(), *depth);
                return self.place(node, 0, start, depth);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { anchor, start, depth, items }) = self.open.pop() else { return Ok(None) };
                let whole = match items {
                    Items::Sequence(items) => Value::Array(items),
                    Items::Mapping(members, _) => Value::Object(members),
                };
                return self.place(Node::Whole(whole), anchor, start, depth);
            }
            _ => {}
        }
        Ok(None)
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { items: Items::Mapping(_, None), .. }))
    }

    fn key(&mut self, name: Key) {
        if let Some(Open { items: Items::Mapping(_, key), .. }) = self.open.last_mut() {
            *key = Some(name);
        }
    }

    /// Puts a node where it belongs. The root is returned. `depth`: 0 for a scalar.
    fn place(&mut self, node: Node, anchor: usize, start: usize, depth: usize) -> Result<Option<Node>, String> {
        if anchor != 0 {
            let size = self.size - start;
            self.copied += size;
            if self.copied > LARGEST_COPIED {
                return Err("its anchors hold too much".to_owned());
            }
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, depth });
        }
        if self.wants_key() {
            self.key(Key::Name(node.key()?));
            return Ok(None);
        }
        if let Some(open) = self.open.last_mut() {
            open.depth = open.depth.max(depth + 1);
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => return Ok(Some(node)),
            Some(Items::Sequence(items)) => items.push(node.value()?),
            Some(Items::Mapping(members, key)) => match key.take() {
                Some(Key::Name(name)) => _ = members.insert(name, node.value()?),
                _ => merge(members, node.value()?)?,
            },
        }
        Ok(None)
    }
}

/// Adds members where `<<` stands: they win over those before it, and those after it over them.
fn merge(members: &mut Map<String, Value>, from: Value) -> Result<(), String> {
    match from {
        Value::Object(more) => members.extend(more),
        // The first of several wins.
        Value::Array(several) if several.iter().all(Value::is_object) => {
            several.into_iter().rev().try_for_each(|one| merge(members, one))?;
        }
        _ => return Err("<< wants a mapping, or a list of mappings".to_owned()),
    }
    Ok(())
}

// === impl Node ===

impl Node {
    fn value(self) -> Result<Value, String> {
        match self {
            Self::Whole(value) => Ok(value),
            Self::Scalar(scalar) => scalar.value(),
        }
    }

    /// The name of a member.
    fn key(self) -> Result<String, String> {
        match self {
            Self::Scalar(scalar) => scalar.key(),
            Self::Whole(_) => Err("a list or a mapping is no key".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
