//! Reads a file, and decides whether it can be used.

use std::io::{self, BufReader, Read};
use std::time::Duration;

use super::block::BlockReader;
use super::header::{Header, Identity};
use super::journal::now;
use super::record::{RecordError, replay};
use super::seal::{Key, Seal};
use super::shared::Snapshot;
use crate::cache::Restoration;
use crate::meta::Encoding;

#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("it is of another cluster, version or definition")]
    Other,
    #[error("its encryption is not that of the configuration")]
    Encryption,
    #[error("it ends before its state is complete")]
    Incomplete,
    #[error("it is {0} s old")]
    Old(i64),
}

/// A clock may be a little behind the one that wrote the file.
const SKEW: i64 = 60;

/// Reads a file into `restoration`, and logs why if it cannot be used.
pub(super) fn load(snapshot: &Snapshot, mut restoration: Restoration) -> Option<Restoration> {
    let (inner, identity, name) = (&snapshot.inner, &snapshot.identity, &*snapshot.name);
    let input = match inner.directory.open(name) {
        Ok(input) => input,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            inner.metrics.unusable.inc();
            tracing::warn!(name, %error, "snapshot not read, the state is listed");
            return None;
        }
    };
    match try_load(input, inner.config.key.as_ref(), Some(identity), inner.config.max_age, &mut restoration) {
        Ok(damage) => {
            let (rv, objects, events) = (restoration.rv(), restoration.objects(), restoration.events());
            tracing::info!(name, %rv, objects, events, "snapshot read");
            if let Some(damage) = damage {
                tracing::info!(name, %damage, %rv, "the end of a snapshot is damaged, it is used up to there");
            }
            inner.metrics.loaded.inc();
            Some(restoration)
        }
        Err(why) => {
            inner.metrics.unusable.inc();
            tracing::info!(name, %why, "snapshot not used, the state is listed");
            None
        }
    }
}

/// Reads a file of any cluster and age, without a directory: for tests of this format. Returns whether it can be used.
pub fn read(input: impl Read, key: Option<&Key>, restoration: &mut Restoration) -> bool {
    try_load(input, key, None, Duration::MAX, restoration).is_ok()
}

/// Reads the records of one block, for tests of this format. Returns whether they follow each other.
pub fn read_records(block: &[u8], restoration: &mut Restoration) -> bool {
    replay(block, restoration).is_ok()
}

/// Reads a file up to its end, or up to its first damaged block. Returns what has damaged it, if anything has.
fn try_load(
    input: impl Read,
    key: Option<&Key>,
    identity: Option<&Identity>,
    max_age: Duration,
    restoration: &mut Restoration,
) -> Result<Option<io::Error>, LoadError> {
    let mut input = BufReader::with_capacity(256 << 10, input);
    let (header, bytes) = Header::read(&mut input)?;
    if identity.is_some_and(|identity| *identity != header.identity) {
        return Err(LoadError::Other);
    }
    if header.encrypted != key.is_some() {
        return Err(LoadError::Encryption);
    }
    let encoding =
        if header.identity.encoding == Encoding::Protobuf.as_str() { Encoding::Protobuf } else { Encoding::Json };
    restoration.set_form(header.form(encoding));
    let mut blocks = BlockReader::new(Seal::new(key, &bytes)?)?;
    // When it was last written to, in seconds since 1970.
    let mut time = header.written;
    let damage = loop {
        match blocks.read(&mut input) {
            // A block that is sealed is as it was written. If its records contradict each other, the file is not trusted.
            Ok(Some(block)) => time = replay(&block, restoration)?.unwrap_or(time),
            Ok(None) if restoration.is_complete() => break None,
            Ok(None) => return Err(LoadError::Incomplete),
            Err(error) if restoration.is_complete() => break Some(error),
            Err(error) => return Err(error.into()),
        }
    };
    restoration.finish();
    let age = now().saturating_sub(time);
    if age > i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX) || age < -SKEW {
        return Err(LoadError::Old(age));
    }
    Ok(damage)
}
