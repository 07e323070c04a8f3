//! The image without a container engine: what the Dockerfile copies, built by the script that it runs.

use std::path::{Path, PathBuf};

use crate::process::built;
use crate::support::tied;

/// Names a binary that has been built already (`tests/run` does).
pub(super) const VARIABLE: &str = "INFORMERD_IMAGE";

/// The image's one program. Built as the Dockerfile says, from nothing but what it copies, without optimisation.
pub(super) async fn binary() -> PathBuf {
    built(VARIABLE, "tests/manifests/image").await
}

/// The same sources give the same bytes wherever they are built: nothing in the file tells where, when or by whom.
/// `build/compare.sh` shows it in full, in half an hour.
#[tokio::test]
async fn the_image_names_no_path_of_its_build() {
    let image = std::fs::read(binary().await).expect("readable");
    let names = |text: &str| memchr::memmem::find(&image, text.as_bytes()).is_some();
    assert!(names("/cargo/registry/src/"), "paths of sources are there, without what is before them");
    let variables = ["HOME", "CARGO_HOME", "CARGO_TARGET_DIR", "INFORMERD_CACHE", "PWD", "RUSTUP_HOME"];
    let found = variables.map(|name| std::env::var(name).unwrap_or_default());
    for path in found.iter().map(String::as_str).chain([env!("CARGO_MANIFEST_DIR")]).filter(|path| path.len() > 1) {
        assert!(!names(&format!("{path}/")), "{path} is in the image");
    }
    // As C's compilers write it.
    let today = jiff::Timestamp::now().strftime("%b %e %Y").to_string();
    assert!(!names(&today), "{today} is in the image");
}

/// The Dockerfile by hadolint, the scripts by bash itself.
#[tokio::test]
async fn the_recipe_of_the_image_is_clean() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hadolint = crate::process::prepared("hadolint").await;
    let output =
        tied::command(&hadolint[0]).arg("--no-color").arg(root.join("Dockerfile")).output().await.expect("it runs");
    let findings = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && findings.is_empty(), "{findings}");
    for script in ["static.sh", "rustc.sh", "compare.sh"] {
        let status =
            tied::command("bash").arg("-n").arg(root.join("build").join(script)).status().await.expect("bash runs");
        assert!(status.success(), "{script}");
    }
    // No shell, a user that is a number, and the probes are the manifests'.
    let text = std::fs::read_to_string(root.join("Dockerfile")).expect("readable");
    let last = text.rsplit("\nFROM ").next().expect("a stage");
    assert!(last.starts_with("scratch\n") && last.contains("\nUSER 65532:65532\n"), "{last}");
    assert!(last.ends_with("ENTRYPOINT [\"/informerd\"]\n") && !text.contains("HEALTHCHECK"), "{last}");
    // The compiler is the one that the checkout is tested with.
    let toolchain = std::fs::read_to_string(root.join("rust-toolchain.toml")).expect("readable");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")).expect("a channel");
    assert!(text.contains(&format!("FROM rust:{}-slim-", channel.trim_end_matches('"'))), "{channel}");
    // What it is built from cannot change behind its tag.
    let sources = text.lines().filter(|line| line.starts_with("FROM ") || line.starts_with("# syntax="));
    for source in sources.filter(|line| *line != "FROM scratch") {
        let digest = source.split_once("@sha256:").map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
        let is_pinned = digest.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(is_pinned, "{source}");
    }
}
