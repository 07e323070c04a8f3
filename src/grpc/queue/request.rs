//! Parses the requests of workers and enforces their limits.

use prost::Message;

use super::super::call::Error;
use super::super::messages::{Rendering, convert};
use super::super::pb::v1;
use crate::memory::Reservation;
use crate::reads::Selection;

const MAX_GROUP: usize = 128;
const MAX_SELECTIONS: usize = 16;
/// The most keys that one worker may hold.
const MAX_CAPACITY: u32 = 10_000;

/// A worker's request to join a group.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) group: String,
    /// The user that owns the group. Workers of other users can neither take keys from it nor see it. Empty on a
    /// trusted listener.
    pub(super) owner: String,
    pub(super) wanted: Vec<Wanted>,
    pub(super) capacity: usize,
}

/// One selection of a group.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) selection: Selection,
    pub(super) rendering: Rendering,
    /// Equal for equal selections, independent of the order of their alternatives.
    pub(super) identity: Vec<u8>,
    /// The memory reserved for the selection.
    _held: Reservation,
}

/// Checks a request before its selections are looked at.
///
/// # Errors
/// INVALID_ARGUMENT with a one-sentence message.
pub(super) fn check(join: &v1::JoinGroup) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/');
    if join.group.is_empty() || join.group.len() > MAX_GROUP || !join.group.bytes().all(plain) {
        let form = format!("a group's name is 1 to {MAX_GROUP} letters, digits, '.', '-', '_' and '/'");
        return Err(Error::invalid(form));
    }
    if join.selections.is_empty() || join.selections.len() > MAX_SELECTIONS {
        return Err(Error::invalid(format!("a group has 1 to {MAX_SELECTIONS} selections")));
    }
    capacity(join.capacity.max(1)).map(drop)
}

/// `wanted`: its selections.
///
/// # Errors
/// INVALID_ARGUMENT with a one-sentence message.
pub(super) fn join(join: &v1::JoinGroup, mut wanted: Vec<Wanted>) -> Result<Join, Error> {
    wanted.sort_by(|a, b| a.selection.gvr.cmp(&b.selection.gvr));
    if wanted.windows(2).any(|pair| pair[0].selection.gvr == pair[1].selection.gvr) {
        return Err(Error::invalid("two selections of a group are of one resource: use one with several filters"));
    }
    let capacity = capacity(join.capacity.max(1))?;
    Ok(Join { group: join.group.clone(), owner: String::new(), wanted, capacity })
}

pub(super) fn capacity(keys: u32) -> Result<usize, Error> {
    match usize::try_from(keys) {
        Ok(capacity) if keys <= MAX_CAPACITY => Ok(capacity),
        _ => Err(Error::invalid(format!("a worker takes at most {MAX_CAPACITY} keys at once"))),
    }
}

// === impl Wanted ===

impl Wanted {
    /// `sent` names the version of its resource.
    pub(super) fn new(sent: &v1::Selection, selection: Selection, rendering: Rendering, held: Reservation) -> Self {
        let mut canonical = convert::canonical(sent);
        // A selection without filters selects everything, as one that restricts nothing does.
        if canonical.filters.is_empty() {
            canonical.filters.push(v1::Filter::default());
        }
        Self { selection, rendering, identity: canonical.encode_to_vec(), _held: held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::testing;
    use crate::memory::Ledger;

    fn selection(resource: &str, namespaces: &[&str]) -> v1::Selection {
        let filter = |namespace: &&str| v1::Filter { namespace: (*namespace).to_owned(), ..Default::default() };
        testing::selection(resource, namespaces.iter().map(filter).collect())
    }

    fn parsed(group: &str, selections: Vec<v1::Selection>, capacity: u32) -> Result<Join, Error> {
        let asked = v1::JoinGroup { group: group.to_owned(), selections, capacity };
        check(&asked)?;
        let wanted = asked.selections.iter().map(|sent| {
            let (selection, rendering, held) = convert::selection(Some(sent), &Ledger::default())?;
            Ok(Wanted::new(sent, selection, rendering, held))
        });
        join(&asked, wanted.collect::<Result<_, Error>>()?)
    }

    #[test]
    fn the_order_of_selections_and_filters_means_nothing() {
        let one = vec![selection("pods", &["a", "b"]), selection("nodes", &[])];
        let other = vec![selection("nodes", &[]), selection("pods", &["b", "a"])];
        let identities = |join: Join| join.wanted.into_iter().map(|wanted| wanted.identity).collect::<Vec<_>>();
        let (one, other) = (parsed("g", one, 0).unwrap(), parsed("g", other, 5).unwrap());
        assert_eq!((one.capacity, other.capacity), (1, 5));
        assert_eq!(identities(one), identities(other));
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let plain = || v1::Selection { filters: vec![], ..selection("pods", &[]) };
        let explicit = v1::Selection {
            shape: v1::Shape::Full.into(),
            encoding: v1::Encoding::Json.into(),
            filters: vec![v1::Filter::default()],
            ..plain()
        };
        let metadata = v1::Selection { shape: v1::Shape::MetadataOnly.into(), ..plain() };
        let identity = |selection| parsed("g", vec![selection], 1).unwrap().wanted.remove(0).identity;
        assert_eq!(identity(plain()), identity(explicit));
        assert_ne!(identity(plain()), identity(metadata));
    }

    #[test]
    fn bounds() {
        let pods = || vec![selection("pods", &[])];
        for group in ["", "a b", "ä", &"x".repeat(129)] {
            assert!(parsed(group, pods(), 1).is_err(), "{group:?}");
        }
        assert!(parsed("team-a/web_1.x", pods(), 10_000).is_ok() && parsed(&"x".repeat(MAX_GROUP), pods(), 1).is_ok());
        let selections = |count: usize| (0..count).map(|n| selection(&format!("r{n}"), &[])).collect();
        assert!([16, 17].map(|count| parsed("g", selections(count), 1).is_ok()) == [true, false]);
        assert!(parsed("g", pods(), 10_001).is_err());
        assert!(parsed("g", vec![], 1).is_err());
        assert!(parsed("g", [pods(), pods()].concat(), 1).is_err(), "twice the same resource");
        assert!(parsed("g", vec![v1::Selection::default()], 1).is_err());
    }
}
