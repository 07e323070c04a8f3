//! A daemon that ends as a process does: nothing of it goes on.

use super::Through;
use super::client::{Answer, Client};
use super::metrics::series;
use super::relay::Relay;
use http::Method;
use informerd::apiserver::client::ConfigSource;
use informerd::config::Config;
use tokio::runtime::{Builder, Runtime};

/// A daemon from its start to its end, and a client of it.
pub(crate) struct Life {
    pub through: Through,
    pub client: Client,
    threads: Threads,
}

/// The threads of one daemon, and the way to it. When a test fails, the threads end by themselves.
struct Threads {
    runtime: Option<Runtime>,
    relay: Relay,
}

impl Life {
    /// Starts a daemon on threads of its own.
    pub(crate) async fn begin(source: ConfigSource, yaml: &str, change: fn(&mut Config)) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let yaml = yaml.to_owned();
        let mut through = runtime.spawn(async move { Through::changed(source, &yaml, change).await }).await.unwrap();
        let relay = Relay::before(through.url.trim_start_matches("http://").parse().unwrap()).await;
        through.url = format!("http://{}", relay.address);
        let client = Client::new(&through.url);
        Self { through, client, threads: Threads { runtime: Some(runtime), relay } }
    }

    /// Ends as a process that is killed: clients hear nothing of it. One thread may still run a watch while another one
    /// already ends its informer, so connections are cut first.
    pub(crate) async fn kill(self) {
        let Self { through, mut threads, .. } = self;
        threads.relay.close().await;
        let runtime = threads.runtime.take();
        tokio::task::spawn_blocking(move || {
            drop(through);
            drop(runtime);
        })
        .await
        .unwrap();
    }

    pub(crate) async fn get(&self, path: &str, accept: &str) -> Answer {
        self.client.request(Method::GET, path, &[("accept", accept)], "").await
    }

    /// The sum of the series of a metric that have this in their labels.
    pub(crate) async fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.through.admin().metrics().await;
        assert!(!series(&text, name, &[]).is_empty(), "no {name}: {text}");
        series(&text, name, labels).iter().sum::<f64>() as u64
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
