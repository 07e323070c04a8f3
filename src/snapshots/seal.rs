//! What binds a block to its place: a digest, or with a key, authenticated encryption. Both cover the header of the file
//! and the number of the block, so a block that is damaged, moved or from another file is noticed.

use std::fmt;
use std::io;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

/// A key for AES-256-GCM.
#[derive(Clone)]
pub struct Key {
    bytes: Arc<[u8; KEY]>,
}

/// Seals and opens the blocks of one file.
pub(super) struct Seal {
    /// The digest of the header, which has a random number of its own for each file.
    file: [u8; 32],
    /// `None` if the file is not encrypted. What a file says of itself and what is done with its blocks cannot differ: without a
    /// key of its own, an encrypted file has no seal.
    cipher: Option<LessSafeKey>,
}

/// The length of a key.
const KEY: usize = 32;

/// The length of a tag.
pub(super) const TAG: usize = 16;

/// Separates these keys from any other use of the key file.
const INFO: &[&[u8]] = &[b"informerd snapshot"];

// === impl Key ===

impl Key {
    /// Reads the content of a key file: 64 hexadecimal digits.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(content: &str) -> Result<Self, &'static str> {
        let wrong = "no key: want 64 hexadecimal digits";
        let text = content.trim();
        if text.len() != 2 * KEY || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        let mut bytes = [0; KEY];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| wrong)?;
        }
        Ok(Self { bytes: Arc::new(bytes) })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

// === impl Seal ===

impl Seal {
    /// # Errors
    /// The file is to be encrypted, and its key cannot be derived. It must be neither written nor read.
    pub(super) fn new(key: Option<&Key>, header: &[u8]) -> io::Result<Self> {
        let mut file = [0; 32];
        file.copy_from_slice(digest(&SHA256, header).as_ref());
        let Some(key) = key else { return Ok(Self { file, cipher: None }) };
        // Each file has a key of its own, so the numbers of its blocks can be the nonces.
        let secret = Salt::new(HKDF_SHA256, &file).extract(&key.bytes[..]);
        let expanded = secret.expand(INFO, &AES_256_GCM);
        let key = expanded.map_err(|_| io::Error::other("no key can be derived for the file"))?;
        Ok(Self { file, cipher: Some(LessSafeKey::new(UnboundKey::from(key))) })
    }

    /// Encrypts the block in place, if there is a key. Returns its tag. No number may be used twice in one file.
    pub(super) fn seal(&self, number: u64, block: &mut [u8]) -> Option<[u8; TAG]> {
        let Some(cipher) = &self.cipher else { return Some(self.digest(number, block)) };
        let tag = cipher.seal_in_place_separate_tag(nonce(number), Aad::from(self.file), block).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts the block in place, if there is a key. `None` if it is not the block of this number of this file.
    pub(super) fn open(&self, number: u64, tag: &[u8; TAG], block: &mut [u8]) -> Option<()> {
        let Some(cipher) = &self.cipher else { return (self.digest(number, block) == *tag).then_some(()) };
        let mut whole = [&*block, tag].concat();
        let plain = cipher.open_in_place(nonce(number), Aad::from(self.file), &mut whole).ok()?;
        block.copy_from_slice(plain);
        Some(())
    }

    fn digest(&self, number: u64, block: &[u8]) -> [u8; TAG] {
        let mut context = Context::new(&SHA256);
        context.update(&self.file);
        context.update(&number.to_le_bytes());
        context.update(block);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&context.finish().as_ref()[..TAG]);
        tag
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("encrypts", &self.cipher.is_some()).finish_non_exhaustive()
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_opens_only_in_its_place() {
        for key in [None, Some(Key::parse(&"07".repeat(KEY)).unwrap())] {
            let seal = Seal::new(key.as_ref(), b"header").unwrap();
            assert_eq!(seal.cipher.is_some(), key.is_some());
            let mut block = b"content".to_vec();
            let tag = seal.seal(3, &mut block).unwrap();
            assert_eq!(block == b"content", key.is_none());
            assert!(seal.open(4, &tag, &mut block.clone()).is_none());
            assert!(Seal::new(key.as_ref(), b"another").unwrap().open(3, &tag, &mut block.clone()).is_none());
            let other = if key.is_some() { None } else { Some(Key::parse(&"08".repeat(KEY)).unwrap()) };
            assert!(Seal::new(other.as_ref(), b"header").unwrap().open(3, &tag, &mut block.clone()).is_none());
            for bit in 0..block.len() * 8 {
                let mut changed = block.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(seal.open(3, &tag, &mut changed).is_none());
            }
            seal.open(3, &tag, &mut block).unwrap();
            assert_eq!(block, b"content");
        }
    }

    #[test]
    fn a_key_is_written_in_digits() {
        assert!(Key::parse(&"0123456789abcdef".repeat(4)).is_ok());
        assert!(Key::parse(&format!("{}\n", "0123456789ABCDEF".repeat(4))).is_ok());
        for wrong in ["", "00", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert!(Key::parse(wrong).is_err(), "{wrong}");
        }
    }
}
