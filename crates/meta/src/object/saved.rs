//! Objects as they are saved: what is known of one without its bytes, and the bytes in their present form.

use std::sync::Arc;

use super::{Attributes, AttributesBuilder, Layout, Object};
use crate::{ObjectKey, ResourceVersion};
use informerd_packing::{Damaged, Dictionaries, Library, Version, numbers};

/// An object's bytes are fewer than this: the codec limits them.
const MOST_BYTES: usize = 64 << 20;

// === impl Object ===

impl Object {
    /// Appends the object, with its bytes in their present form.
    ///
    /// # Errors
    /// Its bytes are damaged. What was appended is of no use.
    pub fn save(&self, dictionaries: &mut Dictionaries, out: &mut Vec<u8>) -> Result<(), Damaged> {
        self.save_head(out);
        dictionaries.put(&self.body, out)
    }

    /// Appends the object, with its bytes as the difference from the version before it.
    ///
    /// # Errors
    /// The bytes of one of them are damaged. What was appended is of no use.
    pub fn save_after(
        &self,
        before: Option<&Self>,
        dictionaries: &mut Dictionaries,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        self.save_head(out);
        dictionaries.put_after(&self.body, before.map(Version::body), out)
    }

    /// Takes an object from the front. `before` returns the version of it that was saved before. `None` if it is
    /// malformed.
    pub fn load<'a>(
        input: &mut &[u8],
        library: &Library,
        before: impl FnOnce(&ObjectKey) -> Option<&'a Arc<Self>>,
    ) -> Option<Self> {
        let key = ObjectKey::from_flat(str::from_utf8(numbers::take_bytes(input)?).ok()?);
        let rv = ResourceVersion(u64::try_from(numbers::take(input)?).ok()?);
        let attributes = Attributes::load(input)?;
        let layout = Layout::load(input)?;
        let before = before(&key).map(|before| before.body());
        let body = library.take(input, layout.len as usize, before)?;
        let is_named = !key.as_str().is_empty() && !rv.is_zero();
        is_named.then(|| Self { key, rv, attributes: Arc::new(attributes), body, layout, row: None })
    }

    fn save_head(&self, out: &mut Vec<u8>) {
        numbers::put_bytes(out, self.key.as_str().as_bytes());
        numbers::put(out, usize::try_from(self.rv.get()).unwrap_or(usize::MAX));
        self.attributes.save(out);
        self.layout.save(out);
    }
}

// === impl Attributes ===

impl Attributes {
    fn save(&self, out: &mut Vec<u8>) {
        let mut parts: Vec<&str> = vec![self.uid()];
        parts.extend(self.labels().flat_map(|(key, value)| [key, value]));
        let labels = parts.len() / 2;
        parts.extend(self.own().skip(1));
        numbers::put(out, parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        numbers::put(out, labels);
        numbers::put(out, parts.len());
        parts.iter().for_each(|part| numbers::put(out, part.len()));
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        let mut text = str::from_utf8(numbers::take_bytes(input)?).ok()?;
        let (labels, count) = (numbers::take(input)?, numbers::take(input)?);
        // Each of them has at least one byte.
        let fields = count.checked_sub(labels.checked_mul(2)?)?.checked_sub(1)?;
        if count > input.len() {
            return None;
        }
        let mut next = || {
            let (part, rest) = text.split_at_checked(numbers::take(input)?)?;
            text = rest;
            Some(part)
        };
        let mut builder = AttributesBuilder::new(next()?);
        for _ in 0..labels {
            builder.label(next()?, next()?);
        }
        for _ in 0..fields {
            builder.field(next()?);
        }
        text.is_empty().then(|| builder.build())
    }
}

// === impl Layout ===

impl Layout {
    fn save(&self, out: &mut Vec<u8>) {
        let Self { len, before, after, metadata, rv } = self;
        numbers::put(out, *len as usize);
        out.extend([*before, *after]);
        for position in [metadata.start, metadata.end, rv.start, rv.end] {
            numbers::put(out, position as usize);
        }
    }

