//! The image without a container engine: what the Dockerfile copies, built by the script that it runs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// Names a binary that has been built already (`tests/run` does).
pub const VARIABLE: &str = "INFORMERD_IMAGE";

/// The image's one program. Built as the Dockerfile says, from nothing but what it copies, without optimisation.
pub async fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "{VARIABLE} names {}, which is no file", path.display());
        return path;
    }
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/image"))
        .stderr(Stdio::inherit())
        .output()
        .await
        .expect("tests/manifests/image runs");
    assert!(output.status.success(), "there is no image: tests/manifests/image failed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default())
}
