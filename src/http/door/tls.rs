//! Serving certificates. They come from files that are read again when they change, or are issued by a CA of our own.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use arc_swap::ArcSwapOption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

pub(super) use super::certified_key::TlsError;
use super::certified_key::certified;
use super::cipher_suites::TlsServer;
use super::client_certificates::{AnyClient, NoTickets};
use super::config::{CertificateFiles, TlsConfig};
use super::local_ca::Authority;

/// How often a CA of our own is checked: whether its certificate has to be replaced, and whether the CA still has to be
/// written.
const TENDED: Duration = Duration::from_secs(60);

/// The certificate of the `https` listeners, replaced in place when it changes.
#[derive(Debug)]
pub struct Certificates {
    source: Source,
    resolver: Arc<Resolver>,
    server: TlsServer,
    delegated: TlsServer,
    reload_interval: Duration,
    waiting: Waiting,
}

/// What is to be done once there is a certificate.
#[derive(Default)]
struct Waiting(parking_lot::Mutex<Vec<Box<dyn FnOnce() + Send>>>);

#[derive(Debug)]
enum Source {
    Files {
        files: CertificateFiles,
        seen: parking_lot::Mutex<(Vec<u8>, Vec<u8>)>,
    },
    SelfIssued(Authority),
    /// Set later, by a component that asks for these names.
    Given {
        names: Vec<String>,
    },
}

#[derive(Debug)]
struct Resolver {
    current: ArcSwapOption<CertifiedKey>,
}

// === impl Certificates ===

impl Certificates {
    /// Reads or issues the certificate. `addresses` are the listen addresses; a self-issued certificate contains them.
    ///
    /// # Errors
    /// The files cannot be read, or certificate and key do not match.
    pub fn load(config: &TlsConfig, addresses: &[IpAddr]) -> Result<Self, TlsError> {
        let (source, first) = match &config.files {
            None if config.given => (Source::Given { names: names(config, addresses) }, None),
            Some(files) => {
                let (certificate, key) = read_pair(files)?;
                let first = certified(files, &certificate, &key)?;
                let seen = parking_lot::Mutex::new((certificate, key));
                (Source::Files { files: files.clone(), seen }, Some(first))
            }
            None => {
                let authority = Authority::open(&config.state_dir, names(config, addresses))?;
                let first = authority.issue()?;
                (Source::SelfIssued(authority), Some(first))
            }
        };
        let resolver = Arc::new(Resolver { current: ArcSwapOption::from_pointee(first) });
        let server = TlsServer::new(|provider| server_config(provider, &resolver, None, config))?;
        let delegated = TlsServer::new(|provider| {
            let clients = config.client_certificates.then(AnyClient::new);
            let mut delegated = server_config(provider, &resolver, clients, config)?;
            // Clients are authenticated anew on every connection, so sessions are not resumed.
            delegated.session_storage = Arc::new(NoServerSessionStorage {});
            delegated.ticketer = Arc::new(NoTickets);
            delegated.send_tls13_tickets = 0;
            Ok::<_, TlsError>(delegated)
        })?;
        let (reload_interval, waiting) = (config.reload_interval, Waiting::default());
        Ok(Self { source, resolver, server, delegated, reload_interval, waiting })
    }

    pub fn server(&self) -> TlsServer {
        self.server.clone()
    }

    /// For listeners that authenticate their clients.
    pub fn delegated_server(&self) -> TlsServer {
        self.delegated.clone()
    }

    /// The file with the CA that clients have to trust; `None` if the certificate was not self-issued.
    pub fn ca_file(&self) -> Option<&Path> {
        match &self.source {
            Source::SelfIssued(authority) => Some(&authority.certificate_file),
            Source::Files { .. } | Source::Given { .. } => None,
        }
    }

