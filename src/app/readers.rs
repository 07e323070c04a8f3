//! What `informerd get` and `informerd watch` read as the daemon does: kubeconfigs, credentials and discovery documents.

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::HeaderMap;
use informerd_cli::{ApiResource, Identifying, Readers, User};
use rustls::ClientConfig;

use crate::apiserver::discovery::read_aggregated;
use crate::apiserver::kubeconfig::{self, Credentials, Wanted};

pub(super) const READERS: Readers = Readers { kubeconfig: load, user, resources };

fn load(path: &Path, context: Option<&str>) -> Result<kube::Config, String> {
    let wanted = Wanted { context: context.map(str::to_owned), ..Wanted::default() };
    let read = kubeconfig::load(&[path.to_owned()], &wanted).map_err(|error| error.to_string())?;
    Ok(read.config)
}

fn user(config: &kube::Config) -> Result<Arc<dyn User>, String> {
    let credentials = Credentials::new(config).map_err(|error| error.to_string())?;
    Ok(Arc::new(KubeconfigUser(credentials)))
}

fn resources(document: &[u8]) -> Result<Vec<ApiResource>, String> {
    let read = read_aggregated(document).map_err(|error| error.to_string())?;
    let resources = read.into_iter().map(|resource| ApiResource {
        group: resource.gvr.group.to_string(),
        version: resource.gvr.version.to_string(),
        resource: resource.gvr.resource.to_string(),
        namespaced: resource.namespaced,
        singular: resource.singular,
        short_names: resource.short_names,
    });
    Ok(resources.collect())
}

/// The user of a kubeconfig.
struct KubeconfigUser(Credentials);

impl User for KubeconfigUser {
    fn tls(&self, config: &kube::Config) -> Result<ClientConfig, String> {
        self.0.client_config(config).map_err(|error| error.to_string())
    }

    fn identify<'h>(&'h self, headers: &'h mut HeaderMap) -> Identifying<'h> {
        Box::pin(async move { self.0.apply(headers).await.map_err(io::Error::other) })
    }
}

#[cfg(test)]
mod tests {
    use informerd_cli::{Server, Token};

    use super::*;

    #[tokio::test]
    async fn credentials_are_not_said_in_the_clear() {
        let token = Some(Token("t0p".into()));
        let server = Server { address: Some("http://127.0.0.1:1".parse().unwrap()), token, ..Server::default() };
        assert!(!format!("{server:?}").contains("t0p"));
        let refused = server.target(READERS).await.err().unwrap();
        assert!(refused.contains("https://") && !refused.contains("t0p"), "{refused}");
        let unix = Server { address: Some("unix:///s".parse().unwrap()), ..server };
        let headers = unix.target(READERS).await.unwrap().headers().await.unwrap();
        assert_eq!(headers["authorization"], "Bearer t0p");
        assert_eq!(headers["user-agent"], concat!("informerd/", env!("CARGO_PKG_VERSION")));
    }

    #[tokio::test]
    async fn files_that_are_not_there_are_named() {
        let https = || Some("https://127.0.0.1:1".parse().unwrap());
        for server in [
            Server { address: https(), ca_file: Some("/no/such.ca".into()), ..Server::default() },
            Server { kubeconfig: Some("/no/such.ca".into()), ..Server::default() },
            Server {
                address: https(),
                certificate: Some(("/no/such.ca".into(), "/no/such.key".into())),
                ..Server::default()
            },
        ] {
            let refused = server.target(READERS).await.err().unwrap();
            assert!(refused.contains("/no/such"), "{refused}");
        }
    }
}
