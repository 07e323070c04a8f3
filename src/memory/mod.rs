//! What the process holds in memory: an account of the bodies that are under way, the end of answers that nobody takes, and looks at
//! the whole.
//!
//! Whoever is about to take bytes in reserves them first ([`Ledger`]). What no account knows of (connections, buffers of
//! libraries, what the allocator has not given back) is seen by looking at the process ([`Pressure`]): as often as memory
//! grows, not as often as a clock ticks.

mod ledger;
mod pressure;
mod purge;
mod room;
mod stall;

pub(crate) use ledger::{Ledger, Reservation, Short};
pub(crate) use pressure::{Level, Pressure};
pub(crate) use purge::purge;
pub(crate) use room::allocated;
#[cfg(test)]
pub(crate) use stall::HURRY;
pub(crate) use stall::{StallGuard, StallGuards};
