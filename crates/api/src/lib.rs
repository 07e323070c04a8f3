//! The published API, generated from `proto/`. `tests/rules/generated.rs` compares it with the files there and can
//! generate it again.

// Generated code names it by this path.
mod codec;

pub use codec::{Check, checked};

/// `informerd.v1`: messages, clients and servers.
pub mod v1 {
    #![allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, reason = "generated")]

    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/generated/informerd.v1.rs"));
}

/// The descriptors of the API, as a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/generated/descriptors.bin"));
