//! What the client reads in the way in which the daemon reads it for its own connection to the apiserver.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;
use rustls::ClientConfig;

/// How kubeconfigs, credentials and discovery documents are read.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// The current context of a kubeconfig, or the one of this name.
    pub kubeconfig: fn(&Path, Option<&str>) -> Result<kube::Config, String>,
    /// The credentials of a configuration. Blocks while an exec plugin runs.
    pub user: fn(&kube::Config) -> Result<Arc<dyn User>, String>,
    /// The resources of an aggregated discovery document, in its order.
    pub resources: fn(&[u8]) -> Result<Vec<ApiResource>, String>,
}

/// Who sends the requests.
pub trait User: Send + Sync {
    /// The TLS of connections to the server of a configuration. The user's certificate is shown.
    ///
    /// # Errors
    /// The CAs cannot be used.
    fn tls(&self, config: &kube::Config) -> Result<ClientConfig, String>;

    /// Adds the headers that say who it is.
    ///
    /// # Errors
    /// The credentials cannot be renewed.
    fn identify<'h>(&'h self, headers: &'h mut HeaderMap) -> Identifying<'h>;
}

/// Ready when the headers are added.
pub type Identifying<'h> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'h>>;

/// A resource as discovery describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    pub group: String,
    pub version: String,
    /// The plural name.
    pub resource: String,
    pub namespaced: bool,
    /// May be empty.
    pub singular: String,
    pub short_names: Vec<String>,
}
