//! The published API, generated from `proto/` by the build script.

/// `informerd.v1`: messages, clients and servers.
pub mod v1 {
    #![allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, reason = "generated")]

    tonic::include_proto!("informerd.v1");
}

/// The descriptors of the API, as a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
