//! The requirements of label selectors, and their text form.

use std::fmt;

/// One requirement as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    pub key: Box<str>,
    pub operator: Operator,
    /// Sorted, without duplicates. Empty for `Exists` and `DoesNotExist`. One value for `=`, `==`, `!=`, `>` and `<`.
    pub values: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Exists,
    DoesNotExist,
    Equals,
    DoubleEquals,
    In,
    NotEquals,
    NotIn,
    GreaterThan,
    LessThan,
}

// === impl Requirement ===

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
