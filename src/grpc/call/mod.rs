//! What every call passes: what is read of its request, the rights of its caller, its time and memory, and the status and
//! metadata of its answer.

pub(super) mod access;
pub(super) mod answer;
mod body;
mod cost;
pub(super) mod deadline;
pub(super) mod intake;
mod lasting;
mod reason;
mod retiring;
pub(super) mod room;
pub(super) mod status;

pub use access::{CallInfo, Caller, UserObserver};
pub(super) use access::{Grants, Right};
pub(super) use answer::Taken;
pub(super) use body::{Body, BoxError, trailers};
pub(super) use intake::{Intake, Opening};
pub(super) use lasting::Lasting;
pub use retiring::Retiring;
pub(super) use room::{Room, SMALL};
pub(super) use status::{Error, duration, quotable, understood};
