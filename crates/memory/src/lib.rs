//! The memory of the process: an account of the bodies in flight, the end of responses that clients do not read, and
//! measurements of the whole process.
//!
//! Code that is about to receive bytes reserves them first ([`Ledger`]). Memory outside this account (connections,
//! buffers of libraries, memory that the allocator has not returned) is only visible by measuring the process
//! ([`Pressure`]). How often that happens depends on the growth of memory, not on a fixed interval.

mod cut;
mod ledger;
mod pressure;
mod purge;
mod room;
mod stall;

pub use cut::Cut;
pub use ledger::{Lack, Ledger, Reservation, Short};
pub use pressure::{Level, Pressure};
pub use purge::{purge, purge_again};
pub use room::allocated;
pub use stall::{HURRY, StallGuard, StallGuards};
