//! The shared informers: which one covers a request, started on demand, stopped when idle, and the proof that its cache is
//! fresh enough.

mod audit;
mod coverage;
mod definitions;
mod factory;
mod families;
mod fresh;
mod handle;
mod kept;
mod key;
mod ledger;
mod limit;
mod lookup;
mod owed;
mod rules;
mod servers;
mod stall;
mod stream_check;
mod waits;

pub use coverage::NoCoverage;
pub use factory::{Factory, FactoryConfig};
pub use fresh::{Fresh, Freshness, Need, NotFresh};
pub use handle::Informer;
pub use key::{InformerKey, InformerScope};
pub use ledger::{Balance, Giver, Rent, Use};
pub use limit::informers_in;
pub use lookup::Sought;
pub use rules::{ResourceRule, Rules, ScopeRule};

pub use crate::apiserver::discovery::{Shareable, Unshareable};
pub use crate::upstream::{Asked, ShardSupport};
