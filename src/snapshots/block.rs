//! Blocks: their length, their tag, and their content, compressed.

use std::io::{self, Read, Write};

use zstd::bulk::{Decompressor, compress};

use super::header::invalid;
use super::seal::{Seal, TAG};

/// Writes the blocks of one file.
#[derive(Debug)]
pub(super) struct BlockWriter {
    seal: Seal,
    number: u64,
}

/// Reads the blocks of one file.
pub(super) struct BlockReader {
    seal: Seal,
    number: u64,
    decompressor: Decompressor<'static>,
}

/// Content is gathered up to this length before it becomes a block.
pub(super) const TARGET: usize = 256 << 10;

/// No content is longer than this. A single object may exceed [`TARGET`].
const LARGEST: usize = 80 << 20;

/// The fastest level: most content is packed already.
const LEVEL: i32 = 1;

// === impl BlockWriter ===

impl BlockWriter {
    pub(super) fn new(seal: Seal) -> Self {
        Self { seal, number: 0 }
    }

    /// Writes the next block. Returns the number of bytes written.
    ///
    /// # Errors
    /// The content is too long, or cannot be written. No block may follow after that.
    pub(super) fn write(&mut self, out: &mut dyn Write, content: &[u8]) -> io::Result<u64> {
        if content.len() > LARGEST {
            return Err(invalid("a block is too large"));
        }
        let len = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut sealed = len.to_le_bytes().to_vec();
        // The working memory of the library is not kept between two blocks: most informers seldom write one.
        sealed.extend(compress(content, LEVEL)?);
        let tag = self.seal.seal(self.number, &mut sealed).ok_or_else(|| invalid("a block cannot be sealed"))?;
        self.number += 1;
        let len = u32::try_from(sealed.len()).map_err(io::Error::other)?;
        // In one write, because a block that is torn ends the file.
        let block = [&len.to_le_bytes()[..], &tag, &sealed].concat();
        out.write_all(&block)?;
        Ok(block.len() as u64)
    }
}

// === impl BlockReader ===

impl BlockReader {
    pub(super) fn new(seal: Seal) -> io::Result<Self> {
        Ok(Self { seal, number: 0, decompressor: Decompressor::new()? })
    }

    /// Reads the next block. `None` at the end of the file.
    ///
    /// # Errors
    /// The block is torn or damaged, or cannot be read.
    pub(super) fn read(&mut self, input: &mut dyn Read) -> io::Result<Option<Vec<u8>>> {
        let mut head = [0; 4 + TAG];
        match input.read(&mut head)? {
            0 => return Ok(None),
            read => input.read_exact(&mut head[read..])?,
        }
        let (len, tag) = head.split_at(4);
        let len = len.try_into().map_or(usize::MAX, |len| u32::from_le_bytes(len) as usize);
        let tag = tag.try_into().map_err(io::Error::other)?;
        if !(4..=LARGEST).contains(&len) {
            return Err(invalid("the length of a block is impossible"));
        }
        // Grows with what is there: a damaged length reserves no memory.
        let mut sealed = Vec::new();
        if input.take(len as u64).read_to_end(&mut sealed)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.seal.open(self.number, tag, &mut sealed).ok_or_else(|| invalid("a block is damaged"))?;
        self.number += 1;
        let (len, compressed) = sealed.split_at(4);
        let len = len.try_into().map_or(usize::MAX, |len| u32::from_le_bytes(len) as usize);
        if len > LARGEST {
            return Err(invalid("a block is too large"));
        }
        let content = self.decompressor.decompress(compressed, len)?;
        if content.len() != len {
            return Err(invalid("a block has another length than it says"));
        }
        Ok(Some(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_a_bound() {
        let seal = || Seal::new(None, b"").unwrap();
        let (mut writer, mut out, content) = (BlockWriter::new(seal()), Vec::new(), vec![0; LARGEST + 1]);
        writer.write(&mut out, &content[..LARGEST]).unwrap();
        assert!(writer.write(&mut Vec::new(), &content).is_err());
        let read = |file: &[u8]| BlockReader::new(seal()).unwrap().read(&mut &file[..]);
        assert_eq!(read(&out).unwrap().unwrap().len(), LARGEST);
        // One that says more of itself, before and behind its seal.
        let more = u32::try_from(LARGEST + 1).unwrap().to_le_bytes();
        assert!(read(&[&more, &out[4..]].concat()).unwrap_err().to_string().contains("length"));
        let mut sealed = [&more, &compress(b"", LEVEL).unwrap()[..]].concat();
        let tag = seal().seal(0, &mut sealed).unwrap();
        let len = u32::try_from(sealed.len()).unwrap().to_le_bytes();
        assert!(read(&[&len[..], &tag, &sealed].concat()).unwrap_err().to_string().contains("too large"));
    }
}
