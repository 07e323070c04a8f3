//! What is generated from `proto/` is in the repository, so that nobody needs a generator to build the program.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use prost::Message;

const FILES: [&str; 3] = ["informerd/v1/objects.proto", "informerd/v1/queue.proto", "informerd/v1/cache.proto"];

/// Writes what has changed, and fails because of it: the next run is green.
#[test]
fn the_api_in_rust_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(FILES, [root.join("proto")]).expect("the files of proto/ are right");
    let out = tempfile::tempdir().expect("a temporary directory");
    fs::write(out.path().join("descriptors.bin"), descriptors.encode_to_vec()).expect("written");
    tonic_prost_build::configure()
        .bytes(".informerd.v1")
        .codec_path("crate::grpc::codec::ExactCodec")
        // Clients choose their own connection.
        .build_transport(false)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("generated");
    let generated = root.join("proto/generated");
    for name in ["informerd.v1.rs", "descriptors.bin"] {
        let (now, kept) = (fs::read(out.path().join(name)).expect(name), fs::read(generated.join(name)));
        if kept.is_ok_and(|kept| kept == now) {
            continue;
        }
        fs::write(generated.join(name), now).expect("written");
        panic!("proto/generated/{name} was not that of proto/informerd/v1, and is now");
    }
}
