//! Label, field and shard selectors. They are parsed once and matched often.
//!
//! The selectors of a request become a [`Predicate`]: the part of the key space that it covers, and additional
//! requirements for labels, fields and hashes. Predicates with the same meaning compare equal where that is cheap to
//! determine, so watchers can share the work of matching.

mod compiled;
mod field;
mod field_term;
mod label;
mod label_parser;
mod predicate;
mod requirement;
mod shard;
mod tables;
mod union;
mod value_set;

pub use compiled::CompiledFields;
pub use field::FieldSelector;
pub use field_term::{FieldOperator, FieldTerm};
pub use label::LabelSelector;
pub use predicate::{Clause, Predicate};
pub use shard::ShardSelector;
pub use tables::{field_table, types_with_fields};
pub use value_set::ValueSet;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
