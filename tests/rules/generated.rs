//! What is generated from `proto/` is in the repository, so that nobody needs a generator to build the program.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use prost::Message;
use prost_types::FileDescriptorSet;

const FILES: [&str; 3] = ["informerd/v1/objects.proto", "informerd/v1/queue.proto", "informerd/v1/cache.proto"];

/// Writes what has changed, and fails because of it: the next run is green.
#[test]
fn the_api_in_rust_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(FILES, [root.join("proto")]).expect("the files of proto/ are right");
    let api = generated(descriptors.clone(), Some("crate::codec::ExactCodec"));
    let client = generated(descriptors.clone(), None);
    for (path, now) in [
        ("proto/generated/descriptors.bin", descriptors.encode_to_vec()),
        ("proto/generated/informerd.v1.rs", api),
        ("clients/rust/src/generated/informerd.v1.rs", client),
    ] {
        if fs::read(root.join(path)).is_ok_and(|kept| kept == now) {
            continue;
        }
        fs::write(root.join(path), now).expect("written");
        panic!("{path} was not that of proto/informerd/v1, and is now");
    }
}

fn generated(descriptors: FileDescriptorSet, codec: Option<&str>) -> Vec<u8> {
    let out = tempfile::tempdir().expect("a temporary directory");
    // Clients choose their own connection.
    let mut builder = tonic_prost_build::configure().bytes(".informerd.v1").build_transport(false).out_dir(out.path());
    if let Some(codec) = codec {
        builder = builder.codec_path(codec);
    }
    builder.compile_fds(descriptors).expect("generated");
    fs::read(out.path().join("informerd.v1.rs")).expect("generated")
}
