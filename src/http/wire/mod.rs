//! The bytes on the connection: HTTP/1.1 and HTTP/2, and the watches that write to it themselves.

#[cfg(test)]
mod allocations_tests;
mod frame_filter;
mod frames;
mod gate;
mod handlers;
mod http1;
mod http2;
mod http2_body;
mod http2_socket;
mod io;
mod keep_alive;
mod parting;
mod protocol;
mod response_head;
mod serving;
#[cfg(test)]
mod stalled_tests;
mod watch_shards;
mod watch_writer;

#[cfg(test)]
pub(super) use frame_filter::FrameFilter;
#[cfg(test)]
pub(super) use frames::{CONTINUATION, END_HEADERS, END_STREAM, FrameHead, HEADERS, LARGEST, PUSH_PROMISE};
pub(super) use handlers::{Handlers, NoRoom, Unreserved, at_once};
pub(super) use http1::Handover;
pub(super) use http2::Answered;
pub use http2_socket::Http2Socket;
pub use io::Bounded;
#[cfg(test)]
pub(super) use protocol::{MAX_HEAD, MAX_HEADER_LIST, MAX_HEADERS};
pub(super) use protocol::{Protocols, default_limits, largest_head};
pub(super) use serving::Serving;
