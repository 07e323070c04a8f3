//! Running helm, with nothing of whoever runs the test.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::objects;
use crate::process;
use crate::support::tied;

pub(super) const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The release has the name that the manifests' objects begin with.
pub(super) const RELEASE: &str = "informerd";

pub(super) struct Helm {
    program: PathBuf,
    /// Holds helm's caches, and a copy of the charts, with the dependency of the example.
    directory: tempfile::TempDir,
}

impl Helm {
    pub(super) fn new() -> Self {
        let helm = Self { program: process::tool("helm"), directory: tempfile::tempdir().unwrap() };
        tied::copy(&Path::new(ROOT).join("charts"), &helm.directory.path().join("charts"));
        helm.succeeds(&["dependency", "build", &helm.chart("example-sidecar")]);
        helm
    }

    /// The path of a chart; the example of a sidecar has its dependency in it.
    pub(super) fn chart(&self, name: &str) -> String {
        self.directory.path().join("charts").join(name).display().to_string()
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tied::blocking(&self.program);
        // Charts are found where they are in the repository.
        command.env_clear().env("HOME", self.directory.path()).current_dir(self.directory.path()).args(arguments);
        command.output().expect("helm runs")
    }

    /// What it prints; panics unless it succeeds and has nothing to say besides.
    pub(super) fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "helm {}: {errors}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says when it refuses; panics if it does not.
    pub(super) fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "helm {}: not refused", arguments.join(" "));
        String::from_utf8(output.stderr).unwrap()
    }

    /// What a chart renders, as text.
    pub(super) fn text(&self, chart: &str, namespace: &str, values: &[&str]) -> String {
        let chart = self.chart(chart);
        self.succeeds(&[&["template", RELEASE, &chart, "--namespace", namespace], values].concat())
    }

    pub(super) fn objects(&self, chart: &str, namespace: &str, values: &[&str]) -> Vec<Value> {
        objects::parsed(&self.text(chart, namespace, values))
    }
}
