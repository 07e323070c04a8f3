//! The grammar of field selectors, and their translation to the fields of a type.

use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use informerd_meta::{FieldTable, Resource, TOO_LARGE, fields_fit, strconv};

use super::compiled::{CompiledFields, Term};
use super::field_term::{FieldOperator, FieldTerm};
use super::tables::{self, Meaning};

/// A parsed field selector. All its terms must hold. It does not know the fields of a type; see [`Self::compile`].
/// Equality and hash ignore order and duplicates.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

// === impl FieldSelector ===

impl FieldSelector {
    /// Parses the `fieldSelector` parameter. The terms are sorted by their text before they are parsed, as in the
    /// apiserver. If there are two errors, this order determines which one is reported.
    ///
    /// # Errors
    /// The apiserver's message for a selector that cannot be parsed, or [`TOO_LARGE`].
    pub fn parse(text: &str) -> Result<Self, String> {
        if !fields_fit(text) {
            return Err(TOO_LARGE.into());
        }
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let terms: Vec<FieldTerm> = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (field, operator, value) =
                    split_term(part).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
                let value = unescape(value).map_err(|error| format!("invalid field selector: {error}"))?;
                Ok(FieldTerm { field: field.into(), operator, value: value.into() })
            })
            .collect::<Result<_, String>>()?;
        // A term with neither a name nor a value is ignored.
        let terms = terms.into_iter().filter(|term| !(term.field.is_empty() && term.value.is_empty())).collect();
        Ok(Self { terms })
    }

    /// A selector with one exact term.
    pub fn equals(field: &str, value: &str) -> Self {
        Self { terms: vec![FieldTerm { field: field.into(), operator: FieldOperator::Equals, value: value.into() }] }
    }

    /// Adds an exact term.
    #[must_use]
    pub fn and_equals(mut self, field: &str, value: &str) -> Self {
        self.terms.push(FieldTerm { field: field.into(), operator: FieldOperator::Equals, value: value.into() });
        self
    }

    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms in the order in which the apiserver evaluates them.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The value of the first exact term on this label. In this way, the apiserver takes the name of a collection
    /// request from `metadata.name`, for authorization and for watches by path.
    pub fn requires_exact_match(&self, label: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.operator == FieldOperator::Equals && &*term.field == label)
            .map(|term| &*term.value)
    }

    /// Translates the field labels to those of the resource. `table` is the table that its objects were parsed with.
    ///
    /// For a type of unknown origin, only `metadata.name` and `metadata.namespace` are accepted. Its own server may
    /// support more, so the caller should forward a request that fails here to that server.
    ///
    /// # Errors
    /// The apiserver's message (400) for the first label that the type does not support; and for a value with U+FFFD,
    /// that no cache can tell what it selects. Such a value may stand for bytes that are not UTF-8, in the request as
    /// in an object, and the apiserver compares the bytes.
    pub fn compile(&self, resource: &Resource, table: &FieldTable) -> Result<CompiledFields, String> {
        let (mut terms, mut never) = (Vec::new(), false);
        for FieldTerm { field, operator, value } in &self.terms {
            let meaning = tables::meaning(resource, table, field)?;
            is_exact(value)?;
            match meaning {
                Meaning::Field(source) => terms.push(Term::new(table, source, *operator, value)),
                Meaning::AlwaysEmpty => never |= value.is_empty() != (*operator == FieldOperator::Equals),
            }
        }
        Ok(CompiledFields::new(table, terms, never))
    }

    fn canonical(&self) -> Vec<&FieldTerm> {
        let mut terms: Vec<_> = self.terms.iter().collect();
        terms.sort_unstable();
        terms.dedup();
        terms
    }
}

impl PartialEq for FieldSelector {
    fn eq(&self, other: &Self) -> bool {
        self.terms == other.terms || self.canonical() == other.canonical()
    }
}

impl Eq for FieldSelector {}

impl Hash for FieldSelector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

/// Formats the selector as the apiserver does.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

/// # Errors
/// The value may stand for several ones, see [`FieldSelector::compile`].
pub(super) fn is_exact(value: &str) -> Result<(), String> {
    if !value.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(());
    }
    Err(format!("the value {} of a field is not UTF-8, or has U+FFFD", strconv::quote(value.as_bytes())))
}

/// Splits at commas that are not preceded by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// Splits at the first operator from the left. Spaces belong to the label or value that they are in.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let equals = term.find('=')?;
    let (field, value) = (&term[..equals], &term[equals + 1..]);
    if let Some(field) = field.strip_suffix('!') {
        return Some((field, FieldOperator::NotEquals, value));
    }
    Some((field, FieldOperator::Equals, value.strip_prefix('=').unwrap_or(value)))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(format!("invalid escape sequence: \\{other}")),
                None => return Err("invalid escape sequence: \\".into()),
            },
            ',' | '=' => return Err(format!("unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}
