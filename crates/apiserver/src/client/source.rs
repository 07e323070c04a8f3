//! Where the configuration comes from, and how changes of it are read.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use http::uri::Scheme;
use rustls::ClientConfig;

use super::endpoint::Endpoint;
use crate::error::{Cause, UpstreamError};
use crate::kubeconfig::{self, Credentials, KubeconfigError, Wanted};

/// Where the apiserver's address and our credentials are stored.
#[derive(Clone, Debug)]
pub enum ConfigSource {
    /// kubeconfig files, merged in their order; the first value wins. `None` means the file's own current value.
    Kubeconfig { paths: Vec<PathBuf>, context: Option<String>, cluster: Option<String>, user: Option<String> },
    /// The service account of the pod we run in.
    InCluster,
    /// A configuration in memory. Its token file and exec plugin are still followed.
    Fixed(Box<kube::Config>),
}

/// A configuration that is ready to connect with.
pub(super) struct Loaded {
    pub(super) endpoint: Endpoint,
    /// `None` for `http://`.
    pub(super) own_tls: Option<ClientConfig>,
    pub(super) bare_tls: Option<ClientConfig>,
    pub(super) credentials: Credentials,
    pub(super) files: Files,
    pub(super) fingerprint: Fingerprint,
    /// An exec plugin may return another client certificate although no file changes.
    pub(super) may_change_certificate: bool,
    pub(super) certificates: UpstreamCertificates,
}

/// The files a configuration is read from.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// The files with the apiserver's address and the certificates for connections.
    connection: BTreeSet<PathBuf>,
    /// The file with the bearer token. Tokens belong to requests, not to connections.
    token: Option<PathBuf>,
}

/// Hashes of the contents of all files that the configuration was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) connection: u64,
    token: u64,
}

/// The certificates of a connection to the apiserver, in DER.
#[derive(Clone, Debug, Default)]
pub struct UpstreamCertificates {
    /// Our own certificate; `None` if there is none.
    pub client: Option<Vec<u8>>,
    /// The CAs in the configuration.
    pub authorities: Vec<Vec<u8>>,
}

// === impl ConfigSource ===

impl ConfigSource {
    /// One kubeconfig file with its current context.
    pub fn kubeconfig(path: impl Into<PathBuf>) -> Self {
        Self::Kubeconfig { paths: vec![path.into()], context: None, cluster: None, user: None }
    }

    /// Reads the configuration. Runs the exec plugin if the kubeconfig names one.
    pub async fn read(&self) -> Result<kube::Config, UpstreamError> {
        Ok(self.read_with_files().await?.0)
    }

    async fn read_with_files(&self) -> Result<(kube::Config, Files, Fingerprint), UpstreamError> {
        let source = self.clone();
        blocking(move || source.read_blocking()).await
    }

    /// A hash that changes with the files that the configuration is read from.
    pub(super) async fn fingerprint(&self) -> Result<Fingerprint, UpstreamError> {
        if matches!(self, Self::Kubeconfig { .. }) {
            return Ok(self.read_with_files().await?.2);
        }
        let files = self.own_files();
        blocking(move || Ok(files.fingerprint())).await
    }

    /// The files of a configuration that is not a kubeconfig.
    fn own_files(&self) -> Files {
        match self {
            Self::InCluster => {
                let [ca, token] = SERVICE_ACCOUNT.map(PathBuf::from);
                Files { connection: BTreeSet::from([ca]), token: Some(token) }
            }
            Self::Fixed(config) => Files {
                connection: config.root_cert_file.iter().cloned().collect(),
                token: config.auth_info.token_file.as_ref().map(PathBuf::from),
            },
            Self::Kubeconfig { .. } => Files::default(),
        }
    }

    fn read_blocking(self) -> Result<(kube::Config, Files, Fingerprint), UpstreamError> {
        // Hash the files before they are read, so that a change between the two is noticed.
        let own = self.own_files();
        let fingerprint = own.fingerprint();
        let config = match self {
            Self::Kubeconfig { paths, context, cluster, user } => {
                let before = hash(&paths);
                let read = kubeconfig::load(&paths, &Wanted { context, cluster, user });
                let read = read.map_err(|error| UpstreamError::Config(Cause::new(error)))?;
                let mut files = Files { connection: read.named.into_iter().collect(), token: read.token_file };
                let mut fingerprint = files.fingerprint();
                fingerprint.connection ^= before.rotate_left(1);
                files.connection.extend(paths);
                return Ok((read.config, files, fingerprint));
            }
            Self::InCluster => kube::Config::incluster().map_err(|error| {
                let text = format!("no kubeconfig was given, and this is no pod of a cluster either: {error}");
                UpstreamError::Config(Cause::new(text))
            })?,
            Self::Fixed(config) => *config,
        };
        Ok((config, own, fingerprint))
    }

    pub(super) async fn load(&self) -> Result<Loaded, UpstreamError> {
        let (config, files, fingerprint) = self.read_with_files().await?;
        // Runs an exec plugin.
        blocking(move || Loaded::build(&config, files, fingerprint)).await
    }
}

/// Where the kubelet puts the cluster's CA and the token; the client library's own constants are not public.
const SERVICE_ACCOUNT: [&str; 2] =
    ["/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "/var/run/secrets/kubernetes.io/serviceaccount/token"];

/// A hash that changes with the contents of the files. A missing file counts as a content of its own.
fn hash<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).ok().hash(&mut hasher);
    }
    hasher.finish()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UpstreamError> + Send + 'static,
) -> Result<T, UpstreamError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(UpstreamError::Config(Cause::new(error))))
}

// === impl Files ===

impl Files {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint { connection: hash(&self.connection), token: hash(&self.token) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connection.is_empty() && self.token.is_none()
    }
}

// === impl Loaded ===

impl Loaded {
    fn build(config: &kube::Config, files: Files, fingerprint: Fingerprint) -> Result<Self, UpstreamError> {
        let endpoint = Endpoint::of(config)?;
        let wrong = |error: KubeconfigError| UpstreamError::Auth(Cause::new(error));
        let credentials = Credentials::new(config).map_err(wrong)?;
        let is_https = endpoint.base.scheme() == Some(&Scheme::HTTPS);
        let own_tls = is_https.then(|| credentials.client_config(config)).transpose().map_err(wrong)?;
        let bare_tls = is_https.then(|| kubeconfig::bare_client_config(config)).transpose().map_err(wrong)?;
        let certificates = UpstreamCertificates {
            client: own_tls.as_ref().and_then(client_certificate),
            authorities: config.root_cert.clone().unwrap_or_default(),
        };
        let may_change_certificate = config.auth_info.exec.is_some();
        Ok(Self { endpoint, own_tls, bare_tls, credentials, files, fingerprint, may_change_certificate, certificates })
    }
}

/// The certificate that is shown to the apiserver if it asks for one.
fn client_certificate(tls: &ClientConfig) -> Option<Vec<u8>> {
    Some(tls.client_auth_cert_resolver.resolve(&[], &[])?.cert.first()?.to_vec())
}
