//! Where the configuration comes from, and how changes of it are read.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::PathBuf;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::Empty;
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use rustls::ClientConfig;
use tower::Layer as _;
use tower::util::BoxCloneSyncService;

use super::connect::Endpoint;
use crate::upstream::error::{BoxError, Cause, UpstreamError};
use crate::upstream::kubeconfig;

/// Answers a request with the same headers plus our credentials and impersonation headers.
pub(super) type AuthService = BoxCloneSyncService<Request<Empty<Bytes>>, Response<HeaderMap>, BoxError>;

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
    pub(super) auth: AuthService,
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
        let config_error = |error: BoxError| UpstreamError::Config(Cause::new(error));
        match self {
            Self::Kubeconfig { context, cluster, user, .. } => {
                let source = self.clone();
                let (kubeconfig, files, fingerprint) = blocking(move || source.read_kubeconfig()).await?;
                let options =
                    KubeConfigOptions { context: context.clone(), cluster: cluster.clone(), user: user.clone() };
                let explicit_proxy = selected(&kubeconfig, &options).0.and_then(|c| c.proxy_url.clone());
                let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|error| config_error(error.into()))?;
                refuse_proxy(&mut config, explicit_proxy.as_deref())?;
                Ok((config, files, fingerprint))
            }
            Self::InCluster => {
                let files = self.own_files();
                let fingerprint = fingerprint_of(files.clone()).await?;
                let config = blocking(|| {
                    kube::Config::incluster().map_err(|error| {
                        let text = format!("no kubeconfig was given, and this is no pod of a cluster either: {error}");
                        UpstreamError::Config(Cause::new(text))
                    })
                });
                Ok((config.await?, files, fingerprint))
            }
            Self::Fixed(config) => {
                let files = self.own_files();
                let fingerprint = fingerprint_of(files.clone()).await?;
                let mut config = (**config).clone();
                let explicit = config.proxy_url.as_ref().map(Uri::to_string);
                refuse_proxy(&mut config, explicit.as_deref())?;
                Ok((config, files, fingerprint))
            }
        }
    }

    /// A hash that changes with the files that the configuration is read from.
    pub(super) async fn fingerprint(&self) -> Result<Fingerprint, UpstreamError> {
        match self {
            Self::Kubeconfig { .. } => {
                let source = self.clone();
                Ok(blocking(move || source.read_kubeconfig()).await?.2)
            }
            Self::InCluster | Self::Fixed(_) => fingerprint_of(self.own_files()).await,
        }
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

    fn read_kubeconfig(&self) -> Result<(Kubeconfig, Files, Fingerprint), UpstreamError> {
        let Self::Kubeconfig { paths, context, cluster, user } = self else {
            return Ok((Kubeconfig::default(), Files::default(), Fingerprint::default()));
        };
        // Hash the files before they are read, so that a change between the two is noticed.
        let before = hash(paths);
        let merged = kubeconfig::read_all(paths).map_err(|error| UpstreamError::Config(Cause::new(error)))?;
        let options = KubeConfigOptions { context: context.clone(), cluster: cluster.clone(), user: user.clone() };
        let (cluster, user) = selected(&merged, &options);
        let mut connection = BTreeSet::new();
        connection.extend(cluster.and_then(|cluster| cluster.certificate_authority.as_deref()).map(PathBuf::from));
        for named in [user.and_then(|u| u.client_certificate.as_deref()), user.and_then(|u| u.client_key.as_deref())] {
            connection.extend(named.map(PathBuf::from));
        }
        let named = Files { connection, token: user.and_then(|user| user.token_file.as_deref()).map(PathBuf::from) };
        let mut fingerprint = named.fingerprint();
        fingerprint.connection ^= before.rotate_left(1);
        let mut files = named;
        files.connection.extend(paths.iter().cloned());
        Ok((merged, files, fingerprint))
    }

    pub(super) async fn load(&self) -> Result<Loaded, UpstreamError> {
        let (config, files, fingerprint) = self.read_with_files().await?;
        // The layers run exec plugins synchronously.
        blocking(move || Loaded::build(&config, files, fingerprint)).await
    }
}

