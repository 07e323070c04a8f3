//! What is wrong with JSON that another reader can read. informerd may refuse it for nothing else, and must refuse it then.
//!
//! All that is wrong is collected, each fault with the error that names it: which of them is found first is not compared.

use std::fmt::Debug;

use informerd::codec::CodecError;

use super::json::Json;

/// Why something is refused. Go's decoder refuses what is of another type. It takes everything else.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// A value has another type than its field.
    Type,
    /// A member that informerd reads occurs twice. In Go the last one wins, or both are merged. The apiserver never writes that,
    /// and which one counts for selectors, authorization and the bytes that are kept could differ.
    Twice,
    /// Null stands for a missing value in Go. Here it does so in metadata, but not for a type, for metadata or for a label.
    Null,
    /// Nothing can be kept or served without it.
    Missing,
    /// A name or a namespace that does not tell objects apart.
    Key,
    /// Revisions are compared as numbers, and the digits of an object's resourceVersion are replaced in place. So they are
    /// decimal, and in an object they have no escapes.
    Revision,
    /// The cells of a row stand before its object, as the apiserver writes them.
    Order,
}

#[derive(Debug, Default)]
pub struct Faults(Vec<(CodecError, Why)>);

/// What both sides say of what both take. What one of them refuses, the other one refuses as well, and for the same reason.
pub fn agreed<T: Debug, E: Debug>(ours: Result<T, CodecError>, expected: Result<E, Faults>) -> Option<(T, E)> {
    match (ours, expected) {
        (Ok(ours), Ok(expected)) => Some((ours, expected)),
        (Err(error), Err(faults)) => {
            faults.assert_has(&error);
            None
        }
        (ours, expected) => panic!("{ours:?}, but {expected:?}"),
    }
}

/// Where something is malformed is not compared.
pub fn malformed(what: &'static str) -> CodecError {
    CodecError::Malformed { offset: 0, what }
}

/// The name of the member that an error names.
pub fn member(label: &'static str) -> &'static str {
    label.rsplit('.').next().unwrap_or(label)
}

// === impl Why ===

impl Why {
    /// Why this value is not taken for one of another type.
    pub fn of(value: &Json) -> Self {
        if *value == Json::Null { Self::Null } else { Self::Type }
    }
}

// === impl Faults ===

impl Faults {
    pub fn of(error: CodecError, why: Why) -> Self {
        Self(vec![(error, why)])
    }

    pub fn push(&mut self, error: CodecError, why: Why) {
        self.0.push((error, why));
    }

    pub fn append(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// # Errors
    /// Itself, where anything is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    pub fn is_object(&mut self, value: &Json) -> bool {
        let is_object = value.members().is_some();
        if !is_object {
            self.push(malformed("expected an object"), Why::of(value));
        }
        is_object
    }

    /// Each member of this name must be a text.
    pub fn texts(&mut self, object: &Json, label: &'static str) {
        for value in object.named(member(label)).filter(|value| value.text().is_none()) {
            self.push(CodecError::Invalid(label), Why::of(value));
        }
    }

    /// The only member of this name.
    pub fn only<'j>(&mut self, object: &'j Json, label: &'static str) -> Option<&'j Json> {
        let name = member(label);
        if object.named(name).nth(1).is_some() {
            self.push(CodecError::Duplicate(label), Why::Twice);
        }
        object.named(name).next()
    }

    /// The only member of this name, which must not be missing.
    pub fn needed<'j>(&mut self, object: &'j Json, label: &'static str) -> Option<&'j Json> {
        let found = self.only(object, label);
        if found.is_none() {
            self.push(CodecError::Missing(label), Why::Missing);
        }
        found
    }

    /// One of them is what informerd refuses it for.
    fn assert_has(&self, error: &CodecError) {
        let error = match error {
            CodecError::Malformed { what, .. } => malformed(what),
            // What serde says of it is not compared.
            CodecError::NotAStatus(_) => CodecError::NotAStatus(String::new()),
            error => error.clone(),
        };
        assert!(self.0.iter().any(|(fault, _)| *fault == error), "{error:?} is no reason to refuse it, but {self:?}");
    }
}
