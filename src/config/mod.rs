//! From a YAML file, the environment and flags to the typed settings of every room.
//!
//! Each setting stands once in [`SETTINGS`]; its flag, environment variable and file key follow from its key, so the
//! three can never differ. Flags win over the environment, the environment over the file, the file over the default.
//! Nothing is tried before everything has been read: every mistake is reported in one run, each with its origin.

mod duration;
mod expand;
mod file;
mod layers;
mod load;
mod mistake;
mod otel;
mod parse;
mod resources;
mod sections;
mod setting;
mod size;
mod source;

pub use load::{Effective, Loaded, load};
pub use mistake::{Mistake, Mistakes, Origin, nearest};
pub use resources::{ResourcePattern, ResourceRule, RuleModes};
pub use sections::{
    Config, DrainConfig, InformerConfig, MemoryConfig, QueuesConfig, ReadsConfig, Then, UpstreamConfig, WindowConfig,
};
pub use setting::{Kind, SETTINGS, Setting};
pub use source::{Environment, Flags, Source};

pub use duration::parse_duration;
pub use size::parse_size;

#[cfg(test)]
mod tests;