/// Where the kubelet puts the cluster's CA and the token; the client library's own constants are not public.
const SERVICE_ACCOUNT: [&str; 2] =
    ["/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "/var/run/secrets/kubernetes.io/serviceaccount/token"];

async fn fingerprint_of(files: Files) -> Result<Fingerprint, UpstreamError> {
    blocking(move || Ok(files.fingerprint())).await
}

/// A hash that changes with the contents of the files. A missing file counts as a content of its own.
fn hash<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).ok().hash(&mut hasher);
    }
    hasher.finish()
}

/// The cluster and the user selected by the options or by the file's current context.
fn selected<'a>(
    kubeconfig: &'a Kubeconfig,
    options: &KubeConfigOptions,
) -> (Option<&'a kube::config::Cluster>, Option<&'a AuthInfo>) {
    let name = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|named| Some(&named.name) == name);
    let context = context.and_then(|named| named.context.as_ref());
    let cluster = options.cluster.as_ref().or(context.map(|context| &context.cluster));
    let user = options.user.as_ref().or(context.and_then(|context| context.user.as_ref()));
    let cluster = kubeconfig.clusters.iter().find(|named| Some(&named.name) == cluster);
    let user = kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == user);
    (cluster.and_then(|named| named.cluster.as_ref()), user.and_then(|named| named.auth_info.as_ref()))
}

/// Proxies are not supported. A proxy that is set only in the environment is ignored for a server on this machine or
/// one that NO_PROXY exempts, as in the Go client.
fn refuse_proxy(config: &mut kube::Config, explicit: Option<&str>) -> Result<(), UpstreamError> {
    if let Some(proxy) = explicit.filter(|proxy| !proxy.is_empty()) {
        let message = format!("a proxy to the apiserver is not supported (proxy-url {proxy})");
        return Err(UpstreamError::Config(Cause::new(message)));
    }
    let Some(proxy) = config.proxy_url.take() else { return Ok(()) };
    let no_proxy = std::env::var("NO_PROXY").or_else(|_| std::env::var("no_proxy")).unwrap_or_default();
    let host = config.cluster_url.host().unwrap_or_default();
    if exempt_from_proxy(host, &no_proxy) {
        return Ok(());
    }
    let message = format!("a proxy to the apiserver is not supported (HTTPS_PROXY is {proxy}): add {host} to NO_PROXY");
    Err(UpstreamError::Config(Cause::new(message)))
}

fn exempt_from_proxy(host: &str, no_proxy: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase()).filter(|entry| !entry.is_empty()).any(|entry| {
        if let (Some(address), Some((network, bits))) = (address, entry.split_once('/')) {
            return in_network(address, network, bits);
        }
        let domain = entry.trim_start_matches("*.").trim_start_matches('.');
        entry == "*" || host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    })
}

fn in_network(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) if bits <= 32 => {
            let shift = 32 - bits;
            u32::from(a).checked_shr(shift).unwrap_or(0) == u32::from(n).checked_shr(shift).unwrap_or(0)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) if bits <= 128 => {
            let shift = 128 - bits;
            u128::from(a).checked_shr(shift).unwrap_or(0) == u128::from(n).checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
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
        let auth_error = |error: kube::Error| match error {
            kube::Error::Auth(error) => UpstreamError::Auth(Cause::new(error)),
            error => UpstreamError::Config(Cause::new(error)),
        };
        let echo = tower::service_fn(|request: Request<Empty<Bytes>>| async {
            Ok::<_, BoxError>(Response::new(request.into_parts().0.headers))
        });
        let headers = config.extra_headers_layer().map_err(auth_error)?;
        let auth = match config.auth_layer().map_err(auth_error)? {
            Some(layer) => BoxCloneSyncService::new(headers.layer(layer.layer(echo))),
            None => BoxCloneSyncService::new(headers.layer(echo)),
        };
        let (own_tls, bare_tls) = if endpoint.base.scheme() == Some(&Scheme::HTTPS) {
            let mut bare = config.clone();
            bare.auth_info = AuthInfo::default();
            let own = config.rustls_client_config().map_err(auth_error)?;
            (Some(own), Some(bare.rustls_client_config().map_err(auth_error)?))
        } else {
            (None, None)
        };
        let certificates = UpstreamCertificates {
            client: own_tls.as_ref().and_then(client_certificate),
            authorities: config.root_cert.clone().unwrap_or_default(),
        };
        let may_change_certificate = config.auth_info.exec.is_some();
        Ok(Self { endpoint, own_tls, bare_tls, auth, files, fingerprint, may_change_certificate, certificates })
    }
}

