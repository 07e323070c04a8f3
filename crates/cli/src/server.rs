//! The daemon to query, how the client verifies it, and the client's own credentials.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::readers::{Readers, User};

/// The command line options for the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Overrides the kubeconfig's address. Without either, the daemon's default is used.
    pub address: Option<Address>,
    /// The kubeconfig with cluster and user, from the current context or from `context`.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// The CA in PEM. Without it, the system's CAs are used.
    pub ca_file: Option<PathBuf>,
    pub token: Option<Token>,
    pub token_file: Option<PathBuf>,
    /// The certificate with its chain, and its key, both in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A secret. Its debug output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// A daemon that can be connected to.
#[derive(Clone)]
pub struct Target {
    pub(super) address: Address,
    /// The name of the client among those that the daemon shows.
    agent: HeaderValue,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// `None` if the client sends no credentials.
    user: Option<Arc<dyn User>>,
}

const DEFAULT_ADDRESS: &str = "127.0.0.1:8001";
const AGENT: HeaderValue = HeaderValue::from_static(concat!("informerd/", env!("CARGO_PKG_VERSION")));

// === impl Server ===

impl Server {
    /// Reads the files that are named.
    ///
    /// # Errors
    /// A file is missing, an option is wrong, or credentials would be sent in plain text. The message is one line.
    pub async fn target(&self, readers: Readers) -> Result<Target, String> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let read = (readers.kubeconfig)(path, self.context.as_deref());
                read.map_err(|error| format!("kubeconfig {}: {error}", path.display()))?
            }
            None => kube::Config::new(Uri::from_static("http://localhost")),
        };
        let address = match (&self.address, &self.kubeconfig) {
            (Some(address), _) => address.clone(),
            (None, Some(_)) => of_url(&config.cluster_url)?,
            (None, None) => Address::Http(DEFAULT_ADDRESS.to_owned()),
        };
        self.credentials(&mut config)?;
        // Proxies of the environment are meant for the connection to the apiserver.
        config.proxy_url = None;
        let user = &config.auth_info;
        let says = user.token.is_some()
            || user.token_file.is_some()
            || user.username.is_some()
            || user.exec.is_some()
            || user.auth_provider.is_some();
        let shows = user.client_certificate.is_some() || user.client_certificate_data.is_some();
        let Address::Https(authority) = &address else {
            let clear = matches!(address, Address::Http(_));
            if shows || clear && says {
                return Err(format!("credentials are for https://, and not for {address}"));
            }
            let user = if says { Some(user_of(config, readers).await?) } else { None };
            return Ok(Target { address, agent: AGENT, tls: None, user });
        };
        let user = user_of(config.clone(), readers).await?;
        let mut tls = user.tls(&config)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let host = Uri::try_from(authority.as_str()).ok().and_then(|uri| uri.host().map(str::to_owned));
        let host = config.tls_server_name.clone().or(host).unwrap_or_default();
        let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned());
        let name = name.map_err(|error| format!("{address}: {error}"))?;
        let tls = Some((TlsConnector::from(Arc::new(tls)), name));
        Ok(Target { address, agent: AGENT, tls, user: Some(user) })
    }

    /// Applies the flags, which override the kubeconfig.
    fn credentials(&self, config: &mut kube::Config) -> Result<(), String> {
        if let Some(path) = &self.ca_file {
            let wrong = |error: &dyn fmt::Display| format!("CA file {}: {error}", path.display());
            let roots = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            let roots = roots.map(|root| root.map(|root| root.to_vec())).collect::<Result<Vec<_>, _>>();
            let roots = roots.map_err(|error| wrong(&error))?;
            if roots.is_empty() {
                return Err(wrong(&"no certificate in it"));
            }
            config.root_cert = Some(roots);
            config.accept_invalid_certs = false;
        }
        let user = &mut config.auth_info;
        if self.token.is_some() || self.token_file.is_some() {
            (user.token, user.token_file, user.exec, user.username) = (None, None, None, None);
        }
        if let Some(Token(token)) = &self.token {
            user.token = Some(token.clone().into());
        }
        user.token_file = self.token_file.as_ref().map(|path| path.display().to_string()).or(user.token_file.take());
        if let Some((certificate, key)) = &self.certificate {
            (user.client_certificate_data, user.client_key_data) = (None, None);
            user.client_certificate = Some(certificate.display().to_string());
            user.client_key = Some(key.display().to_string());
        }
        Ok(())
    }
}

/// The address of the server in a kubeconfig.
fn of_url(url: &Uri) -> Result<Address, String> {
    let https = match url.scheme_str() {
        Some("https") => true,
        Some("http") | None => false,
        Some(other) => return Err(format!("the server {url} of the kubeconfig has the unknown scheme {other}")),
    };
    let host = url.host().ok_or_else(|| format!("the server {url} of the kubeconfig has no host"))?;
    if !matches!(url.path(), "" | "/") {
        return Err(format!("the server {url} of the kubeconfig is below a path, and informerd is not"));
    }
    let authority = format!("{host}:{}", url.port_u16().unwrap_or(if https { 443 } else { 80 }));
    Ok(if https { Address::Https(authority) } else { Address::Http(authority) })
}

// === impl Target ===

impl Target {
    /// The same daemon for a client of another name.
    pub fn named(self, agent: &'static str) -> Self {
        Self { agent: HeaderValue::from_static(agent), ..self }
    }

    /// The headers of a call that identify the client. Tokens are short-lived, so they are read again when it is time.
    ///
    /// # Errors
    /// The credentials cannot be renewed.
    pub async fn headers(&self) -> io::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(user) = &self.user {
            user.identify(&mut headers).await?;
        }
        headers.insert(USER_AGENT, self.agent.clone());
        Ok(headers)
    }
}

/// Reads the credentials. This runs an exec plugin.
async fn user_of(config: kube::Config, readers: Readers) -> Result<Arc<dyn User>, String> {
    tokio::task::spawn_blocking(move || (readers.user)(&config)).await.map_err(|error| error.to_string())?
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_a_kubeconfig() {
        let of = |url: &str| of_url(&url.parse().unwrap());
        assert_eq!(of("https://a.example"), Ok(Address::Https("a.example:443".into())));
        assert_eq!(of("https://[::1]:6443/"), Ok(Address::Https("[::1]:6443".into())));
        assert_eq!(of("http://127.0.0.1:8001"), Ok(Address::Http("127.0.0.1:8001".into())));
        assert!(of("https://rancher.example/k8s/clusters/c").is_err());
        assert!(of("ftp://a.example").is_err());
    }
}
