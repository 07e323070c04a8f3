//! Generates the stubs of `informerd.v1`. protox needs no protoc; with one, `tonic_prost_build::compile_protos` is enough.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../../proto");
    let descriptors = protox::compile(["informerd/v1/objects.proto", "informerd/v1/queue.proto"], ["../../proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
