//! informerd itself, the binary, in front of a cluster.

#![allow(clippy::expect_used, clippy::panic, reason = "a test without its daemon is over")]

use std::path::{Path, PathBuf};

use crate::support::binary::{Binary, informerd, said};
use crate::support::client::Client;
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
            let (code, _, errors) = said(&mut informerd(&line)).await;
            assert_eq!(code, 0, "no kubeconfig: {errors}");
            files.push(file);
        }
        let [http, https] = files.try_into().expect("two listeners");
        Self { http, https, binary }
    }

    /// Of its http listener.
    pub(crate) fn client(&self) -> Client {
        self.binary.client()
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
