//! How fresh a cache is: exact questions to the apiserver about the store's revision and state, shared by all who wait
//! for an answer.

mod audit;
mod comparison;
mod digest;
mod odds;
pub(super) mod progress;
pub(super) mod questions;
mod shared_store;
mod single_flight;

pub use audit::{Finding, Suspects};
pub use comparison::{Part, SMALL_DIGEST};
pub(super) use progress::{ACCEPT_WATCH, WATCH_SECONDS};
pub use progress::{Progress, ProgressProbe, ProveError};
pub(super) use questions::QUESTION_TIMEOUT;
pub use questions::Questions;
pub use shared_store::{SharedStore, Word};
pub use single_flight::{Asked, Pace};
