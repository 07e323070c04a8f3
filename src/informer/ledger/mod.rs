//! What informers cost the apiserver and what they save it, and every decision that follows from this.
//!
//! [`Cost`] is what an answer costs: CPU time and bytes. What is measured ([`Book`]) replaces what is guessed.
//!
//! **Start** ([`Wish::start`]). A read of objects that must not be forwarded starts an informer. So does one that lists or
//! follows everything: that is what the informer asks for. Whether a part is worth it, its number of objects shows. All other
//! reads are forwarded and pay rent ([`accounts`]), until together they have cost lately as much as the informer's list: lists
//! of the newest state of a part, all reads of a part of many objects, and tables, whoever asks for them.
//!
//! **Proof** ([`Situation`]). A read of the newest state from a cache is proved by the cheapest question. A digest is used only
//! if it costs no more, in work and in bytes, than forwarding all reads that would share it, or if the read cannot be
//! forwarded. Watches are not forwarded for this.
//!
//! **End** ([`Debt`]). An informer that nobody follows ends when the bytes that it has cost exceed those that it has saved by a
//! compressed list of its objects. CPU time does not count. Then its rent is spent, and the next one has to be paid for twice,
//! the one after that four times, and so on: reads that cost less than following are forwarded.

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
