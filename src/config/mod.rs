//! Converts a YAML file, the environment and flags to the typed settings of all modules.
//!
//! Each setting is defined once, in [`SETTINGS`]. Its flag, environment variable and file key are derived from its
//! key, so they are always consistent. Flags override the environment, the environment overrides the file, and the
//! file overrides the default. All settings are read before any of them is used. So one run reports every mistake,
//! each with its origin.

mod duration;
mod expand;
mod file;
mod inject;
mod kubeconfig;
mod layers;
mod load;
mod mistake;
mod otel;
mod parse;
mod removed;
mod resources;
mod sections;
mod setting;
mod size;
mod source;

pub use kubeconfig::not_found as kubeconfig_not_found;
pub use layers::Effective;
pub use load::{Loaded, load};
pub use mistake::{Mistake, Mistakes, Origin, nearest};
pub use removed::{REMOVED, Removed};
pub use resources::{ResourcePattern, ResourceRule, RuleModes};
pub use sections::{Config, InformerConfig, InjectSettings, MemoryConfig, MemoryLimit, UpstreamConfig};
pub use setting::{Kind, SETTINGS, Setting};
#[cfg(test)]
pub(crate) use source::MadeUp;
pub use source::{Environment, Flags, Source};

pub use duration::parse_duration;
pub use size::parse_size;

#[cfg(test)]
mod tests;
