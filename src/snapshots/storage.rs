//! The files of one directory. Tests put another storage in its place, which fails when they want it to.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{getegid, geteuid, getgroups};

/// Where snapshots are kept.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Creates the directory if it is not there, and makes this process the only one that writes to it.
    ///
    /// # Errors
    /// Another process writes to it, others may write to it, or it cannot be written to.
    fn lock(&self) -> io::Result<()>;

    /// Creates a file that only this user may read, in place of what has its name. A link is not followed.
    ///
    /// # Errors
    /// It cannot be created.
    fn create(&self, name: &str) -> io::Result<Box<dyn Output>>;

    /// Opens a file of this user. A link is not followed.
    ///
    /// # Errors
    /// It is not there, cannot be read, or may be by somebody else.
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

    /// How files are opened: for this user alone, and without following a link or waiting for the other end of a pipe.
    pub fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
        options
    }

    /// Checks who may write to the directory, because they decide what the caches contain.
    fn check(&self) -> io::Result<()> {
        let metadata = fs::metadata(&self.dir)?;
        if !is_trusted(metadata.uid()) {
            return Err(refused(&self.dir, &format!("it belongs to the user {}", metadata.uid())));
        }
        let remedy = "name a directory below it, which is then created for informerd alone";
        if metadata.mode() & 0o002 != 0 {
            return Err(refused(&self.dir, &format!("everybody may write to it: {remedy}")));
        }
        // Kubernetes gives a volume to a group of the pod (fsGroup).
        if metadata.mode() & 0o020 != 0 && !is_of_our_group(metadata.gid()) {
            return Err(refused(&self.dir, &format!("the group {} may write to it: {remedy}", metadata.gid())));
        }
        Ok(())
    }
}

fn is_of_our_group(group: u32) -> bool {
    let ours = getgroups().unwrap_or_default();
    getegid().as_raw() == group || ours.iter().any(|ours| ours.as_raw() == group)
}

/// Root, and the user that informerd runs as. Files keep their owner when Kubernetes gives a volume to a group.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not used: {why}", path.display()))
}

impl Storage for Disk {
    fn lock(&self) -> io::Result<()> {
        let mut lock = self.lock.lock();
        if lock.is_none() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            self.check()?;
            let path = self.dir.join(LOCK);
            let file = Self::options().write(true).create(true).truncate(false).open(&path)?;
            if !file.metadata()?.is_file() {
                return Err(refused(&path, "it is not a file"));
            }
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            *lock = Some(file);
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        let path = self.dir.join(name);
        // Opening fails if it is still there.
        let _ = fs::remove_file(&path);
        Ok(Box::new(Self::options().write(true).create_new(true).open(path)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let path = self.dir.join(name);
        let file = Self::options().read(true).open(&path)?;
        self.check()?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(refused(&path, "it is not a file"));
        }
        if !is_trusted(metadata.uid()) {
            return Err(refused(&path, &format!("it belongs to the user {}", metadata.uid())));
        }
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::DIRECTORY.bits().cast_signed());
        options.open(&self.dir)?.sync_all()
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
    /// What others may have put into the directory.
    #[test]
    fn what_is_no_file_is_neither_followed_nor_waited_for() {
        for name in [LOCK, "one"] {
            for (what, plant) in [
                ("a link", (|path, other| std::os::unix::fs::symlink(other, path).unwrap()) as fn(&Path, &Path)),
                ("a pipe", |path, _| mkfifo(path)),
                ("a directory", |path, _| fs::create_dir(path).unwrap()),
                ("a socket", |path, _| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
            ] {
                let root = tempfile::tempdir().unwrap();
                let (path, other) = (root.path().join(name), root.path().join("other"));
                plant(&path, &other);
                let disk = Disk::new(root.path().to_owned());
                let opened = if name == LOCK { disk.lock() } else { disk.open(name).map(drop) };
                assert!(opened.is_err(), "{name}: {what}");
                assert!(!other.exists(), "{name}: {what}");
            }
        }
        // A pipe with a reader, and a link to a file that is there.
        let root = tempfile::tempdir().unwrap();
        mkfifo(&root.path().join(LOCK));
        let _reader = Disk::options().read(true).open(root.path().join(LOCK)).unwrap();
        let disk = Disk::new(root.path().to_owned());
        assert!(disk.lock().unwrap_err().to_string().ends_with("lock is not used: it is not a file"));
        fs::write(root.path().join("there"), "of somebody else").unwrap();
        std::os::unix::fs::symlink("there", root.path().join("one")).unwrap();
        assert!(disk.open("one").is_err());
    }

    fn mkfifo(path: &Path) {
        rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        for (mode, used) in [
            (0o700, true),
            (0o755, true),
            (0o2770, true),
            (0o775, true),
            (0o777, false),
            (0o1777, false),
            (0o702, false),
        ] {
            let root = tempfile::tempdir().unwrap();
            fs::write(root.path().join("one"), "ours").unwrap();
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let disk = Disk::new(root.path().to_owned());
            assert_eq!((disk.open("one").is_ok(), disk.lock().is_ok()), (used, used), "{mode:o}");
            // As in an emptyDir.
            let below = Disk::new(root.path().join("snapshots"));
            below.lock().unwrap();
            below.create("one").unwrap();
            below.open("one").unwrap();
        }
    }

    /// Only root can give files away.
    #[test]
    fn what_belongs_to_others_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let disk = Disk::new(root.path().to_owned());
        let path = root.path().join("one");
        fs::write(&path, "not ours").unwrap();
        if std::os::unix::fs::chown(&path, Some(4711), None).is_err() {
            return;
        }
        assert!(disk.open("one").err().unwrap().to_string().ends_with("it belongs to the user 4711"));
        disk.create("one").unwrap().write_all(b"ours").unwrap();
        disk.open("one").unwrap();
        for (user, group, used) in [(4711, 0, false), (0, 4711, false), (0, 0, true)] {
            let root = tempfile::tempdir().unwrap();
            fs::set_permissions(root.path(), fs::Permissions::from_mode(0o770)).unwrap();
            std::os::unix::fs::chown(root.path(), Some(user), Some(group)).unwrap();
            let disk = Disk::new(root.path().to_owned());
            assert_eq!(disk.lock().is_ok(), used, "{user}:{group}");
        }
    }
}
