//! Serving certificates: from files that are read again when they change, or issued by a CA of our own.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::client_certificates::{AnyClient, NoTickets};
use super::config::{CertificateFiles, TlsConfig};

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CA_YEARS: i16 = 10;
/// How many days a self-issued serving certificate is valid. It is replaced each day the process is awake: the clock of
/// the wait stands still while a machine sleeps.
const LEAF_DAYS: i64 = 90;
const LEAF_RENEWAL: Duration = Duration::from_secs(86_400);

/// The certificate of the `https` listeners, replaced in place when it changes.
#[derive(Debug)]
pub struct Certificates {
    source: Source,
    resolver: Arc<Resolver>,
    config: Arc<rustls::ServerConfig>,
    delegated: Arc<rustls::ServerConfig>,
    reload_interval: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: {error}", path = path.display())]
    Pem { path: PathBuf, error: rustls::pki_types::pem::Error },
    #[error("{path} holds no certificate", path = .0.display())]
    Empty(PathBuf),
    #[error("certificate and key: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("issuing a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("{path} does not belong to the key beside it, remove both to have a new authority made", path = .0.display())]
    Mismatch(PathBuf),
    #[error("{path} is a key that every user of this machine may use, take the rights of others away or remove it", path = .0.display())]
    Exposed(PathBuf),
}

#[derive(Debug)]
enum Source {
    Files {
        files: CertificateFiles,
        seen: parking_lot::Mutex<(Vec<u8>, Vec<u8>)>,
    },
    SelfIssued(Authority),
    /// By somebody who knows these names.
    Given {
        names: Vec<String>,
    },
}

/// A CA of our own. Its key never leaves the state directory and this process.
#[derive(Debug)]
struct Authority {
    certificate_file: PathBuf,
    certificate: CertificateDer<'static>,
    key: String,
    names: Vec<String>,
}

#[derive(Debug)]
struct Resolver {
    current: ArcSwapOption<CertifiedKey>,
}

// === impl Certificates ===

impl Certificates {
    /// Reads or issues the certificate; `addresses` are the listen addresses, which a self-issued one names.
    ///
    /// # Errors
    /// Files that cannot be read or do not belong together, or a state directory that cannot be written.
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
        let of =
            |clients| server_config(Arc::clone(&resolver) as Arc<dyn ResolvesServerCert>, clients, config.only_tls13);
        let of_trusting = of(None)?;
        let asks = config.client_certificates.then(AnyClient::new);
        let mut of_delegated = of(asks)?;
        // Who a client is is settled anew with every connection.
        of_delegated.session_storage = Arc::new(NoServerSessionStorage {});
        of_delegated.ticketer = Arc::new(NoTickets);
        of_delegated.send_tls13_tickets = 0;
        Ok(Self {
            source,
            resolver,
            config: Arc::new(of_trusting),
            delegated: Arc::new(of_delegated),
            reload_interval: config.reload_interval,
        })
    }

    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.config)
    }

    /// For listeners that authenticate their clients.
    pub fn delegated_config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.delegated)
    }

    /// The file that clients are to trust; `None` when the certificate was given.
    pub fn ca_file(&self) -> Option<&Path> {
        match &self.source {
            Source::SelfIssued(authority) => Some(&authority.certificate_file),
            Source::Files { .. } | Source::Given { .. } => None,
        }
    }

    /// The chain that clients are shown, in DER, their own certificate first; empty until there is one.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.resolver.current.load().as_ref().map(|current| current.cert.clone()).unwrap_or_default()
    }

    /// What a certificate that is to be given must be for; `None` when none is.
    pub fn names_to_give(&self) -> Option<&[String]> {
        match &self.source {
            Source::Given { names } => Some(names),
            Source::Files { .. } | Source::SelfIssued(_) => None,
        }
    }

    /// Puts a certificate chain and its key, both PEM, into use.
    ///
    /// # Errors
    /// They are none, or do not belong together.
    pub fn give(&self, chain: &str, key: &str) -> Result<(), TlsError> {
        let files = CertificateFiles { certificate: "the given certificate".into(), key: "the given key".into() };
        let next = certified(&files, chain.as_bytes(), key.as_bytes())?;
        self.resolver.current.store(Some(Arc::new(next)));
        Ok(())
    }

    /// Keeps the certificate fresh, for ever. A change that cannot be used is logged and the old one kept.
    pub async fn keep_fresh(self: Arc<Self>) {
        let interval = match self.source {
            Source::Files { .. } => self.reload_interval,
            Source::SelfIssued(_) => LEAF_RENEWAL,
            Source::Given { .. } => return std::future::pending().await,
        };
        loop {
            tokio::time::sleep(interval).await;
            match self.refresh() {
                Ok(true) => tracing::info!("serving certificate replaced"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "serving certificate not replaced, the old one stays in use"),
            }
        }
    }

    /// Looks once whether there is a newer certificate; true when it was put into use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let next = match &self.source {
            Source::Given { .. } => return Ok(false),
            Source::SelfIssued(authority) => authority.issue()?,
            Source::Files { files, seen } => {
                let pair = read_pair(files)?;
                if *seen.lock() == pair {
                    return Ok(false);
                }
                // Remembered only once it was usable: certificate and key may change one after the other.
                let next = certified(files, &pair.0, &pair.1)?;
                *seen.lock() = pair;
                next
            }
        };
        self.resolver.current.store(Some(Arc::new(next)));
        Ok(true)
    }
}

