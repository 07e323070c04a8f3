//! Compiles the published API (`proto/`) to Rust, without protoc, and keeps its descriptors for reflection.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

const FILES: [&str; 3] = ["informerd/v1/objects.proto", "informerd/v1/queue.proto", "informerd/v1/cache.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), prost_bytes(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".informerd.v1")
        .codec_path("crate::grpc::codec::ExactCodec")
        // Clients choose their own connection.
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}

fn prost_bytes(descriptors: &tonic_prost_build::FileDescriptorSet) -> Vec<u8> {
    use protox::prost::Message;
    descriptors.encode_to_vec()
}
