//! A read whose resource and selectors are known.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::Floor;
use crate::codec::{Form, Shape};
use crate::informer::{Asked, Shareable, Sought, Use};
use crate::meta::{Encoding, Resource, Verb};
use crate::selector::{Predicate, ShardSelector};

use super::ConsistentReads;
use super::plan::Freshness;

/// A request whose resource and selectors are known.
pub(super) struct Resolved {
    pub(super) resource: Arc<Resource>,
    /// The encoding and shape of the answer.
    pub(super) encoding: Encoding,
    pub(super) shape: Shape,
    /// The shape of the answer in JSON, if that is acceptable when the apiserver does not support the encoding for this
    /// type.
    pub(super) json_fallback: Option<Shape>,
    /// The objects are kept in JSON, and their metadata is written in protobuf.
    pub(super) converted: bool,
    pub(super) predicate: Predicate,
    /// The requested shard of the predicate.
    pub(super) shard: Option<Shard>,
    /// Its original label and field selectors, if they require anything.
    pub(super) selectors: Option<(String, String)>,
    /// The part of the collection that is read.
    pub(super) rows: Use,
    pub(super) floor: Arc<Floor>,
    /// When it arrived, and how many uncovered answers there were before that; see [`Floor::uncovered`].
    pub(super) arrived: Asked,
    pub(super) unknown: Option<u64>,
    /// How it is answered if it asks for the newest state, before its client is considered.
    pub(super) consistent: ConsistentReads,
    /// The proof that its answer may be shared by clients with different identities, if its client has one.
    pub(super) proof: Option<Shareable>,
    /// It cannot be forwarded.
    pub(super) local: bool,
    /// Its client sent its own credentials to a trusted listener.
    pub(super) own_credentials: bool,
    /// Its client accepts gzip.
    pub(super) gzip: bool,
    /// An old state is good enough.
    pub(super) stale: bool,
    /// The maximum time that it waits for its informer to sync.
    pub(super) patience: Duration,
    /// When half of its client's time is over. All its waits end by then, so that the apiserver has the other half.
    pub(super) until: Option<Instant>,
}

/// The shard of a read.
pub(super) struct Shard {
    pub(super) selector: Arc<ShardSelector>,
    /// Whether a page contains the number of remaining objects, including those of other shards, if there is no other
    /// selector.
    pub(super) counts: Option<bool>,
}

// === impl Resolved ===

impl Resolved {
    pub(super) fn sought(&self) -> Sought<'_> {
        let Self { resource, predicate, encoding, rows, .. } = self;
        Sought { resource, predicate, encoding: *encoding, read: *rows }
    }

    /// A read that the apiserver may answer as well does not wait long for an informer that is still starting. A list
    /// waits for a short time, because then the watch that follows it can be served. A get does not wait.
    pub(super) fn hurry(&mut self, verb: Verb, freshness: Freshness) {
        if self.may_choose(verb) && freshness == Freshness::Consistent {
            self.patience = if verb == Verb::Get { Duration::ZERO } else { Duration::from_secs(1) };
        }
    }

    pub(super) fn bounded(&self, deadline: Instant) -> Instant {
        self.until.map_or(deadline, |until| until.min(deadline))
    }

    /// The form of the answer, from a cache whose objects have this form.
    pub(super) fn written(&self, form: Arc<Form>) -> Arc<Form> {
        match self.encoding {
            _ if self.converted => form.metadata_in_protobuf(),
            Encoding::Table => form,
            Encoding::Json | Encoding::Protobuf => form.objects(),
        }
    }

    /// Whether the read may be forwarded if that is cheaper.
    pub(super) fn may_choose(&self, verb: Verb) -> bool {
        !self.local && matches!(self.mode(verb), ConsistentReads::Auto | ConsistentReads::Bounded(_))
    }

    pub(super) fn mode(&self, verb: Verb) -> ConsistentReads {
        if self.stale { ConsistentReads::Cache } else { self.consistent.of(verb, self.local, self.own_credentials) }
    }
}
