//! Shard selectors (KEP-5866): the part of a collection whose hashes are in given ranges.

use std::fmt;

use informerd_meta::Object;

/// Ranges of the hash of one field. An object is selected if its hash is in any of them.
///
/// Its text form is the one that the apiserver writes in `metadata.shardInfo.selector` of lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    /// In the order of the request, which the apiserver keeps.
    ranges: Box<[ShardRange]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ShardField {
    Uid,
    Namespace,
}

/// The hashes from `start` (included) to `end` (excluded). `end` is at most 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ShardRange {
    start: u128,
    end: u128,
}

/// The most ranges that are evaluated here. A shard usually has one range, and a few while shards are moved.
const MOST_RANGES: usize = 64;
const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

// === impl ShardSelector ===

impl ShardSelector {
    /// Parses a chain of `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`, joined by
    /// `||`.
    ///
    /// The apiserver parses CEL, which allows more forms than are supported here. Returns `None` for those, for more
    /// than 64 ranges, and for everything that the apiserver rejects.
    pub fn parse(text: &str) -> Option<Self> {
        let mut terms = text.split("||").take(MOST_RANGES + 1).map(parse_term);
        let (field, first) = terms.next()??;
        let mut ranges = vec![first];
        for term in terms {
            let (next, range) = term?;
            if next != field {
                return None;
            }
            ranges.push(range);
        }
        (ranges.len() <= MOST_RANGES).then(|| Self { field, ranges: ranges.into() })
    }

    /// Whether the object is selected. Does not allocate.
    pub fn matches(&self, object: &Object) -> bool {
        let value = match self.field {
            ShardField::Uid => object.attributes.uid(),
            ShardField::Namespace => object.key.namespace(),
        };
        let hash = u128::from(fnv1a(value.as_bytes()));
        self.ranges.iter().any(|range| (range.start..range.end).contains(&hash))
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, range) in self.ranges.iter().enumerate() {
            let or = if n == 0 { "" } else { " || " };
            let ShardRange { start, end } = range;
            write!(f, "{or}shardRange({}, '0x{start:016x}', '0x{end:016x}')", self.field.path())?;
        }
        Ok(())
    }
}

// === impl ShardField ===

impl ShardField {
    fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

fn parse_term(term: &str) -> Option<(ShardField, ShardRange)> {
    let arguments = term.trim_matches(SPACE).strip_prefix("shardRange(")?.strip_suffix(')')?;
    let mut arguments = arguments.split(',').map(|argument| argument.trim_matches(SPACE));
    let path = arguments.next()?;
    let field = [ShardField::Uid, ShardField::Namespace].into_iter().find(|field| field.path() == path)?;
    let range = ShardRange { start: parse_bound(arguments.next()?)?, end: parse_bound(arguments.next()?)? };
    (arguments.next().is_none() && range.start < range.end).then_some((field, range))
}

/// Parses a string of `0x` and 16 lowercase digits, or of 2^64.
fn parse_bound(literal: &str) -> Option<u128> {
    let unquoted = |quote| literal.strip_prefix(quote)?.strip_suffix(quote);
    let digits = unquoted('\'').or_else(|| unquoted('"'))?.strip_prefix("0x")?;
    let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_bound = digits.len() == 16 || digits == "10000000000000000";
    (is_hex && is_bound).then(|| u128::from_str_radix(digits, 16).ok())?
}

/// 64-bit FNV-1a.
fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
#[path = "shard_tests.rs"]
mod tests;
