//! The configuration file as a tree with line numbers, before it is interpreted.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::budget::BudgetBreach;

use super::mistake::MOST_SUGGESTED;
use super::{Mistake, Origin, REMOVED, Removed, SETTINGS, Setting, nearest};

/// The most keys and values of a text, and the most bytes of them. The text may be the annotation of a pod.
const MOST_NODES: usize = 4096;
const LARGEST: usize = 1 << 20;

/// A value with its line number. Lines count from 1.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: u64,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    /// All scalars are text here. Each setting parses its own text, whether it comes from a file or from a flag.
    Scalar(String),
    Sequence(Vec<Node>),
    Mapping(Vec<(Node, Node)>),
}

/// The settings of one file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) values: Vec<(&'static Setting, Origin, Node)>,
}

// === impl Node ===

impl Node {
    /// Parses one YAML document. An alias would stand for a value of any size, so there are none.
    ///
    /// # Errors
    /// The line number (0 if unknown) and a one-line error message.
    pub(super) fn parse(text: &str) -> Result<Self, (u64, String)> {
        let budget = serde_saphyr::budget! { max_anchors: 0, max_nodes: MOST_NODES, max_total_scalar_bytes: LARGEST };
        serde_saphyr::from_str_with_options(text, serde_saphyr::options! { budget: budget }).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let message = match error.without_snippet() {
                // The library's own message is written for programmers.
                serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => format!("{key}: is there twice"),
                serde_saphyr::Error::Budget { breach: BudgetBreach::Anchors { .. }, .. } => {
                    "anchors and aliases are not accepted: write the value again".to_owned()
                }
                serde_saphyr::Error::Budget { .. } => {
                    format!("is too large: there may be {MOST_NODES} keys and values, {LARGEST} bytes of them, and 64 levels")
                }
                error => error.to_string(),
            };
            (line, message.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    }

    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The text, where nothing else is allowed.
    pub(super) fn single(&self) -> Result<&str, String> {
        self.scalar().ok_or_else(|| format!("want a single value, not {}", self.describe()))
    }

    /// Describes the value for an error message.
    pub(super) fn describe(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::Sequence(_) => "a sequence",
            Value::Mapping(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), value: spanned.value })
    }
}

// === impl Value ===

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a sequence or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(sequence)).map(Value::Sequence)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Mapping(entries))
    }
}

// === impl File ===

impl File {
    /// Finds the settings in a file's text. Unknown keys are mistakes.
    pub(super) fn parse(path: &Path, text: &str, mistakes: &mut Vec<Mistake>) -> Self {
        let mut file = Self::default();
        let origin = |line, key: &str| Origin::File { path: path.to_owned(), line, key: key.to_owned() };
        match Node::parse(text) {
            Err((line, message)) => mistakes.push(Mistake::new(origin(line, ""), message)),
            Ok(Node { value: Value::Null, .. }) => {}
            Ok(Node { value: Value::Mapping(entries), .. }) => file.section(path, "", entries, mistakes),
            Ok(node) => {
                let message = format!("want a mapping of settings, not {}", node.describe());
                mistakes.push(Mistake::new(origin(node.line, ""), message));
            }
        }
        file
    }

    fn section(&mut self, path: &Path, prefix: &str, entries: Vec<(Node, Node)>, mistakes: &mut Vec<Mistake>) {
        for (name, node) in entries {
            let text = name.scalar().unwrap_or_default();
            let key = if prefix.is_empty() { text.to_owned() } else { format!("{prefix}.{text}") };
            let origin = Origin::File { path: PathBuf::from(path), line: name.line, key: key.clone() };
            let is_section = SETTINGS.iter().any(|setting| is_below(setting.key, &key));
            // A setting that took the place of several.
            let was_section = REMOVED.iter().any(|removed| is_below(removed.key, &key));
            match (Setting::find(&key).filter(|setting| setting.in_file()), node.value) {
                // A key without a value counts as missing.
                (Some(_), Value::Null) => {}
                (Some(_), Value::Mapping(entries)) if was_section && !entries.is_empty() => {
                    self.section(path, &key, entries, mistakes);
                }
                (Some(setting), value) => self.values.push((setting, origin, Node { line: node.line, value })),
                (None, Value::Mapping(entries)) if is_section => self.section(path, &key, entries, mistakes),
                (None, Value::Null) if is_section => {}
                (None, _) if is_section => mistakes.push(Mistake::new(origin, "want a mapping")),
                (None, _) => {
                    let unknown = unknown_key(&key, mistakes.len() < MOST_SUGGESTED);
                    mistakes.push(Mistake::new(origin, unknown));
                }
            }
        }
    }
}

/// `suggests`: the text says what may be meant.
fn unknown_key(key: &str, suggests: bool) -> String {
    if key == super::setting::CONFIG.key {
        return "may only be given as a flag or in the environment".to_owned();
    }
    if let Some(removed) = Removed::find(key) {
        return removed.message();
    }
    let mut known: Vec<&str> = Vec::new();
    for setting in SETTINGS.iter().filter(|setting| suggests && setting.in_file()) {
        known.push(setting.key);
        known.extend(setting.key.split_once('.').map(|(section, _)| section));
    }
    match nearest(key, known) {
        Some(known) => format!("there is no such setting; did you mean {known}?"),
        None => "there is no such setting".to_owned(),
    }
}

fn is_below(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_a_bound_and_no_aliases() {
        let parsed = |text: &str| Node::parse(text).map(drop).map_err(|(_, message)| message);
        let keys = |count: usize| format!("[{}]", vec!["a"; count].join(","));
        let text = |len: usize| format!("['{}']", "x".repeat(len));
        assert_eq!((parsed(&keys(MOST_NODES - 1)), parsed(&text(LARGEST))), (Ok(()), Ok(())));
        for large in [keys(MOST_NODES), text(LARGEST + 1), ["[", "]"].map(|bracket| bracket.repeat(65)).concat()] {
            let why = parsed(&large).unwrap_err();
            assert!(why.starts_with("is too large: "), "{} bytes: {why}", large.len());
        }
        for text in ["[&a x, *a]", "{a: &a {b: c}, d: *a}", "[&a x]"] {
            assert!(parsed(text).is_err_and(|why| why.starts_with("anchors and aliases are not accepted")), "{text}");
        }
    }
}
