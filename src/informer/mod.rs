//! The shared informers: which one covers a request, started on demand, stopped when idle, and the proof that its cache is
//! fresh enough.

mod audit;
mod books;
mod choice;
mod coverage;
mod definitions;
mod demand;
mod factory;
mod families;
mod forms;
mod fresh;
mod handle;
mod kept;
mod key;
mod limit;
mod lookup;
mod owed;
mod rules;
mod servers;
mod stall;
mod stream_check;
mod tables;
mod waits;

pub use books::{Balance, Giver, Rent};
pub use coverage::{Coverage, NoCoverage};
pub use demand::Use;
pub use factory::{Factory, FactoryConfig};
pub use fresh::{Fresh, Freshness, Need, NotFresh};
pub use handle::Informer;
pub use key::{InformerKey, InformerScope};
pub use limit::informers_in;
pub use rules::{ResourceRule, Rules, ScopeRule};

pub use crate::apiserver::discovery::{Shareable, Unshareable};
pub use crate::upstream::{Asked, ShardSupport};
