//! What the blocks contain: one record after another.

use bytes::Bytes;

use crate::cache::{Restoration, RestoreError};
use crate::meta::{EventType, Object, ResourceVersion, WatchCacheEvent};
use crate::packing::{Damaged, Dictionaries, numbers};

/// Gathers records.
#[derive(Debug, Default)]
pub(super) struct Records {
    dictionaries: Dictionaries,
    out: Vec<u8>,
    record: Vec<u8>,
}

/// Why records cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record is malformed")]
    Malformed,
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

use RecordError::Malformed;

/// The first byte of each record.
const DICTIONARY: u8 = 1;
const OBJECT: u8 = 2;
const STATE: u8 = 3;
const EVENT: u8 = 4;
const PROGRESS: u8 = 5;
const BOOKMARK: u8 = 6;

// === impl Records ===

impl Records {
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// The content of a block. The next records begin another one.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// An object of the state.
    ///
    /// # Errors
    /// Its bytes are damaged. The state cannot be written.
    pub(super) fn object(&mut self, object: &Object) -> Result<(), Damaged> {
        self.record.clear();
        object.save(&mut self.dictionaries, &mut self.record)?;
        if let Some(content) = self.dictionaries.take_new() {
            self.out.push(DICTIONARY);
            numbers::put_bytes(&mut self.out, content);
        }
        self.out.push(OBJECT);
        self.out.extend_from_slice(&self.record);
        Ok(())
    }

    /// The end of the state.
    pub(super) fn state(&mut self, rv: ResourceVersion, objects: usize) {
        self.out.push(STATE);
        put_rv(&mut self.out, rv);
        numbers::put(&mut self.out, objects);
    }

    /// An event after the state.
    ///
    /// # Errors
    /// Its bytes are damaged. No record may follow.
    pub(super) fn event(&mut self, event: &WatchCacheEvent) -> Result<(), Damaged> {
        let kind = match event.kind {
            EventType::Added => 0,
            EventType::Modified => 1,
            EventType::Deleted => 2,
        };
        self.out.extend([EVENT, kind]);
        event.object.save_after(event.prev.as_deref(), &mut self.dictionaries, &mut self.out)
    }

    /// The cache is complete up to `rv`, at this time in seconds since 1970.
    pub(super) fn progress(&mut self, rv: ResourceVersion, time: i64) {
        self.out.push(PROGRESS);
        put_rv(&mut self.out, rv);
        numbers::put(&mut self.out, usize::try_from(time).unwrap_or(0));
    }

    /// The apiserver's own bookmark object of this type.
    pub(super) fn bookmark(&mut self, template: &[u8]) {
        self.out.push(BOOKMARK);
        numbers::put_bytes(&mut self.out, template);
    }
}

/// Adds all records of a block to `restoration`. Returns the last time that they tell.
pub(super) fn replay(mut block: &[u8], restoration: &mut Restoration) -> Result<Option<i64>, RecordError> {
    let (input, mut time) = (&mut block, None);
    while let Some((&kind, rest)) = input.split_first() {
        *input = rest;
        match kind {
            DICTIONARY => {
                let content = numbers::take_bytes(input).ok_or(Malformed)?;
                restoration.library().add(content).ok_or(Malformed)?;
            }
            OBJECT => {
                let object = restoration.load(input).ok_or(Malformed)?;
                restoration.insert(object)?;
            }
            STATE => {
                let (rv, objects) = (take_rv(input)?, numbers::take(input).ok_or(Malformed)?);
                restoration.begin(rv, objects)?;
            }
            EVENT => {
                let (&kind, rest) = input.split_first().ok_or(Malformed)?;
                *input = rest;
                let kind = match kind {
                    0 => EventType::Added,
                    1 => EventType::Modified,
                    2 => EventType::Deleted,
                    _ => return Err(Malformed),
                };
                let object = restoration.load(input).ok_or(Malformed)?;
                restoration.push(kind, object)?;
            }
            PROGRESS => {
                restoration.progress(take_rv(input)?);
                time = Some(i64::try_from(numbers::take(input).ok_or(Malformed)?).map_err(|_| Malformed)?);
            }
            BOOKMARK => {
                let template = numbers::take_bytes(input).ok_or(Malformed)?;
                restoration.set_bookmark_template(Bytes::copy_from_slice(template));
            }
            _ => return Err(Malformed),
        }
    }
    Ok(time)
}

fn put_rv(out: &mut Vec<u8>, rv: ResourceVersion) {
    numbers::put(out, usize::try_from(rv.get()).unwrap_or(usize::MAX));
}

fn take_rv(input: &mut &[u8]) -> Result<ResourceVersion, RecordError> {
    let rv = numbers::take(input).and_then(|rv| u64::try_from(rv).ok()).ok_or(Malformed)?;
    Ok(ResourceVersion(rv))
}
