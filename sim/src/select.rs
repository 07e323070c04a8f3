//! Simple label and field selectors, implemented independently of the daemon so that tests compare two
//! implementations.

use super::registry::Kind;
use super::stored::Stored;
use crate::types::{ObjectKey, Scope};

/// The selection of a list or watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub scope: Scope,
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug)]
struct LabelTerm {
    key: String,
    /// How the value of the key is tested.
    test: LabelTest,
}

#[derive(Clone, Debug)]
enum LabelTest {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
}

#[derive(Clone, Debug)]
struct FieldTerm {
    place: Place,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Name,
    Namespace,
    Field(usize),
}

// === impl Selection ===

impl Selection {
    /// The error is the message of a 400.
    pub(super) fn parse(kind: &Kind, scope: Scope, labels: &str, fields: &str) -> Result<Self, String> {
        let labels = split(labels).into_iter().map(LabelTerm::parse).collect::<Result<_, _>>()?;
        let fields = split(fields).into_iter().map(|term| FieldTerm::parse(kind, term)).collect::<Result<_, _>>()?;
        Ok(Self { scope, labels, fields })
    }

    /// Whether there is no selector. Then a list can state the number of remaining items.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.scope.name.is_none()
    }

    pub(super) fn matches(&self, stored: &Stored) -> bool {
        self.scope.contains(&stored.key)
            && self.labels.iter().all(|term| term.matches(stored.attributes.label(&term.key)))
            && self.fields.iter().all(|term| term.matches(&stored.key, stored))
    }
}

impl LabelTerm {
    fn parse(term: &str) -> Result<Self, String> {
        let values = |text: &str| -> Option<Vec<String>> {
            let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
        };
        let term_of = |key: &str, test| Self { key: key.trim().to_owned(), test };
        if let Some(key) = term.strip_prefix('!') {
            return Ok(term_of(key, LabelTest::Missing));
        }
        for (operator, negated) in [(" notin ", true), (" in ", false), (" notin(", true), (" in(", false)] {
            if let Some((key, rest)) = term.split_once(operator) {
                let rest = if operator.ends_with('(') { format!("({rest}") } else { rest.to_owned() };
                let values = values(&rest).ok_or_else(|| format!("unable to parse requirement: {term}"))?;
                return Ok(term_of(key, if negated { LabelTest::NotIn(values) } else { LabelTest::In(values) }));
            }
        }
        if let Some((key, value)) = term.split_once("!=") {
            return Ok(term_of(key, LabelTest::NotIn(vec![value.trim().to_owned()])));
        }
        if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            return Ok(term_of(key, LabelTest::In(vec![value.trim().to_owned()])));
        }
        if term.contains(|c: char| c.is_whitespace() || "()<>,".contains(c)) {
            return Err(format!("unable to parse requirement: {term}"));
        }
        Ok(term_of(term, LabelTest::Exists))
    }

    fn matches(&self, value: Option<&str>) -> bool {
        match &self.test {
            LabelTest::Exists => value.is_some(),
            LabelTest::Missing => value.is_none(),
            LabelTest::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| values.iter().all(|wanted| wanted != value)),
        }
    }
}

impl FieldTerm {
    fn parse(kind: &Kind, term: &str) -> Result<Self, String> {
        let (label, value, equal) = if let Some((label, value)) = term.split_once("!=") {
            (label, value, false)
        } else if let Some((label, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (label, value, true)
        } else {
            return Err(format!("invalid selector: '{term}'; can't understand '{term}'"));
        };
        let place = match label {
            "metadata.name" => Place::Name,
            "metadata.namespace" => Place::Namespace,
            _ => match kind.fields.iter().position(|field| field.label == label) {
                Some(index) => Place::Field(index),
                None if kind.custom || !kind.fields.is_empty() => {
                    return Err(format!("field label not supported: {label}"));
                }
                None => {
                    return Err(format!(
                        "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ));
                }
            },
        };
        Ok(Self { place, value: value.to_owned(), equal })
    }

    fn matches(&self, key: &ObjectKey, stored: &Stored) -> bool {
        let value = match self.place {
            Place::Name => key.name(),
            Place::Namespace => key.namespace(),
            Place::Field(index) => stored.attributes.field(index),
        };
        (value == self.value) == self.equal
    }
}

/// Splits at top-level commas and drops empty terms.
fn split(selector: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0, 0, Vec::new());
    for (at, byte) in selector.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                terms.push(selector[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(selector[start..].trim());
    terms.retain(|term| !term.is_empty());
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(labels: &str, fields: &str) -> Result<bool, String> {
        let kinds = Kind::built_in();
        let pod = kinds.iter().find(|kind| &*kind.id == "pods").unwrap();
        let json = br#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1","labels":{"app":"x","tier":""}},"spec":{"nodeName":"n1"},"status":{"podIPs":[{"ip":"10.0.0.1"}]}}"#;
        let stored = Stored::parse(pod, json.to_vec().into()).unwrap();
        Ok(Selection::parse(pod, Scope::default(), labels, fields)?.matches(&stored))
    }

    #[test]
    fn label_terms() {
        for yes in
            ["", "app", "app=x", "app==x", "app in (x, y)", "app in(x)", "!no", "no!=1", "app notin (y)", "tier="]
        {
            assert_eq!(matches(yes, ""), Ok(true), "{yes}");
        }
        for no in ["app=y", "no", "!app", "app!=x", "app notin (x,y)", "app in (y),app", "no in (a)"] {
            assert_eq!(matches(no, ""), Ok(false), "{no}");
        }
        assert!(matches("app x", "").is_err());
    }

    #[test]
    fn field_terms() {
        let placed = "spec.nodeName==n1,metadata.name=a,status.podIP=10.0.0.1";
        let missing = "status.phase=,spec.hostNetwork=false,spec.restartPolicy=Always";
        for yes in ["metadata.name=a", "metadata.namespace!=m", placed, missing] {
            assert_eq!(matches("", yes), Ok(true), "{yes}");
        }
        assert_eq!(matches("", "spec.nodeName!=n1"), Ok(false));
        assert_eq!(matches("", "spec.foo=1"), Err("field label not supported: spec.foo".into()));
    }
}
