//! The files of one directory. Tests put another storage in its place, which fails when they want it to.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

/// Where snapshots are kept.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Creates the directory if it is not there, and makes this process the only one that writes to it.
    ///
    /// # Errors
    /// Another process writes to it, or it cannot be written to.
    fn lock(&self) -> io::Result<()>;

    /// Creates a file that only this user may read, in place of what has its name. A link is not followed.
    ///
    /// # Errors
    /// It cannot be created.
    fn create(&self, name: &str) -> io::Result<Box<dyn Output>>;

    /// Opens a file.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Gives a file another name, in place of the file that had it. Survives a crash of the machine.
    ///
    /// # Errors
    /// It cannot be done. The file has one of the two names.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// All files.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn entries(&self) -> io::Result<Vec<Entry>>;
}

/// A file that is being written.
pub trait Output: Write + fmt::Debug + Send {
    /// Waits until the content survives a crash of the machine.
    ///
    /// # Errors
    /// It may not survive.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub len: u64,
    pub modified: SystemTime,
}

/// A directory of the file system.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    lock: parking_lot::Mutex<Option<File>>,
}

/// The file whose lock is held by the process that writes.
const LOCK: &str = "lock";

// === impl Disk ===

impl Disk {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, lock: parking_lot::Mutex::default() }
    }

    /// How files are opened: for this user alone.
    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        options
    }
}

impl Storage for Disk {
    fn lock(&self) -> io::Result<()> {
        let mut lock = self.lock.lock();
        if lock.is_none() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            let file = Self::options().create(true).truncate(false).open(self.dir.join(LOCK))?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            *lock = Some(file);
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        let path = self.dir.join(name);
        // Opening fails if it is still there.
        let _ = fs::remove_file(&path);
        Ok(Box::new(Self::options().create_new(true).open(path)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let path = self.dir.join(name);
        // To open a pipe would wait for a writer.
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Box::new(File::open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))?;
        File::open(&self.dir)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                entries.push(Entry { name, len: metadata.len(), modified });
            }
        }
        Ok(entries)
    }
}

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_takes_the_place_of_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        let (path, other) = (root.path().join("one"), root.path().join("other"));
        fs::write(&other, "of somebody else").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
        let disk = Disk::new(root.path().to_owned());
        for plant in [|from, to| std::os::unix::fs::symlink(from, to), |from, to| fs::copy(from, to).map(drop)] {
            plant(&other, &path).unwrap();
            disk.create("one").unwrap().write_all(b"ours").unwrap();
            let there = fs::symlink_metadata(&path).unwrap();
            assert!(there.is_file() && there.permissions().mode() & 0o777 == 0o600);
            assert_eq!(fs::read(&path).unwrap(), b"ours");
            assert_eq!(fs::read(&other).unwrap(), b"of somebody else");
            fs::remove_file(&path).unwrap();
        }
    }
}