// === impl Resolver ===

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

// === impl Authority ===

impl Authority {
    /// Takes the CA out of the directory, or makes one there.
    fn open(directory: &Path, names: Vec<String>) -> Result<Self, TlsError> {
        let (certificate_file, key_file) = (directory.join(CA_CERTIFICATE), directory.join(CA_KEY));
        if !key_file.exists() || !certificate_file.exists() {
            Self::make(directory, &certificate_file, &key_file)?;
        }
        let failed = |error| TlsError::File { path: key_file.clone(), error };
        // Of its group's members some may be meant to: Kubernetes gives the files of volumes to groups.
        if fs::metadata(&key_file).map_err(failed)?.permissions().mode() & 0o007 != 0 {
            return Err(TlsError::Exposed(key_file));
        }
        let key = fs::read_to_string(&key_file).map_err(failed)?;
        let certificate = CertificateDer::from_pem_file(&certificate_file)
            .map_err(|error| TlsError::Pem { path: certificate_file.clone(), error })?;
        let public = KeyPair::from_pem(&key)?.public_key_raw().to_vec();
        if memchr::memmem::find(&certificate, &public).is_none() {
            return Err(TlsError::Mismatch(certificate_file));
        }
        Ok(Self { certificate_file, certificate, key, names })
    }

    fn make(directory: &Path, certificate_file: &Path, key_file: &Path) -> Result<(), TlsError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| TlsError::File { path, error }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let key = KeyPair::generate()?;
        let mut params = Self::params();
        set_validity(&mut params, jiff::Span::new().years(CA_YEARS));
        let certificate = params.self_signed(&key)?;
        write_atomically(key_file, key.serialize_pem().as_bytes(), 0o600).map_err(failed(key_file))?;
        write_atomically(certificate_file, certificate.pem().as_bytes(), 0o644).map_err(failed(certificate_file))
    }

    /// What stands in every CA of ours. The name and the key identifier are all that issuing needs, so the certificate
    /// on disk is never parsed.
    fn params() -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "informerd local CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    fn issue(&self) -> Result<CertifiedKey, TlsError> {
        let mut params = CertificateParams::new(self.names.clone())?;
        set_validity(&mut params, jiff::Span::new().days(LEAF_DAYS));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "informerd");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &Issuer::new(Self::params(), KeyPair::from_pem(&self.key)?))?;
        let chain = vec![certificate.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(CertifiedKey::from_der(chain, key, &provider())?)
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
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Option<AnyClient>,
    only_tls13: bool,
) -> Result<rustls::ServerConfig, TlsError> {
    let versions = if only_tls13 { &[&rustls::version::TLS13][..] } else { rustls::DEFAULT_VERSIONS };
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(provider())).with_protocol_versions(versions)?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(Arc::new(clients)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    // Upgrades come without ALPN; those connections are HTTP/1.1.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Some clients open a connection for each request: a resumed handshake spares both sides the key exchange.
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(config)
}

fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

fn read_pair(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let read = |path: &Path| fs::read(path).map_err(|error| TlsError::File { path: path.to_owned(), error });
    Ok((read(&files.certificate)?, read(&files.key)?))
}

fn certified(files: &CertificateFiles, certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Pem { path: files.certificate.clone(), error })?;
    if chain.is_empty() {
        return Err(TlsError::Empty(files.certificate.clone()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Pem { path: files.key.clone(), error })?;
    // Checks that the two belong together.
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}

/// Readers see the old file or the new one, never a part.
fn write_atomically(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// From yesterday, for clocks that go after ours, until `lifetime` from now.
fn set_validity(params: &mut CertificateParams, lifetime: jiff::Span) {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let part = |n: i8| u8::try_from(n).unwrap_or(1);
    let day = |date: jiff::civil::Date| rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day()));
    params.not_before = day(today.saturating_sub(jiff::Span::new().days(1)));
    params.not_after = day(today.saturating_add(lifetime));
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
