//! Parses just enough of the Kubernetes protobuf envelope to find the resourceVersion of an object or a list.

use bytes::Bytes;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::meta::ResourceVersion;

const MAGIC: &[u8] = b"k8s\0";
/// `metadata` is the first field of every object, and the version is at most the sixth field of `metadata`. Labels,
/// annotations and managed fields come later.
const LONGEST_PREFIX: usize = 16 << 10;

/// The beginning of a body. It is kept until the version is found or can no longer occur.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    bytes: Vec<u8>,
    done: bool,
}

/// The content of a field. Only strings and messages are parsed.
struct Field<'b> {
    number: u32,
    /// The bytes of the field that have arrived; `None` for numbers.
    bytes: Option<&'b [u8]>,
    complete: bool,
}

struct Fields<'b>(&'b [u8]);

// === impl Prefix ===

impl Prefix {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn push(&mut self, part: &Bytes) -> Option<ResourceVersion> {
        if self.done {
            return None;
        }
        let room = LONGEST_PREFIX - self.bytes.len();
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        let found = find(&self.bytes);
        if found.is_some() || self.bytes.len() == LONGEST_PREFIX {
            self.done = true;
            self.bytes = Vec::new();
        }
        found
    }
}

/// Finds the version in the part of an envelope that has arrived.
fn find(bytes: &[u8]) -> Option<ResourceVersion> {
    let envelope = bytes.strip_prefix(MAGIC)?;
    let mut is_list = None;
    for field in Fields(envelope) {
        match field.number {
            // TypeMeta: apiVersion, kind. It precedes the object.
            1 if field.complete => {
                let kind = Fields(field.bytes?).find(|field| field.number == 2)?.bytes?;
                is_list = Some(kind.ends_with(b"List"));
            }
            2 => {
                let metadata = Fields(field.bytes?).next().filter(|field| field.number == 1)?.bytes?;
                // The version is field 2 of ListMeta and field 6 of ObjectMeta.
                let number = if is_list? { 2 } else { 6 };
                let version = Fields(metadata).find(|field| field.number == number).filter(|field| field.complete)?;
                return ResourceVersion::parse(std::str::from_utf8(version.bytes?).ok()?);
            }
            _ => {}
        }
    }
    None
}

// === impl Fields ===

impl<'b> Iterator for Fields<'b> {
    type Item = Field<'b>;

    fn next(&mut self) -> Option<Field<'b>> {
        let (number, wire) = decode_key(&mut self.0).ok()?;
        if wire != WireType::LengthDelimited {
            skip_field(wire, number, &mut self.0, DecodeContext::default()).ok()?;
            return Some(Field { number, bytes: None, complete: true });
        }
        let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
        let there = length.min(self.0.len());
        let (bytes, rest) = self.0.split_at(there);
        self.0 = rest;
        Some(Field { number, bytes: Some(bytes), complete: there == length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
        let (bytes, mut out) = (bytes.to_vec(), Vec::new());
        prost::encoding::bytes::encode(number, &bytes, &mut out);
        out
    }

    fn envelope(kind: &str, metadata: &[u8]) -> Bytes {
        let mut object = field(1, metadata);
        object.extend(field(2, &[b'x'; 5000]));
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, &object), field(3, b""), field(4, b"")].concat().into()
    }

    #[test]
    fn objects_and_lists() {
        let object = [field(1, b"name"), field(3, b"ns"), field(5, b"uid"), field(6, b"42"), vec![7 << 3, 1]].concat();
        let list = [field(1, b""), field(2, b"43"), field(3, b"token")].concat();
        for (kind, metadata, expected) in [("Pod", &object, 42), ("PodList", &list, 43)] {
            let body = envelope(kind, metadata);
            assert_eq!(Prefix::new().push(&body), Some(ResourceVersion(expected)));
            // It is found once, however the body is split.
            let mut prefix = Prefix::new();
            let found: Vec<_> = body.chunks(1).filter_map(|byte| prefix.push(&Bytes::copy_from_slice(byte))).collect();
            assert_eq!(found, [ResourceVersion(expected)], "{kind}");
        }
        // The search ends after this many bytes.
        let of = |name: usize| envelope("Pod", &[field(1, &vec![b'n'; name]), field(6, b"42")].concat());
        let name = 16_000 + LONGEST_PREFIX - 2 - of(16_000).windows(2).position(|two| two == b"42").unwrap();
        assert_eq!([0, 1].map(|more| Prefix::new().push(&of(name + more))), [Some(ResourceVersion(42)), None]);
    }

    #[test]
    fn bodies_without_one() {
        for body in [envelope("Status", b""), envelope("Pod", &field(6, b"")), Bytes::from_static(b"{}"), Bytes::new()]
        {
            assert_eq!(Prefix::new().push(&body), None);
        }
        let endless = Bytes::from(vec![0xff; 100_000]);
        let mut prefix = Prefix::new();
        assert_eq!(prefix.push(&endless), None);
        assert!(prefix.done && prefix.bytes.is_empty(), "bounded");
    }
}
