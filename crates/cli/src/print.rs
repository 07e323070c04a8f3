//! Prints objects and changes as lines.

use std::io::Write;
use std::str::FromStr;

use informerd_api::v1;
use informerd_status::terminal::escaped;

use super::failure::Failure;
use super::resolve::Named;

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The object as JSON. In a watch, `{"type":…,"object":…}` as the apiserver frames it.
    Json,
    /// `pod/web-1`.
    Name,
    /// `default/web-1`.
    Key,
}

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
}

pub(super) struct Printer<'a> {
    output: Output,
    named: &'a Named,
    out: &'a mut (dyn Write + Send),
}

// === impl Output ===

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "json" => Ok(Self::Json),
            "name" => Ok(Self::Name),
            "key" => Ok(Self::Key),
            _ => Err(format!("{text:?} is no output: want json, name or key")),
        }
    }
}

// === impl Change ===

impl Change {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

// === impl Printer ===

impl<'a> Printer<'a> {
    pub(super) fn new(output: Output, named: &'a Named, out: &'a mut (dyn Write + Send)) -> Self {
        Self { output, named, out }
    }

    /// Prints an object of a list.
    pub(super) fn object(&mut self, object: &v1::Object) -> Result<(), Failure> {
        match (self.output, &object.key) {
            (Output::Json, _) => self.out.write_all(&object.object)?,
            (_, Some(key)) => self.out.write_all(self.line(key).as_bytes())?,
            (_, None) => return Ok(()),
        }
        self.out.write_all(b"\n").map_err(Failure::from)
    }

    /// Prints a change of a watch. `object` is empty if its last state is not known.
    pub(super) fn change(&mut self, change: Change, key: &v1::Key, object: &[u8]) -> Result<(), Failure> {
        let kind = change.as_str();
        if self.output != Output::Json {
            let (line, rv) = (self.line(key), escaped(&key.resource_version));
            return writeln!(self.out, "{kind:<8} {line} {rv}").map_err(Failure::from);
        }
        write!(self.out, "{{\"type\":\"{kind}\",\"object\":")?;
        if object.is_empty() {
            let v1::Key { namespace, name, uid, .. } = key;
            let metadata = serde_json::json!({"namespace": namespace, "name": name, "uid": uid});
            write!(self.out, "{}", serde_json::json!({"metadata": metadata}))?;
        } else {
            self.out.write_all(object)?;
        }
        self.out.write_all(b"}\n").map_err(Failure::from)
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::from)
    }

    fn line(&self, key: &v1::Key) -> String {
        escaped(&match (self.output, key.namespace.as_str()) {
            (Output::Name, _) => self.named.object(&key.name),
            (_, "") => key.name.clone(),
            (_, namespace) => format!("{namespace}/{}", key.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of some objects, such as roles, may be any text.
    #[test]
    fn a_terminal_obeys_no_name() {
        let resource = v1::Resource { version: "v1".into(), resource: "roles".into(), ..Default::default() };
        let named = Named { resource, singular: "role".into(), namespaced: true };
        let hostile = || "\u{1b}]0;x\u{7}\u{9b}2J\r".to_owned();
        let key = v1::Key { namespace: hostile(), name: hostile(), resource_version: hostile(), ..Default::default() };
        for output in [Output::Name, Output::Key] {
            let mut out = Vec::new();
            let mut printer = Printer::new(output, &named, &mut out);
            printer.object(&v1::Object { key: Some(key.clone()), ..Default::default() }).unwrap();
            printer.change(Change::Added, &key, b"").unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().count() == 2 && text.contains(r"\u{1b}]0;x\u{7}\u{9b}2J\u{d}"), "{text:?}");
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