    /// The certificate chain that clients see, in DER, leaf first. Empty until there is one.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.resolver.current.load().as_ref().map(|current| current.cert.clone()).unwrap_or_default()
    }

    /// The names that a certificate for [`Self::give`] must contain; `None` if the certificate is not set that way.
    pub fn names_to_give(&self) -> Option<&[String]> {
        match &self.source {
            Source::Given { names } => Some(names),
            Source::Files { .. } | Source::SelfIssued(_) => None,
        }
    }

    /// Sets the certificate chain and its key, both in PEM.
    ///
    /// # Errors
    /// They are not valid PEM, or do not match.
    pub fn give(&self, chain: &str, key: &str) -> Result<(), TlsError> {
        let files = CertificateFiles { certificate: "the given certificate".into(), key: "the given key".into() };
        let next = certified(&files, chain.as_bytes(), key.as_bytes())?;
        let waiting = {
            let mut waiting = self.waiting.0.lock();
            self.resolver.current.store(Some(Arc::new(next)));
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(|begin| begin());
        Ok(())
    }

    /// Calls this once there is a certificate, in a runtime: at once, or before [`Self::give`] returns.
    pub(in crate::http) fn once_there(&self, begin: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting.0.lock();
        if self.resolver.current.load().is_none() {
            return waiting.push(Box::new(begin));
        }
        drop(waiting);
        begin();
    }

    /// Keeps the certificate up to date. Never returns. If a new certificate cannot be used, the error is logged and
    /// the old one is kept.
    pub async fn keep_fresh(self: Arc<Self>) {
        let interval = match self.source {
            Source::Files { .. } => self.reload_interval,
            Source::SelfIssued(_) => TENDED,
            Source::Given { .. } => return std::future::pending().await,
        };
        loop {
            tokio::time::sleep(interval).await;
            if let Source::SelfIssued(authority) = &self.source {
                authority.save_again();
                if !authority.is_due() {
                    continue;
                }
            }
            match self.refresh() {
                Ok(true) => tracing::info!("serving certificate replaced"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "serving certificate not replaced, the old one stays in use"),
            }
        }
    }

    /// Checks once for a newer certificate. Returns true if it was put into use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let next = match &self.source {
            Source::Given { .. } => return Ok(false),
            Source::SelfIssued(authority) => authority.issue()?,
            Source::Files { files, seen } => {
                let pair = read_pair(files)?;
                if *seen.lock() == pair {
                    return Ok(false);
                }
                // Remembered only after it proved usable: certificate and key may change one after the other.
                let next = certified(files, &pair.0, &pair.1)?;
                *seen.lock() = pair;
                next
            }
        };
        self.resolver.current.store(Some(Arc::new(next)));
        Ok(true)
    }
}

// === impl Waiting ===

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiting").field(&self.0.lock().len()).finish()
    }
}

// === impl Resolver ===

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

fn names(config: &TlsConfig, addresses: &[IpAddr]) -> Vec<String> {
    let mut names: Vec<String> =
        ["localhost", "informerd.local", "127.0.0.1", "::1"].into_iter().map(str::to_owned).collect();
    let given = addresses.iter().filter(|ip| !ip.is_unspecified()).map(IpAddr::to_string);
    for name in given.chain(config.names.iter().cloned()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn server_config(
    provider: CryptoProvider,
    resolver: &Arc<Resolver>,
    clients: Option<AnyClient>,
    config: &TlsConfig,
) -> Result<rustls::ServerConfig, TlsError> {
    let versions = if config.only_tls13 { &[&rustls::version::TLS13][..] } else { rustls::DEFAULT_VERSIONS };
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions)?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(Arc::new(clients)),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder.with_cert_resolver(Arc::clone(resolver) as Arc<dyn ResolvesServerCert>);
    // Clients that want an upgrade use no ALPN; their connections are HTTP/1.1.
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Some clients open a connection for each request. A resumed handshake saves both sides the key exchange.
    server.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(server)
}

fn read_pair(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let read = |path: &Path| fs::read(path).map_err(|error| TlsError::File { path: path.to_owned(), error });
    Ok((read(&files.certificate)?, read(&files.key)?))
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
