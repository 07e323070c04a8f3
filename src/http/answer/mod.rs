//! What is written: a request becomes its terms, and an answer becomes the body of a response. Nothing here knows how the
//! bytes reach the client.

pub mod body;
mod copies;
pub(super) mod error;
mod event_frames;
pub(super) mod framing;
mod gzip;
mod handler;
mod handshake;
pub(super) mod head;
mod list_body;
mod list_writer;
mod patient;
pub mod read;
mod request_body;
mod small_answers;
pub(super) mod wanted;
mod watch_body;
pub(super) mod websocket;
mod writer;
mod written;

pub use body::Body;
pub(super) use body::BoxError;
#[cfg(test)]
pub(super) use body::full;
pub use error::{AUDIT_ID, audit_id};
pub(super) use error::{NO_CACHE, draining, is_unauthenticated, of_ourselves, respond, too_many_waiting};
pub(super) use framing::is_grpc;
pub use handler::{BoxFuture, Handler};
pub use patient::Patient;
pub use read::Parsed;
pub use request_body::RequestBody;
pub(super) use small_answers::SmallAnswers;
#[cfg(test)]
pub(super) use wanted::WantedFormat;
pub(super) use watch_body::SHORTEST;
#[cfg(test)]
pub(super) use watch_body::WatchBody;
pub(super) use written::{Answered, Bodies, BodyOptions, Socket};