/// The certificate that is shown to the apiserver if it asks for one.
fn client_certificate(tls: &ClientConfig) -> Option<Vec<u8>> {
    let schemes = tls.crypto_provider().signature_verification_algorithms.supported_schemes();
    Some(tls.client_auth_cert_resolver.resolve(&[], &schemes)?.cert.first()?.to_vec())
}

// === impl Endpoint ===

impl Endpoint {
    fn of(config: &kube::Config) -> Result<Self, UpstreamError> {
        let config_error = |message: String| UpstreamError::Config(Cause::new(message));
        let url = &config.cluster_url;
        let host = url.host().ok_or_else(|| config_error(format!("the server url {url} has no host")))?;
        let https = match url.scheme_str() {
            Some("https") => true,
            Some("http") | None => false,
            Some(other) => return Err(config_error(format!("the server url {url} has the unknown scheme {other}"))),
        };
        let (scheme, default_port) = if https { ("https", 443) } else { ("http", 80) };
        let authority = match url.port_u16() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        // The default port is left out of the Host header, as other clients do.
        let authority = authority.strip_suffix(&format!(":{default_port}")).unwrap_or(&authority).to_owned();
        let base = Uri::builder().scheme(scheme).authority(&*authority).path_and_query("/").build();
        let base = base.map_err(|error| UpstreamError::Config(Cause::new(error)))?;
        Ok(Self {
            base,
            authority: authority.into(),
            prefix: url.path().trim_end_matches('/').into(),
            server_name: config.tls_server_name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environments_proxy_is_not_for_every_server() {
        assert!(exempt_from_proxy("127.0.0.1", ""));
        assert!(exempt_from_proxy("[::1]", ""));
        assert!(exempt_from_proxy("localhost", ""));
        assert!(!exempt_from_proxy("10.0.0.1", ""));
        assert!(exempt_from_proxy("10.0.0.1", "example.com, 10.0.0.0/8"));
        assert!(!exempt_from_proxy("11.0.0.1", "10.0.0.0/8"));
        assert!(exempt_from_proxy("fd00::1", "fd00::/8"));
        assert!(exempt_from_proxy("api.example.com", ".example.com"));
        assert!(exempt_from_proxy("api.example.com", "example.com"));
        assert!(!exempt_from_proxy("badexample.com", "example.com"));
        assert!(exempt_from_proxy("anything", "*"));
    }

    #[test]
    fn the_endpoint_keeps_the_path_of_the_url() {
        let config = kube::Config::new("https://example.com/k8s/clusters/c1/".parse().unwrap());
        let endpoint = Endpoint::of(&config).unwrap();
        assert_eq!((&*endpoint.authority, &*endpoint.prefix), ("example.com", "/k8s/clusters/c1"));
        let config = kube::Config::new("https://[::1]:6443".parse().unwrap());
        let endpoint = Endpoint::of(&config).unwrap();
        assert_eq!((&*endpoint.authority, &*endpoint.prefix), ("[::1]:6443", ""));
        let config = kube::Config::new("http://127.0.0.1:80".parse().unwrap());
        assert_eq!(&*Endpoint::of(&config).unwrap().authority, "127.0.0.1");
    }

    #[tokio::test]
    async fn a_proxy_in_the_kubeconfig_is_refused_with_a_clear_message() {
        let mut config = kube::Config::new("https://10.0.0.1".parse().unwrap());
        config.proxy_url = Some("http://proxy:3128".parse().unwrap());
        let error = ConfigSource::Fixed(Box::new(config)).load().await.err().unwrap();
        assert!(error.to_string().contains("proxy to the apiserver is not supported"), "{error}");
    }
}
