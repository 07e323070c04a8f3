//! What informers cost the apiserver and what they save it, and every decision that follows from this.
//!
//! [`Cost`] is what an answer costs: CPU time and bytes. What is measured ([`Book`]) replaces what is guessed.
//!
//! **Start** ([`Wish::start`]). Who cannot be forwarded has an informer started. So has who lists or follows everything: that
//! is what the informer asks for. Whether a part is worth it, its number of objects shows. All other reads are forwarded and
//! pay rent ([`accounts`]), until together they have cost lately as much as the informer's list: lists of the newest state of a
//! part, all reads of a part of many objects, and tables.
//!
//! **Proof** ([`Situation`]). A read of the newest state from a cache is proved by the cheapest question, and forwarded if
//! that costs more than the read.
//!
//! **End** ([`Debt`]). An informer that nobody follows ends when it has cost as much more than it has saved as it would cost
//! to start it again. Then its rent is spent, and from now on rent falls by what following would cost: reads that cost less than
//! that are forwarded.

mod accounts;
mod book;
mod cost;
#[cfg(test)]
mod day_tests;
mod proof;
mod start;

pub use book::{Balance, Giver, Rent};
pub use start::Use;

pub(super) use accounts::{CHANGED, UNPRINTABLE, UNVERSIONED};
pub(super) use book::{Book, Books};
pub(super) use cost::{Cost, Fading, bytes};
pub(super) use proof::{Extent, Situation, Way, is_lone};
pub(super) use start::{Debt, GONE, REQUESTS, Wish, is_spent};
