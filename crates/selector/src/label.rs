//! Label selectors: their meaning and their text form.

use std::fmt;
use std::hash::{Hash, Hasher};

use informerd_meta::{Attributes, TOO_LARGE, labels_fit};

use super::label_parser;
use super::requirement::{Operator, Requirement};

/// A parsed label selector. All its requirements must hold. The default selects everything.
///
/// Equality and hash compare the meaning where that is cheap: order, duplicates and spelling (`x=a`, `x==a`, `x in
/// (a)`) do not matter.
#[derive(Clone, Default)]
pub struct LabelSelector {
    /// Sorted by key. Requirements with the same key stay in the order of the request.
    written: Box<[Requirement]>,
    /// The same requirements, sorted completely and without duplicates.
    terms: Box<[Term]>,
}

/// The test that one requirement applies to one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    key: Box<str>,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    Exists,
    DoesNotExist,
    /// The value is one of these. Sorted.
    In(Box<[Box<str>]>),
    /// The value is none of these, or the label is absent. Sorted.
    NotIn(Box<[Box<str>]>),
    GreaterThan(i64),
    LessThan(i64),
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Parses the `labelSelector` parameter.
    ///
    /// # Errors
    /// The apiserver's message for a selector that cannot be parsed, or [`TOO_LARGE`].
    pub fn parse(text: &str) -> Result<Self, String> {
        if !labels_fit(text) {
            return Err(TOO_LARGE.into());
        }
        let mut written = label_parser::parse(text)?;
        written.sort_by(|a, b| a.key.cmp(&b.key));
        let mut terms: Vec<Term> = written.iter().map(Requirement::term).collect();
        terms.sort_unstable();
        terms.dedup();
        Ok(Self { written: written.into(), terms: terms.into() })
    }

    /// Whether apiservers refuse or accept this text depending on their version, so that only the apiserver knows.
    pub fn depends_on_version(text: &str) -> bool {
        label_parser::is_refused_by_some(text)
    }

    /// Whether the labels of these attributes satisfy every requirement. Does not allocate.
    pub fn matches(&self, attributes: &Attributes) -> bool {
        if self.terms.is_empty() {
            return true;
        }
        // Both sides are sorted by key, so one pass over the labels is enough.
        let mut labels = attributes.labels();
        let mut label = labels.next();
        self.terms.iter().all(|term| {
            while label.is_some_and(|(key, _)| key < &*term.key) {
                label = labels.next();
            }
            let value = label.filter(|(key, _)| *key == &*term.key).map(|(_, value)| value);
            term.test.holds(value)
        })
    }

    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The requirements as key, operator and sorted values, with the operators of `metav1.LabelSelectorRequirement`.
    /// Numeric comparisons have no such operator and are omitted.
    pub fn requirements(&self) -> impl Iterator<Item = (&str, &'static str, &[Box<str>])> {
        self.written.iter().filter_map(|requirement| {
            let operator = match requirement.operator {
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
                Operator::NotEquals | Operator::NotIn => "NotIn",
                Operator::GreaterThan | Operator::LessThan => return None,
            };
            Some((&*requirement.key, operator, requirement.values.as_slice()))
        })
    }

    /// The labels that every selected object has: key and value of each requirement with one possible value.
    pub fn exact(&self) -> impl Iterator<Item = (&str, &str)> {
        self.terms.iter().filter_map(|term| match &term.test {
            Test::In(values) => match &**values {
                [value] => Some((&*term.key, &**value)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Whether this selector has every requirement of `other`. If so, every object that it matches is also matched by
    /// `other`.
    pub fn implies(&self, other: &Self) -> bool {
        other.terms.iter().all(|term| self.terms.binary_search(term).is_ok())
    }
}

impl PartialEq for LabelSelector {
    fn eq(&self, other: &Self) -> bool {
        self.terms == other.terms
    }
}

impl Eq for LabelSelector {}

impl Hash for LabelSelector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.terms.hash(state);
    }
}

/// Formats the selector as the apiserver does: sorted by key, with the values of a set sorted.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.written.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

// === impl Requirement ===

impl Requirement {
    fn term(&self) -> Term {
        let values = || self.values.clone().into_boxed_slice();
        // The parser has checked that there is exactly one value and that it is a number.
        let number = || self.values.first().and_then(|value| value.parse().ok()).unwrap_or_default();
        let test = match self.operator {
            Operator::Exists => Test::Exists,
            Operator::DoesNotExist => Test::DoesNotExist,
            Operator::Equals | Operator::DoubleEquals | Operator::In => Test::In(values()),
            Operator::NotEquals | Operator::NotIn => Test::NotIn(values()),
            Operator::GreaterThan => Test::GreaterThan(number()),
            Operator::LessThan => Test::LessThan(number()),
        };
        Term { key: self.key.clone(), test }
    }
}

// === impl Test ===

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |set: &[Box<str>], value: &str| set.binary_search_by(|item| (**item).cmp(value)).is_ok();
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(set) => value.is_some_and(|value| listed(set, value)),
            Self::NotIn(set) => value.is_none_or(|value| !listed(set, value)),
            Self::GreaterThan(bound) => value.and_then(integer).is_some_and(|value| value > *bound),
            Self::LessThan(bound) => value.and_then(integer).is_some_and(|value| value < *bound),
        }
    }
}

/// The value of a label as a number. A value that is not a number does not satisfy any comparison.
fn integer(value: &str) -> Option<i64> {
    value.parse().ok()
}