    fn load(input: &mut &[u8]) -> Option<Self> {
        let len = numbers::take(input).filter(|len| *len <= MOST_BYTES)?;
        let (&[before, after], rest) = input.split_first_chunk()?;
        *input = rest;
        let mut positions = [0u32; 4];
        for position in &mut positions {
            *position = u32::try_from(numbers::take(input)?).ok()?;
        }
        let [start, end, rv_start, rv_end] = positions;
        let item = len.checked_sub(usize::from(before) + usize::from(after))?;
        let is_within = start <= end && rv_start <= rv_end && end.max(rv_end) as usize <= item;
        let len = u32::try_from(len).ok()?;
        is_within.then_some(Self { len, before, after, metadata: start..end, rv: rv_start..rv_end })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{AttributesBuilder, Raw};
    use informerd_packing::{Packing, PackingConfig, PackingForm};

    fn object(rv: u64, text: &str) -> Object {
        let mut attributes = AttributesBuilder::new("u-1");
        attributes.label("app", "wéb");
        attributes.field("node-1");
        let bytes = format!("{{\"metadata\":{{\"resourceVersion\":\"{rv}\"}},\"text\":\"{text}\"}},");
        let raw = Raw::new(Bytes::from(bytes), 12..35, 32..33);
        Object::new(ObjectKey::new("a", "b"), ResourceVersion(rv), attributes.build(), raw)
    }

    fn library() -> Library {
        Library::new(Packing::new(PackingConfig::default()).packer(Some(PackingForm::Packed)))
    }

    fn assert_same(a: &Object, b: &Object) {
        assert_eq!((&a.key, a.rv, &a.attributes), (&b.key, b.rv, &b.attributes));
        assert!(a.is_written_as(b));
        let ranges = |object: &Object| object.raw().map(|raw| (raw.metadata_range(), raw.rv_range())).unwrap();
        assert_eq!(ranges(a), ranges(b));
    }

    #[test]
    fn an_object_comes_back() {
        let (saved, mut out) = (object(7, "x"), Vec::new());
        saved.save(&mut Dictionaries::default(), &mut out).unwrap();
        let mut input = &out[..];
        let loaded = Object::load(&mut input, &library(), |_| None).unwrap();
        assert!(input.is_empty());
        assert_same(&loaded, &saved);
    }

    #[test]
    fn the_next_version_is_a_small_difference() {
        let text = "never the same twice, 0123456789".repeat(40);
        let (first, next, mut out) = (Arc::new(object(7, &text)), object(8, &text), Vec::new());
        next.save_after(Some(&first), &mut Dictionaries::default(), &mut out).unwrap();
        assert!(out.len() < 100, "{}", out.len());
        let loaded = Object::load(&mut &out[..], &library(), |_| Some(&first)).unwrap();
        assert_same(&loaded, &next);
        assert!(Object::load(&mut &out[..], &library(), |_| None).is_none());
    }

    #[test]
    fn a_longer_object_is_damaged() {
        let is_read = |len: usize| {
            let mut out = Vec::new();
            Layout { len: u32::try_from(len).unwrap(), before: 0, after: 0, metadata: 0..0, rv: 0..0 }.save(&mut out);
            Layout::load(&mut &out[..]).is_some()
        };
        assert_eq!([MOST_BYTES, MOST_BYTES + 1].map(is_read), [true, false]);
    }

    #[test]
    fn no_prefix_and_no_changed_byte_panics() {
        let (mut out, library) = (Vec::new(), library());
        object(7, "x").save(&mut Dictionaries::default(), &mut out).unwrap();
        for end in 0..out.len() {
            assert!(Object::load(&mut &out[..end], &library, |_| None).is_none(), "{end}");
        }
        for at in 0..out.len() {
            for bit in 0..8 {
                let mut changed = out.clone();
                changed[at] ^= 1 << bit;
                if let Some(object) = Object::load(&mut &changed[..], &library, |_| None) {
                    let raw = object.raw().unwrap();
                    let _ = (raw.metadata(), raw.slice(raw.rv_range()), raw.item(), object.attributes.labels().count());
                }
            }
        }
    }
}
