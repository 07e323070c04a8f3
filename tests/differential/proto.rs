//! As much of Kubernetes' protobuf as tells the events of a watch apart.

use super::streams::Event;

/// A watch event: type, and the envelope of an object.
pub(crate) fn event(frame: &[u8]) -> Option<Event> {
    let kind = String::from_utf8_lossy(field(frame, 1)?).into_owned();
    let envelope = field(field(frame, 2)?, 1)?.strip_prefix(b"k8s\0")?;
    let object = field(envelope, 2)?;
    let is_status = field(field(envelope, 1)?, 2)? == b"Status";
    let meta = if is_status { &[][..] } else { field(object, 1).unwrap_or_default() };
    let text = |number| String::from_utf8_lossy(field(meta, number).unwrap_or_default()).into_owned();
    let mut marks_end = false;
    for entry in fields(meta, 12) {
        marks_end |= field(entry, 1) == Some(b"k8s.io/initial-events-end") && field(entry, 2) == Some(b"true");
    }
    Some(Event {
        bytes: frame.to_vec(),
        kind,
        key: format!("{}/{}", text(3), text(1)),
        rv: text(6).parse().unwrap_or(0),
        marks_end,
    })
}

/// The first field of that number that has a length.
fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    fields(message, number).next()
}

fn fields(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    let mut rest = message;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let tag = varint(&mut rest)?;
            let value = match tag & 7 {
                0 => {
                    varint(&mut rest)?;
                    continue;
                }
                1 => {
                    rest = rest.get(8..)?;
                    continue;
                }
                5 => {
                    rest = rest.get(4..)?;
                    continue;
                }
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    let value = rest.get(..length)?;
                    rest = &rest[length..];
                    value
                }
                _ => return None,
            };
            if tag >> 3 == number {
                return Some(value);
            }
        }
        None
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
