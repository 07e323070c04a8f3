//! The basic types that all modules use: resources, keys, resource versions, objects, events, options and Status.

mod continue_token;
pub mod errors;
mod event;
mod fields;
mod invalid;
mod key;
mod list_options;
mod moment;
mod object;
mod query;
mod request_info;
mod resource;
mod row;
mod rv;
mod scope;
mod selector_size;
pub mod status;
pub mod strconv;
mod user_agent;

pub use continue_token::ContinueToken;
pub use event::{EventType, WatchCacheEvent};
pub use fields::{FieldLabel, FieldTable, FieldValue};
pub use invalid::Invalid;
pub use key::ObjectKey;
pub use list_options::{ListOptions, ListRevision};
pub use moment::Moment;
pub use object::{Attributes, AttributesBuilder, LabelSets, Object, Raw};
pub use query::Query;
pub use request_info::{RequestInfo, Verb};
pub use resource::{Encoding, Gvr, Origin, PrinterColumn, Resource, SelectableField, Verbs};
pub use row::{Hole, Row};
pub use rv::ResourceVersion;
pub use scope::Scope;
pub use selector_size::{TOO_LARGE, fields_fit, labels_fit, selectors_cost};
pub use status::{Status, StatusCause, StatusDetails};
pub use user_agent::is_indented_for;

pub use informerd_packing::Damaged;
