//! A CA of our own that signs the certificates of `https` listeners. It is stored in the state directory, so that it
//! survives a restart. While the directory cannot be written, the CA is kept in memory, and clients that already trust
//! it are still served.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;

use super::certified_key::{TlsError, certified};
use super::config::CertificateFiles;
use crate::authority::{BACKDATED, Ca, NoCa};

const CA_CERTIFICATE: &str = "ca.crt";
pub(super) const CA_KEY: &str = "ca.key";
/// Only the certificate and the key are stored, so the name has to be a constant.
const NAME: &str = "informerd local CA";
const DAY: Duration = Duration::from_secs(86_400);
const CA_LASTS: Duration = Duration::from_secs(3650 * DAY.as_secs());
/// How long a serving certificate is valid. It is replaced every day. The wall clock decides when, because clients use
/// it to check the certificate. That clock goes on while the machine sleeps, and it can be set.
const LEAF_LASTS: Duration = Duration::from_secs(90 * DAY.as_secs());
const LEAF_RENEWAL: Duration = DAY;

/// The CA. Its key never leaves the state directory and this process.
#[derive(Debug)]
pub(super) struct Authority {
    directory: PathBuf,
    pub(super) certificate_file: PathBuf,
    ca: Ca,
    names: Vec<String>,
    /// `Some` while the CA could not be written yet: the reason, or empty before the first attempt.
    unsaved: Mutex<Option<String>>,
    /// When the last serving certificate was issued.
    issued: Mutex<SystemTime>,
}

// === impl Authority ===

impl Authority {
    /// Loads the CA from the directory, or creates one there.
    pub(super) fn open(directory: &Path, names: Vec<String>) -> Result<Self, TlsError> {
        let (certificate_file, key_file) = (directory.join(CA_CERTIFICATE), directory.join(CA_KEY));
        let failed = |error| TlsError::File { path: key_file.clone(), error };
        if !is_there(&key_file).map_err(failed)? || !is_there(&certificate_file).map_err(failed)? {
            let ca = Ca::make(Timestamp::now(), CA_LASTS, Some(NAME))?;
            let made = Self::new(directory, ca, names, Some(String::new()));
            made.save_again();
            return Ok(made);
        }
        // The group may have read access: Kubernetes gives the files of volumes to groups.
        if fs::metadata(&key_file).map_err(failed)?.permissions().mode() & 0o007 != 0 {
            return Err(TlsError::Exposed(key_file));
        }
        let key = fs::read_to_string(&key_file).map_err(failed)?;
        let certificate = fs::read_to_string(&certificate_file)
            .map_err(|error| TlsError::File { path: certificate_file.clone(), error })?;
        let ca = Ca::kept(certificate, key, NAME).map_err(|error| match error {
            NoCa::Pem(error) => TlsError::Pem { path: certificate_file, error },
            NoCa::Key(error) => TlsError::Issue(error),
            NoCa::Mismatch => TlsError::Mismatch(certificate_file),
        })?;
        Ok(Self::new(directory, ca, names, None))
    }

    fn new(directory: &Path, ca: Ca, names: Vec<String>, unsaved: Option<String>) -> Self {
        Self {
            directory: directory.to_owned(),
            certificate_file: directory.join(CA_CERTIFICATE),
            ca,
            names,
            unsaved: Mutex::new(unsaved),
            issued: Mutex::new(SystemTime::now()),
        }
    }

    /// Writes the CA if that is still to be done and is possible now. A failure is logged once.
    pub(super) fn save_again(&self) {
        let mut unsaved = self.unsaved.lock();
        let Some(said) = &mut *unsaved else { return };
        let (directory, first) = (self.directory.display(), said.is_empty());
        match self.save() {
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

    /// Writes both files completely before either gets its final name.
    fn save(&self) -> io::Result<()> {
        let key_file = self.directory.join(CA_KEY);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        if key_file.exists() && self.certificate_file.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is another by now, for the next start"));
        }
        let key = Temporary::write(&key_file, self.ca.key.as_bytes(), 0o600)?;
        let certificate = Temporary::write(&self.certificate_file, self.ca.certificate.as_bytes(), 0o644)?;
        key.rename(&key_file)?;
        certificate.rename(&self.certificate_file)
    }

    /// Whether the serving certificate has to be replaced.
    pub(super) fn is_due(&self) -> bool {
        is_due(*self.issued.lock(), SystemTime::now())
    }

    pub(super) fn issue(&self) -> Result<CertifiedKey, TlsError> {
        *self.issued.lock() = SystemTime::now();
        let leaf = self.ca.issue(&self.names, Timestamp::now(), LEAF_LASTS)?;
        let files = CertificateFiles { certificate: "the issued certificate".into(), key: "the issued key".into() };
        certified(&files, leaf.chain.as_bytes(), leaf.key.as_bytes())
    }
}

fn is_due(issued: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(issued) {
        Ok(age) => age >= LEAF_RENEWAL,
        // A certificate is backdated by a little. If the clock is set back by more than that, the certificate is not
        // valid yet.
        Err(set_back) => set_back.duration() >= BACKDATED,
    }
}

/// Whether a file exists. If that cannot be determined, this is an error: a new CA must not replace the one that
/// clients trust.
fn is_there(path: &Path) -> io::Result<bool> {
    match path.try_exists() {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        result => result,
    }
}

/// A complete file that does not have its final name yet. It is removed unless it is renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = Self(name.into());
        // A file that is there keeps its mode, and a link leads elsewhere. So neither is opened.
        let _ = fs::remove_file(&temporary.0);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary.0)?;
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
        // Either the file was renamed, or it was never created.
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

    #[test]
    fn a_file_that_is_there_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let (key, other) = (directory.path().join(CA_KEY), directory.path().join("other"));
        let planted = directory.path().join(format!("{CA_KEY}.{}.tmp", std::process::id()));
        fs::write(&other, "of somebody else").unwrap();
        std::os::unix::fs::symlink(&other, &planted).unwrap();
        Temporary::write(&key, b"secret", 0o600).unwrap().rename(&key).unwrap();
        let there = fs::symlink_metadata(&key).unwrap();
        assert!(there.is_file() && there.permissions().mode() & 0o777 == 0o600);
        assert_eq!(fs::read(&other).unwrap(), b"of somebody else");
    }

    /// Not even root can create a directory below a file.
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
        // The saved CA is the one that issued certificates in the meantime.
        let saved = Authority::open(&obstacle.join("informerd"), vec!["localhost".into()]).unwrap();
        assert_eq!(saved.ca.certificate, authority.ca.certificate);
        assert_eq!(saved.ca.key, authority.ca.key);
        let left = fs::read_dir(obstacle.join("informerd")).unwrap().count();
        assert_eq!(left, 2, "no temporary files");
    }
}
