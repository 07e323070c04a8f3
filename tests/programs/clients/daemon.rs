//! informerd itself, the binary, in front of a cluster.

#![allow(clippy::expect_used, clippy::panic, reason = "a test without its daemon is over")]

use std::path::{Path, PathBuf};

use crate::support::binary::{Binary, informerd};
use crate::support::metrics::sum;

/// A running informerd with an http and an https listener.
pub(crate) struct Daemon {
    /// Kubeconfigs without credentials, as `informerd kubeconfig` prints them.
    pub http: PathBuf,
    pub https: PathBuf,
    binary: Binary,
}

// === impl Daemon ===

impl Daemon {
    /// Starts it and waits until it is ready.
    pub(crate) async fn start(upstream: &Path) -> Self {
        let listen = "--listen http://127.0.0.1:0 --listen https://127.0.0.1:0";
        let command = informerd(&format!("run {listen} --lend-sessions true"));
        let upstream = std::fs::read_to_string(upstream).expect("a kubeconfig");
        let binary = Binary::run(command, &upstream, &[]).await;
        binary.ready().await;
        let state = binary.directory.path();
        let mut files = Vec::new();
        for address in binary.addresses() {
            let file = state.join(address.split(':').next().expect("a scheme"));
            let line =
                format!("kubeconfig --listen {address} --state-dir {} --write {}", state.display(), file.display());
            let output = informerd(&line).output().await.expect("informerd runs");
            assert!(output.status.success(), "no kubeconfig: {}", String::from_utf8_lossy(&output.stderr));
            files.push(file);
        }
        let [http, https] = files.try_into().expect("two listeners");
        Self { http, https, binary }
    }

    pub(crate) async fn metrics(&self) -> String {
        self.binary.metrics().await
    }

    /// Whether an informer of `resource` (GROUP/VERSION/RESOURCE) answers reads in `encoding`.
    pub(crate) async fn is_cached(&self, resource: &str, encoding: &str) -> bool {
        let name = resource.rsplit('/').next().unwrap_or_default();
        let labels = [format!("resource=\"{name}\""), format!("encoding=\"{encoding}\"")];
        let labels = labels.each_ref().map(String::as_str);
        sum(&self.metrics().await, "informerd_cache_ready", &labels) > 0.0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- informerd's words\n{}", self.binary.log());
        }
    }
}
