//! Resume tokens: the position, the selection and the cluster of a watch. They grant no access, so they are not
//! signed.

use bytes::Bytes;
use prost::Message;

use super::convert;
use crate::grpc::call::Error;
use crate::grpc::pb::v1;
use crate::meta::ResourceVersion;

const VERSION: u32 = 1;

/// The part that is the same in all tokens of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBase {
    /// Zero if the cluster is not known.
    cluster: u64,
    selection: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(fixed64, tag = "2")]
    cluster: u64,
    #[prost(fixed64, tag = "3")]
    selection: u64,
    /// All changes up to this revision were delivered. Zero before the snapshot is complete.
    #[prost(uint64, tag = "4")]
    rv: u64,
}

// === impl TokenBase ===

impl TokenBase {
    /// `cluster` is the same on every replica of the cluster. It is empty if the cluster is not known.
    pub fn new(cluster: &str, selection: &v1::Selection) -> Self {
        let cluster = if cluster.is_empty() { 0 } else { fnv(cluster.as_bytes()) };
        // The encoding may change between connections.
        let canonical = v1::Selection { encoding: 0, ..convert::canonical(selection) };
        Self { cluster, selection: fnv(&canonical.encode_to_vec()) }
    }

    pub fn at(&self, rv: ResourceVersion) -> Bytes {
        let wire = Wire { version: VERSION, cluster: self.cluster, selection: self.selection, rv: rv.get() };
        wire.encode_to_vec().into()
    }

    /// The revision to resume after; `None` if no snapshot was complete.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an invalid token, or for a token of another selection or cluster.
    pub fn read(&self, token: &[u8]) -> Result<Option<ResourceVersion>, Error> {
        let wire = Wire::decode(token).ok().filter(|wire| wire.version == VERSION);
        let Some(wire) = wire else { return Err(Error::invalid("the resume token is not one of this API")) };
        if wire.cluster != 0 && self.cluster != 0 && wire.cluster != self.cluster {
            return Err(Error::invalid("the resume token is of another cluster"));
        }
        if wire.selection != self.selection {
            return Err(Error::invalid("the resume token is of another selection"));
        }
        Ok((wire.rv != 0).then_some(ResourceVersion(wire.rv)))
    }
}

/// FNV-1a gives the same result on every replica and in every version.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::testing;

    fn selection(resource: &str, selectors: &[&str]) -> v1::Selection {
        let filter = |selector: &&str| v1::Filter { label_selector: (*selector).to_owned(), ..Default::default() };
        testing::selection(resource, selectors.iter().map(filter).collect())
    }

    #[test]
    fn goes_back_to_where_it_was_on_any_replica() {
        let base = TokenBase::new("c", &selection("pods", &["a", "b"]));
        let token = base.at(ResourceVersion(7));
        for same in [
            TokenBase::new("c", &selection("pods", &["b", "a"])),
            TokenBase::new("", &selection("pods", &["a", "b"])),
            TokenBase::new("c", &v1::Selection { encoding: 2, ..selection("pods", &["a", "b"]) }),
            // SHAPE_FULL
            TokenBase::new("c", &v1::Selection { shape: 1, ..selection("pods", &["a", "b"]) }),
        ] {
            assert_eq!(same.read(&token), Ok(Some(ResourceVersion(7))));
        }
        assert_eq!(base.read(&base.at(ResourceVersion::ZERO)), Ok(None));
    }

    /// The fuzz target `resume_tokens` shows that anything else is refused.
    #[test]
    fn is_refused_where_it_does_not_belong() {
        let token = TokenBase::new("c", &selection("pods", &["a"])).at(ResourceVersion(7));
        for (other, what) in [
            (TokenBase::new("d", &selection("pods", &["a"])), "cluster"),
            (TokenBase::new("c", &selection("nodes", &["a"])), "selection"),
            (TokenBase::new("c", &selection("pods", &[])), "selection"),
            (TokenBase::new("c", &v1::Selection { shape: 2, ..selection("pods", &["a"]) }), "selection"),
        ] {
            let refused = other.read(&token).unwrap_err();
            assert!(format!("{refused:?}").contains(what), "{refused:?}");
        }
    }
}
