//! Bodies as they are saved: packed ones as they are, with the dictionaries that they need.

use std::sync::Arc;

use bytes::Bytes;

use super::amended::Amended;
use super::body::{Body, Form};
use super::damaged::Damaged;
use super::dictionary::{Dictionary, Packed};
use super::packer::Packer;
use super::reading::Reading;
use super::{PackingForm, delta, numbers};

/// The dictionaries that were saved so far. Packed bytes name theirs by its position.
#[derive(Debug, Default)]
pub struct Dictionaries {
    known: Vec<Arc<Dictionary>>,
    new: bool,
}

/// The dictionaries that were loaded so far.
#[derive(Debug)]
pub struct Library {
    packer: Packer,
    known: Vec<Arc<Dictionary>>,
}

/// The forms of saved bytes.
const PLAIN: u8 = 0;
const PACKED: u8 = 1;
/// The difference from a version of the object that was saved before.
const DELTA: u8 = 2;
/// Packed bytes of an earlier version, and the difference from them.
const AMENDED: u8 = 3;

/// A cache trains a dictionary every ten minutes at most, and objects that need an old one become fewer.
const MOST_DICTIONARIES: usize = 64;

// === impl Dictionaries ===

impl Dictionaries {
    /// Appends the bytes in their present form. After this, [`Self::take_new`] tells whether they need a dictionary that
    /// must be saved before them.
    ///
    /// # Errors
    /// The bytes are damaged. What was appended is of no use.
    pub fn put(&mut self, body: &Body, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let put = body.with_form(|form| match form {
            Form::Plain { .. } | Form::Patch(_) => false,
            Form::Packed(packed) => self.put_packed(PACKED, packed, out),
            Form::Amended(amended) if amended.delta().is_empty() => self.put_packed(PACKED, amended.base(), out),
            Form::Amended(amended) => {
                let put = self.put_packed(AMENDED, amended.base(), out);
                if put {
                    numbers::put_bytes(out, amended.delta());
                }
                put
            }
        });
        if !put {
            out.push(PLAIN);
            numbers::put_bytes(out, &body.bytes(Reading::Upkeep)?);
        }
        Ok(())
    }

    /// Appends packed bytes. Returns false, and appends nothing, if there are too many dictionaries.
    fn put_packed(&mut self, form: u8, packed: &Packed, out: &mut Vec<u8>) -> bool {
        let dictionary = packed.dictionary();
        let known = self.known.iter().position(|known| Arc::ptr_eq(known, dictionary));
        if known.is_none() && self.known.len() >= MOST_DICTIONARIES {
            return false;
        }
        let position = known.unwrap_or_else(|| {
            self.known.push(Arc::clone(dictionary));
            self.new = true;
            self.known.len() - 1
        });
        out.push(form);
        numbers::put(out, position);
        numbers::put(out, packed.len());
        numbers::put_bytes(out, packed.bytes());
        true
    }

    /// Appends the bytes as the difference from an earlier version, if that is small, or else as they are.
    ///
    /// # Errors
    /// The bytes of one of them are damaged. Nothing was appended.
    pub fn put_after(&mut self, body: &Body, before: Option<&Body>, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let plain = body.bytes(Reading::Upkeep)?;
        let before = before.map(|before| before.bytes(Reading::Upkeep)).transpose()?;
        if let Some(delta) = before.and_then(|before| delta::diff(&before, &plain, plain.len() / 2)) {
            out.push(DELTA);
            numbers::put(out, plain.len());
            numbers::put_bytes(out, &delta);
        } else {
            out.push(PLAIN);
            numbers::put_bytes(out, &plain);
        }
        Ok(())
    }

    /// The dictionary that was needed for the first time since the last call.
    pub fn take_new(&mut self) -> Option<&[u8]> {
        if !std::mem::take(&mut self.new) {
            return None;
        }
        self.known.last().map(|dictionary| dictionary.content())
    }
}

// === impl Library ===

impl Library {
    pub fn new(packer: Packer) -> Self {
        Self { packer, known: Vec::new() }
    }

    /// Adds the next dictionary. `None` if it is none.
    pub fn add(&mut self, content: &[u8]) -> Option<()> {
        if self.known.len() >= MOST_DICTIONARIES {
            return None;
        }
        self.known.push(self.packer.load(content)?);
        Some(())
    }

    /// Takes a body of `len` plain bytes from the front. `before` is the version of the object that was saved before.
    /// `None` if it is malformed, or if packed bytes do not come back.
    pub fn take(&self, input: &mut &[u8], len: usize, before: Option<&Body>) -> Option<Body> {
        let (&form, rest) = input.split_first()?;
        *input = rest;
        match form {
            PLAIN => {
                let bytes = numbers::take_bytes(input)?;
                (bytes.len() == len).then(|| Body::new(Bytes::copy_from_slice(bytes)))
            }
            PACKED => {
                let packed = self.take_packed(input)?;
                let is_plain = self.packer.form() == PackingForm::Plain;
                let bytes = packed.try_unpacked(|plain| is_plain.then(|| Bytes::copy_from_slice(plain)))?;
                (packed.len() == len).then(|| bytes.map_or_else(|| Body::of(Form::Packed(packed)), Body::new))
            }
            AMENDED => {
                let packed = self.take_packed(input)?;
                let delta = numbers::take_bytes(input)?;
                if self.packer.form() == PackingForm::Plain {
                    let bytes = packed.try_unpacked(|base| delta::apply(base, delta, len))??;
                    Some(Body::new(bytes.into()))
                } else {
                    Amended::load(packed, delta, len).map(Form::Amended).map(Body::of)
                }
            }
            DELTA => {
                let said = numbers::take(input)?;
                let delta = numbers::take_bytes(input)?;
                let before = before.filter(|_| said == len)?.bytes(Reading::Upkeep).ok()?;
                delta::apply(&before, delta, len).map(|bytes| Body::new(bytes.into()))
            }
            _ => None,
        }
    }

    fn take_packed(&self, input: &mut &[u8]) -> Option<Packed> {
        let dictionary = self.known.get(numbers::take(input)?)?;
        let len = numbers::take(input)?;
        Packed::load(numbers::take_bytes(input)?, len, dictionary)
    }
}
