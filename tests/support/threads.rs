//! A daemon that ends as a process does: nothing of it goes on.

use super::Through;
use informerd::upstream::client::ConfigSource;
use tokio::runtime::{Builder, Runtime};

/// The threads of one daemon. When a test fails, they end by themselves.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    /// Starts a daemon on threads of its own.
    pub(crate) async fn start(source: ConfigSource, yaml: &str) -> (Through, Self) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let yaml = yaml.to_owned();
        let through = runtime.spawn(async move { Through::start(source, &yaml).await }).await.unwrap();
        (through, Self(Some(runtime)))
    }

    /// Ends the daemon as a process that is killed: nothing is told.
    pub(crate) async fn kill(mut self, through: Through) {
        let runtime = self.0.take();
        tokio::task::spawn_blocking(move || {
            drop(through);
            drop(runtime);
        })
        .await
        .unwrap();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
