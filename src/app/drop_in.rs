//! Writes the files of a ServiceAccount for the other containers of the pod. Programs that use only the in-cluster
//! configuration read these files. `ca.crt` contains the CA of our `https` listeners in addition to the cluster's. A
//! projected volume cannot contain files that a process of the pod creates, so this is a directory that the containers
//! share.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::lifecycle::readiness::Latch;
use crate::snapshots::Disk;

/// The directory with the files of the kubelet for this pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The kubelet replaces a token when a fifth of its lifetime is left, which is at least two minutes.
const EVERY: Duration = Duration::from_secs(10);

/// Maintains a directory like the kubelet's own.
#[derive(Clone, Debug)]
pub(super) struct DropIn {
    directory: PathBuf,
    /// The CA that clients of our listeners must trust, in PEM.
    ca: PathBuf,
    account: PathBuf,
}

// === impl DropIn ===

impl DropIn {
    pub(super) fn new(directory: PathBuf, ca: PathBuf) -> Self {
        Self { directory, ca, account: PathBuf::from(ACCOUNT) }
    }

    /// Runs forever. The latch is released with the first complete directory: other containers must not start before
    /// that.
    pub(super) async fn run(self, latch: Latch) {
        let mut latch = Some(latch);
        loop {
            let this = self.clone();
            let passed = tokio::task::spawn_blocking(move || this.pass()).await;
            match passed.map_err(io::Error::other).flatten() {
                Ok(()) => {
                    if let Some(latch) = latch.take() {
                        latch.release();
                    }
                }
                Err(error) => {
                    let directory = self.directory.display();
                    tracing::warn!(%directory, %error, "cannot update the files for programs of this pod, trying again");
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Updates every file.
    fn pass(&self) -> io::Result<()> {
        let read = |path: PathBuf| {
            fs::read(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        let mut trusted = read(self.account.join("ca.crt"))?;
        trusted.push(b'\n');
        trusted.extend(read(self.ca.clone())?);
        for (name, contents) in [
            ("ca.crt", trusted),
            ("namespace", read(self.account.join("namespace"))?),
            ("token", read(self.account.join("token"))?),
        ] {
            let path = self.directory.join(name);
            if !has(&path, &contents) {
                replace(&path, &contents)?;
            }
        }
        Ok(())
    }
}

/// Whether a file has these contents. What another container has put there may be a link or a pipe, or have any length.
fn has(path: &Path, contents: &[u8]) -> bool {
    let Ok(file) = Disk::options().read(true).open(path) else { return false };
    let (len, mut found) = (contents.len() as u64, Vec::new());
    file.metadata().is_ok_and(|there| there.is_file() && there.len() == len)
        && file.take(len + 1).read_to_end(&mut found).is_ok()
        && found == contents
}

/// Replaces a file. Its readers run as other users. They see either the old or the new file, and never a part of it.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let written = || {
        // The other containers of the pod may write to the directory. So a link that is there is not followed.
        let _ = fs::remove_file(&temporary);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
        file.write_all(contents)?;
        fs::rename(&temporary, path)
    };
    written().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_files_follow_their_sources() {
        let root = tempfile::tempdir().unwrap();
        let (account, directory) = (root.path().join("account"), root.path().join("drop-in"));
        let ca = root.path().join("ours.crt");
        let drop_in = DropIn { directory: directory.clone(), ca: ca.clone(), account: account.clone() };
        fs::create_dir(&account).unwrap();
        fs::create_dir(&directory).unwrap();
        for (name, text) in [("token", "first"), ("namespace", "a"), ("ca.crt", "cluster")] {
            fs::write(account.join(name), text).unwrap();
        }
        assert!(drop_in.pass().unwrap_err().to_string().contains("ours.crt"), "nothing is trusted that is not there");
        fs::write(&ca, "ours\n").unwrap();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        drop_in.pass().unwrap();
        assert_eq!(
            (read("ca.crt"), read("namespace"), read("token")),
            ("cluster\nours\n".into(), "a".into(), "first".into())
        );
        let mode = fs::metadata(directory.join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "programs of other users read it, as they read the kubelet's");

        let opened = fs::File::open(directory.join("token")).unwrap();
        fs::write(account.join("token"), "second").unwrap();
        drop_in.pass().unwrap();
        assert_eq!(read("token"), "second");
        assert_eq!(
            io::read_to_string(opened).unwrap(),
            "first",
            "whoever reads meanwhile reads the old one to its end"
        );
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing else stays");
    }

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (token, other) = (root.path().join("token"), root.path().join("other"));
        fs::write(&other, "of somebody else").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        for planted in ["token.new", "token"] {
            std::os::unix::fs::symlink(&other, root.path().join(planted)).unwrap();
            replace(&token, b"secret").unwrap();
            let there = fs::symlink_metadata(&token).unwrap();
            assert!(there.is_file() && there.permissions().mode() & 0o777 == 0o644, "{planted}");
            assert_eq!(fs::read(&token).unwrap(), b"secret");
            assert_eq!(fs::read(&other).unwrap(), b"of somebody else", "{planted}");
            fs::remove_file(&token).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_of_the_same_length_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let (token, other) = (root.path().join("token"), root.path().join("other"));
        fs::write(&other, "secret").unwrap();
        let plants: [fn(&Path, &Path); 4] = [
            |token, other| std::os::unix::fs::symlink(other, token).unwrap(),
            |token, _| rustix::fs::mkfifoat(rustix::fs::CWD, token, 0o600.into()).unwrap(),
            |token, _| fs::File::create(token).unwrap().set_len(64 << 30).unwrap(),
            |token, _| fs::write(token, "Secret").unwrap(),
        ];
        for plant in plants {
            plant(&token, &other);
            assert!(!has(&token, b"secret"));
            replace(&token, b"secret").unwrap();
            assert!(has(&token, b"secret"));
            fs::remove_file(&token).unwrap();
        }
    }
}
