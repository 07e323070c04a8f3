//! A daemon that ends as a process does: nothing of it goes on.

use super::Through;
use super::relay::Relay;
use informerd::upstream::client::ConfigSource;
use tokio::runtime::{Builder, Runtime};

/// The threads of one daemon, and the way to it. When a test fails, the threads end by themselves.
pub(crate) struct Threads {
    runtime: Option<Runtime>,
    relay: Relay,
}

impl Threads {
    /// Starts a daemon on threads of its own.
    pub(crate) async fn start(source: ConfigSource, yaml: &str) -> (Through, Self) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let yaml = yaml.to_owned();
        let mut through = runtime.spawn(async move { Through::start(source, &yaml).await }).await.unwrap();
        let relay = Relay::before(through.url.trim_start_matches("http://").parse().unwrap()).await;
        through.url = format!("http://{}", relay.address);
        (through, Self { runtime: Some(runtime), relay })
    }

    /// Ends the daemon as a process that is killed: clients hear nothing of it. One thread may still run a watch while
    /// another one already ends its informer, so connections are cut first.
    pub(crate) async fn kill(mut self, through: Through) {
        self.relay.close().await;
        let runtime = self.runtime.take();
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
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
