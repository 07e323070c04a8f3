//! The layers of settings: which layer wins, and the text of a setting before it is parsed.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::expand::expand;
use super::file::{File, Node, Value};
use super::{Flags, Kind, Mistake, Origin, Setting, Source, parse_duration};

/// The layers of settings, and the mistakes found in them.
pub(super) struct Loader<'a> {
    pub(super) flags: &'a Flags,
    pub(super) source: &'a dyn Source,
    pub(super) file: File,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) effective: Vec<Effective>,
}

/// The unparsed value of a setting, from the layer that wins.
pub(super) enum Raw {
    Texts(Vec<String>),
    Node(Node),
}

/// One setting that was set explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub key: &'static str,
    pub text: String,
    pub origin: Origin,
}

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.one(key).map(|(_, text)| PathBuf::from(text))
    }

    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        self.parse(key, parse_duration)
    }

    /// Parses a setting that has a default. An invalid text is reported and replaced by the default, so that settings
    /// that depend on it are still checked.
    pub(super) fn parse<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        if let Some(value) = self.optional(key, &parse) {
            return Some(value);
        }
        let setting = Setting::find(key)?;
        parse(setting.default)
            .map_err(|message| self.mistakes.push(Mistake::new(Origin::Default { key: setting.key }, message)))
            .ok()
    }

    /// Parses a setting without a default.
    pub(super) fn optional<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let (origin, text) = self.one(key)?;
        parse(&text).map_err(|message| self.mistakes.push(Mistake::new(origin, message))).ok()
    }

    /// Parses a list, or its default.
    pub(super) fn many<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let default = Setting::find(key).map_or("", |setting| setting.default);
        let (origin, texts) = self.texts(key).unwrap_or_else(|| {
            let default = default.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
            (Origin::Default { key: "" }, default)
        });
        let value = |text: &String| {
            parse(text).map_err(|message| self.mistakes.push(Mistake::new(origin.clone(), message))).ok()
        };
        texts.iter().filter_map(value).collect()
    }

    pub(super) fn one(&mut self, key: &str) -> Option<(Origin, String)> {
        let (origin, mut texts) = self.texts(key)?;
        let text = texts.pop()?;
        if !texts.is_empty() {
            self.mistakes.push(Mistake::new(origin, "is given more than once"));
            return None;
        }
        Some((origin, text))
    }

    /// The expanded texts of the layer that wins.
    pub(super) fn texts(&mut self, key: &str) -> Option<(Origin, Vec<String>)> {
        let (origin, raw) = self.raw(key)?;
        let setting = Setting::find(key)?;
        let texts = match raw {
            Raw::Texts(texts) => Ok(texts),
            Raw::Node(node) => scalars(setting, &node),
        };
        match texts.and_then(|texts| texts.iter().map(|text| expand(text, self.source)).collect()) {
            Ok(expanded) => Some((origin, expanded)),
            Err(message) => {
                self.mistakes.push(Mistake::new(origin, message));
                None
            }
        }
    }

    /// The value from the highest layer: flag, environment, file. An empty text counts as missing.
    pub(super) fn raw(&mut self, key: &str) -> Option<(Origin, Raw)> {
        let setting = Setting::find(key)?;
        let separate = |text: &str| match setting.kind {
            Kind::Many(_) => {
                text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
            }
            _ => vec![text.to_owned()],
        };
        let name = setting.variable();
        let variable = self.source.variable(&name).unwrap_or_else(|reason| {
            self.mistakes.push(Mistake::new(Origin::Variable(name.clone()), reason));
            None
        });
        let from_file = self.file.values.iter().find(|(found, ..)| found.key == key);
        let found = if let Some(texts) = self.flags.get(key).filter(|texts| !texts.is_empty()) {
            let origin = Origin::Flag(format!("--{}", setting.flag()));
            let texts: Vec<String> = texts.iter().flat_map(|text| separate(text)).collect();
            Some((origin, texts.join(","), Raw::Texts(texts)))
        } else if let Some(text) = variable.filter(|text| !text.is_empty()) {
            Some((Origin::Variable(name), text.clone(), Raw::Texts(separate(&text))))
        } else {
            from_file.map(|(_, origin, node)| (origin.clone(), shown(node), Raw::Node(node.clone())))
        };
        let (origin, text, raw) = found?;
        if !self.effective.iter().any(|effective| effective.key == setting.key) {
            // A failed expansion is a mistake that is reported elsewhere.
            let text = expand(&text, self.source).unwrap_or(text);
            self.effective.push(Effective { key: setting.key, text, origin: origin.clone() });
        }
        Some((origin, raw))
    }

    /// Reports a mistake in the combination of several settings, at the origin of this setting.
    pub(super) fn wrong(&mut self, key: &str, message: &str) {
        let effective = self.effective.iter().find(|effective| effective.key == key);
        let origin = effective.map_or_else(
            || Origin::Default { key: Setting::find(key).map_or("", |setting| setting.key) },
            |effective| effective.origin.clone(),
        );
        self.mistakes.push(Mistake::new(origin, message));
    }
}

// === impl Effective ===

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} ({})", self.key, self.text, self.origin)
    }
}

/// Returns one text, or all texts of a sequence where several are allowed.
fn scalars(setting: &Setting, node: &Node) -> Result<Vec<String>, String> {
    let nodes = match (&node.value, setting.kind) {
        (Value::Sequence(nodes), Kind::Many(_)) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    nodes.iter().map(|node| node.single().map(str::to_owned)).collect()
}

/// Formats a value of the file in one line.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => String::new(),
        Value::Scalar(text) => text.clone(),
        Value::Sequence(nodes) => format!("[{}]", nodes.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Mapping(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(name, node)| format!("{}: {}", shown(name), shown(node))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}
