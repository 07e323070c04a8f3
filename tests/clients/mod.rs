//! What the tests with clients share.

pub mod client;
pub mod daemon;
pub mod kubectl;
pub mod ledger;
pub mod matrix;
pub mod raw;
pub mod scene;
pub mod sharing;
pub mod tables;
