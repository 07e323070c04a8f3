//! Which informerd is meant.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Error, Server};

const SIDECAR: &str = "http://127.0.0.1:8001";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What [`Find::server`] looks for. The default is what `INFORMERD_ADDRESS`, `INFORMERD_CA_FILE` and
/// `INFORMERD_TOKEN_FILE` name.
#[derive(Clone, Debug)]
pub struct Find {
    /// `http://ADDRESS:PORT`, `https://ADDRESS:PORT` or `unix:///PATH`.
    pub address: Option<String>,
    /// The CA of an `https://` address, in PEM. Without it, the `ca.crt` of the pod's service account, or the system's.
    pub ca_file: Option<PathBuf>,
    /// A bearer token. Without it, the token of the pod's service account.
    pub token_file: Option<PathBuf>,
    /// Where a sidecar is looked for, by default `http://127.0.0.1:8001`.
    pub sidecar: String,
    /// How long to wait for an informerd to answer, by default a second.
    pub probe_timeout: Duration,
    /// Host and port of the pod's in-cluster address: `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
    pub in_cluster: Option<(String, String)>,
    /// The directory of the pod's service account.
    pub account: PathBuf,
}

// === impl Find ===

impl Default for Find {
    fn default() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            address: variable("INFORMERD_ADDRESS"),
            ca_file: variable("INFORMERD_CA_FILE").map(Into::into),
            token_file: variable("INFORMERD_TOKEN_FILE").map(Into::into),
            sidecar: SIDECAR.to_owned(),
            probe_timeout: Duration::from_secs(1),
            in_cluster: variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT")),
            account: ACCOUNT.into(),
        }
    }
}

impl Find {
    /// The informerd at the address. Without one it is a sidecar, or else the pod's in-cluster
    /// address if an informerd answers there. The token and CA of the pod's service account are the defaults for an address
    /// that was named; a sidecar that was only guessed gets no credentials.
    ///
    /// # Errors
    /// The address is wrong, or a token would be sent in plain text to another machine.
    pub async fn server(self) -> Result<Server, Error> {
        let of_pod = |name| Some(self.account.join(name)).filter(|path| path.exists());
        let ca_file = self.ca_file.clone().or_else(|| of_pod("ca.crt"));
        let (given, token) = (self.token_file.clone(), of_pod("token"));
        match self.address.as_deref() {
            Some("off") => return Err(Error::Invalid("INFORMERD_ADDRESS is \"off\"".to_owned())),
            Some(address) => {
                let named = Server::new(address, ca_file.clone(), given.clone())?;
                let token_file = given.or(token.filter(|_| named.is_safe()));
                return Server::new(address, ca_file, token_file);
            }
            None => {}
        }
        let guess = Server::new(&self.sidecar, ca_file.clone(), given.clone())?;
        if let (Some((host, port)), Some(token)) = (self.in_cluster, token)
            && !guess.answers(self.probe_timeout).await
        {
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let led = Server::new(&format!("https://{host}:{port}"), ca_file, Some(given.unwrap_or(token)))?;
            if led.answers(self.probe_timeout).await {
                return Ok(led);
            }
        }
        Ok(guess)
    }
}
