//! Label, field and shard selectors: parsed once, matched often.
//!
//! A request's selectors become a [`Predicate`]: the part of the key space it covers, and what is asked of labels,
//! fields and hashes beyond that. Predicates that mean the same compare equal, as far as that is cheap to tell, so that watchers
//! can share the work of matching.

mod compiled;
mod field;
mod label;
mod label_parser;
mod predicate;
mod shard;
mod tables;
mod union;

pub use compiled::CompiledFields;
pub use field::{FieldOperator, FieldSelector, FieldTerm};
pub use label::LabelSelector;
pub use predicate::Predicate;
pub use shard::ShardSelector;
pub use tables::field_table;
pub use union::{Clause, ValueSet};

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
