//! A CA of our own, which signs the certificates of `https` listeners. It lies in the state directory, so that it outlives the
//! process. Where that cannot be written, it is kept in memory until it can: whoever trusts it already is served.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::tls::{TlsError, provider};

const CA_CERTIFICATE: &str = "ca.crt";
pub(super) const CA_KEY: &str = "ca.key";
const CA_YEARS: i16 = 10;
/// How many days a serving certificate is valid. It is replaced each day, by the clock that clients judge it by: that goes
/// on while a machine sleeps, and may be set.
const LEAF_DAYS: i64 = 90;
const LEAF_RENEWAL: Duration = Duration::from_secs(86_400);
/// A certificate is valid from the day before, so a clock that is set back by more makes it one of the future.
const SET_BACK: Duration = Duration::from_secs(3600);

/// Its key never leaves the state directory and this process.
#[derive(Debug)]
pub(super) struct Authority {
    directory: PathBuf,
    pub(super) certificate_file: PathBuf,
    certificate: CertificateDer<'static>,
    key: String,
    names: Vec<String>,
    /// The certificate in PEM, as long as it could not be written, and why.
    unsaved: Mutex<Option<(String, String)>>,
    /// When the last serving certificate was issued.
    issued: Mutex<SystemTime>,
}

// === impl Authority ===

impl Authority {
    /// Takes the CA out of the directory, or makes one there.
    pub(super) fn open(directory: &Path, names: Vec<String>) -> Result<Self, TlsError> {
        let (certificate_file, key_file) = (directory.join(CA_CERTIFICATE), directory.join(CA_KEY));
        let failed = |error| TlsError::File { path: key_file.clone(), error };
        if !is_there(&key_file).map_err(failed)? || !is_there(&certificate_file).map_err(failed)? {
            return Self::make(directory, names);
        }
        // Members of its group may be meant to read it: Kubernetes gives the files of volumes to groups.
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
        Ok(Self::new(directory, certificate, key, names, None))
    }

    fn new(
        directory: &Path,
        certificate: CertificateDer<'static>,
        key: String,
        names: Vec<String>,
        unsaved: Option<(String, String)>,
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            certificate_file: directory.join(CA_CERTIFICATE),
            certificate,
            key,
            names,
            unsaved: Mutex::new(unsaved),
            issued: Mutex::new(SystemTime::now()),
        }
    }

    fn make(directory: &Path, names: Vec<String>) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = Self::params();
        set_validity(&mut params, jiff::Span::new().years(CA_YEARS));
        let certificate = params.self_signed(&key)?;
        let unsaved = Some((certificate.pem(), String::new()));
        let made = Self::new(directory, certificate.der().clone(), key.serialize_pem(), names, unsaved);
        made.save_again();
        Ok(made)
    }

    /// Writes what is still to be written, if it can be; says once why it cannot.
    pub(super) fn save_again(&self) {
        let mut unsaved = self.unsaved.lock();
        let Some((pem, said)) = &mut *unsaved else { return };
        let (directory, first) = (self.directory.display(), said.is_empty());
        match self.save(pem) {
            Ok(()) => {
                if !first {
                    tracing::info!(%directory, "the CA of the https listeners is written");
                }
                *unsaved = None;
            }
            Err(error) => {
                let error = error.to_string();
                if *said != error {
                    let what = "the CA of the https listeners cannot be written to stateDir: until it can, it is kept in \
                                memory, and no ca.crt tells clients to trust it";
                    tracing::error!(%directory, error, "{what}");
                    *said = error;
                }
            }
        }
    }

    /// Both files are complete before either gets its name.
    fn save(&self, pem: &str) -> io::Result<()> {
        let key_file = self.directory.join(CA_KEY);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        if key_file.exists() && self.certificate_file.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is another by now, for the next start"));
        }
        let key = Temporary::write(&key_file, self.key.as_bytes(), 0o600)?;
        let certificate = Temporary::write(&self.certificate_file, pem.as_bytes(), 0o644)?;
        key.rename(&key_file)?;
        certificate.rename(&self.certificate_file)
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

    /// Whether the serving certificate is to be replaced.
    pub(super) fn is_due(&self) -> bool {
        is_due(*self.issued.lock(), SystemTime::now())
    }

    pub(super) fn issue(&self) -> Result<CertifiedKey, TlsError> {
        let mut params = CertificateParams::new(self.names.clone())?;
        *self.issued.lock() = SystemTime::now();
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

fn is_due(issued: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(issued) {
        Ok(age) => age >= LEAF_RENEWAL,
        Err(set_back) => set_back.duration() >= SET_BACK,
    }
}

/// Whether a file is there. If that cannot be told, another CA must not take the place of the one that clients trust.
fn is_there(path: &Path) -> io::Result<bool> {
    match path.try_exists() {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        result => result,
    }
}

/// From yesterday, for clocks that are behind ours, until `lifetime` from now.
fn set_validity(params: &mut CertificateParams, lifetime: jiff::Span) {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let part = |n: i8| u8::try_from(n).unwrap_or(1);
    let day = |date: jiff::civil::Date| rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day()));
    params.not_before = day(today.saturating_sub(jiff::Span::new().days(1)));
    params.not_after = day(today.saturating_add(lifetime));
}

/// A file that is complete and has no name yet. It goes away unless it gets one.
struct Temporary(PathBuf);

impl Temporary {
    fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = Self(name.into());
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary.0)?;
        file.write_all(contents)?;
        file.sync_all()?;
        Ok(temporary)
    }

    fn rename(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It has its name, or was never made.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_by_the_clock_that_clients_judge_it_by() {
        let issued = SystemTime::now();
        let hours = |n: u64| Duration::from_secs(n * 3600);
        for (now, due) in [
            (issued, false),
            (issued + hours(23), false),
            (issued + hours(24), true),
            (issued + hours(24 * 365), true),
            (issued - Duration::from_secs(5), false),
            (issued - hours(48), true),
        ] {
            assert_eq!(is_due(issued, now), due, "{now:?}");
        }
    }

    #[test]
    fn a_key_that_may_be_there_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join(CA_KEY);
        std::os::unix::fs::symlink(&key, &key).unwrap();
        let result = Authority::open(directory.path(), vec!["localhost".into()]);
        assert!(matches!(result, Err(TlsError::File { path, .. }) if path == key));
    }

    /// Not even the superuser can make a directory below a file.
    #[test]
    fn a_directory_that_cannot_be_written_is_written_once_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let obstacle = directory.path().join("state");
        fs::write(&obstacle, "in the way").unwrap();
        let authority = Authority::open(&obstacle.join("informerd"), vec!["localhost".into()]).unwrap();
        assert!(authority.unsaved.lock().is_some() && !authority.certificate_file.exists());
        authority.issue().unwrap();
        fs::remove_file(&obstacle).unwrap();
        authority.save_again();
        assert!(authority.unsaved.lock().is_none());
        // What was issued meanwhile is of the CA that is there now.
        let saved = Authority::open(&obstacle.join("informerd"), vec!["localhost".into()]).unwrap();
        assert_eq!((saved.certificate, saved.key), (authority.certificate.clone(), authority.key.clone()));
        let left = fs::read_dir(obstacle.join("informerd")).unwrap().count();
        assert_eq!(left, 2, "no temporary files");
    }
}
