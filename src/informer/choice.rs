//! Chooses the cheapest exact way to answer a read of the newest state. These are pure decisions without I/O.
//!
//! Each way costs the apiserver one request. They differ in the size of the request, and in how long the client waits:
//!
//! - A *revision* is the smallest. It is enough if the watch stream is already at this revision, or reaches it a moment
//!   later.
//! - A *digest* (keys and revisions of a collection, of one namespace, or of the objects that a read selects) proves
//!   the state, wherever the stream is.
//! - *Forwarding* costs as much as it would without informerd. So it is chosen if a digest would cost more of anything:
//!   of the apiserver's CPU time, or of the bytes that it sends. The apiserver compresses only answers of some size, so
//!   a digest may have more bytes than the whole objects.
//! - A *second watch* costs almost nothing, but takes a second or two. So it is only used for reads that cannot be
//!   forwarded, and for watches, which would be expensive to forward for as long as they last.

use crate::meta::Verb;
use crate::upstream::SMALL_DIGEST;

/// The known facts about a read and its informer when the read arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub verb: Verb,
    /// The read may be forwarded.
    pub may_forward: bool,
    /// The probability, from 0 to 1, that the stream delivers the store's revision by itself.
    pub odds: f32,
    /// Number of objects of the whole informer.
    pub all: usize,
    /// Number of objects of the read's namespace, counted up to [`SMALL_DIGEST`] and one; `None` for a read of
    /// everything.
    pub namespace: Option<usize>,
    /// The expected number of objects in the answer.
    pub answer: usize,
    /// Mean numbers of bytes, uncompressed: of an object in the answer, and of its metadata.
    pub object: usize,
    pub metadata: usize,
    /// The client accepts gzip, so the apiserver would compress the answer.
    pub gzip: bool,
    /// It has selectors that the apiserver supports, too.
    pub selective: bool,
    /// The next digest of everything is expected to be late or unusable, as the last one was.
    pub is_late: bool,
    /// The number of reads of this informer that share the proof: those that wait for it now, including this one, and
    /// those expected while it is new enough for them.
    pub waiting: usize,
}

/// What a digest covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Everything,
    Namespace,
    /// The objects that the read selects.
    Selection,
}

/// What to ask first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    Revision,
    Digest(Extent),
    Forward,
}

/// What to do if the revision was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Digest(Extent),
    Watch,
    Forward,
}

/// With more objects, a digest takes longer than a client should wait, even for a list of most of them, which would take
/// the apiserver much longer still.
const MOST_OF_ALL: usize = 50_000;
/// Up to this number of objects, everything is compared even if one namespace is enough, provided that it is still
/// worthwhile: readers of other namespaces share the result.
const SHARED: usize = 1000;
/// The cost of any question for the apiserver, whatever its answer, in objects of a list.
const QUESTION: f32 = 30.0;
/// A wrong guess costs a second question, so a revision must be cheaper by this factor.
const SECOND: f32 = 1.5;
/// Below the first odds a revision is never asked for first, and above the second it always is.
const UNLIKELY: f32 = 0.1;
const LIKELY: f32 = 0.9;
/// The metadata of an object costs the apiserver about a quarter of the whole object, also if both are compressed.
const METADATA: f32 = 0.25;
/// The apiserver compresses lists of more bytes.
const COMPRESSED: usize = 128 << 10;
/// The same for a digest. Metadata from a cache of JSON is some larger than in protobuf, as it is sent.
const COMPRESSED_DIGEST: usize = 192 << 10;
/// Compressed, an object has about this part of its bytes, but not less than this number: its name, its UID, its
/// revision and its times repeat nothing.
const RATIO: usize = 12;
const LEAST: usize = 128;
/// Bytes of a request and of the heads of its answer.
const REQUEST: f32 = 500.0;

// === impl Situation ===

impl Situation {
    /// What to ask first.
    pub(super) fn first(&self) -> First {
        let then = self.then();
        let instead = match then {
            Then::Digest(Extent::Everything) => digest(self.all),
            Then::Digest(Extent::Namespace) => digest(self.namespace.unwrap_or(self.all)),
            Then::Digest(Extent::Selection) => digest(self.answer),
            Then::Watch => f32::INFINITY,
            Then::Forward => self.forwarding(),
        };
        if self.odds >= (SECOND * QUESTION / instead).clamp(UNLIKELY, LIKELY) {
            return First::Revision;
        }
        match then {
            Then::Digest(extent) => First::Digest(extent),
            Then::Forward => First::Forward,
            Then::Watch => First::Revision,
        }
    }

    /// What to do if a revision is not enough.
    pub(super) fn then(&self) -> Then {
        // A watch continues from the state of everything.
        let namespace = self.namespace.filter(|_| self.verb != Verb::Watch);
        let all = match self.verb {
            Verb::List if self.answer >= self.all / 2 => MOST_OF_ALL,
            _ if namespace.is_some() => SHARED,
            _ => SMALL_DIGEST,
        };
        let is_worth = |objects: usize| {
            let digest_bytes = REQUEST + sent(objects, self.metadata, COMPRESSED_DIGEST);
            !self.may_forward || digest(objects) <= self.forwarding() && digest_bytes <= self.own_bytes()
        };
        // A small digest is only late if the apiserver answers nothing, and then forwarding would not help.
        let is_late = self.is_late && self.may_forward && self.all > SMALL_DIGEST;
        match namespace {
            _ if self.all <= all && !is_late && is_worth(self.all) => Then::Digest(Extent::Everything),
            Some(objects) if objects <= SMALL_DIGEST && is_worth(objects) => Then::Digest(Extent::Namespace),
            _ if self.selective && self.verb == Verb::List && self.answer <= SMALL_DIGEST && is_worth(self.answer) => {
                Then::Digest(Extent::Selection)
            }
            _ if self.may_forward => Then::Forward,
            _ => Then::Watch,
        }
    }

    /// The cost of forwarding, in objects, for all reads that would share the digest.
    fn forwarding(&self) -> f32 {
        match self.verb {
            // The apiserver would have to serve it for as long as it lasts.
            Verb::Watch => f32::INFINITY,
            _ => (QUESTION + number(self.answer)) * number(self.waiting),
        }
    }

    /// The bytes of the answers, for all reads that would share the digest, as their clients would get them.
    fn own_bytes(&self) -> f32 {
        let from = if self.gzip { COMPRESSED } else { usize::MAX };
        (REQUEST + sent(self.answer, self.object, from)) * number(self.waiting)
    }
}

/// The cost of a digest of this many objects, in objects.
fn digest(objects: usize) -> f32 {
    QUESTION + number(objects) * METADATA
}

/// The bytes of so many objects as they are sent, if more than `from` of them are compressed.
fn sent(objects: usize, each: usize, from: usize) -> f32 {
    let is_compressed = objects.saturating_mul(each) > from;
    number(objects) * number(if is_compressed { (each / RATIO).max(LEAST.min(each)) } else { each })
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn number(count: usize) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Situation = Situation {
        verb: Verb::List,
        may_forward: true,
        odds: 0.0,
        all: 300,
        namespace: None,
        answer: 300,
        object: 6000,
        metadata: 3000,
        gzip: false,
        is_late: false,
        selective: false,
        waiting: 1,
    };
    const GET: Situation = Situation { verb: Verb::Get, answer: 1, namespace: Some(50), ..LIST };
    const WATCH: Situation = Situation { verb: Verb::Watch, ..LIST };

    #[test]
    fn table() {
        use Extent::{Everything, Namespace, Selection};
        let still = |situation| Situation { odds: 1.0, ..situation };
        let local = |situation| Situation { may_forward: false, ..situation };
        let large = |situation| Situation { all: 90_000, answer: 90_000, ..situation };
        let of = |all, answer| Situation { all, answer, ..LIST };
        let late = |situation| Situation { is_late: true, ..situation };
        let namespace = |answer, situation| Situation { namespace: Some(answer), answer, ..situation };
        let digest = |extent| (First::Digest(extent), Then::Digest(extent));
        const FORWARD: (First, Then) = (First::Forward, Then::Forward);
        for (what, situation, expected) in [
            ("a still store", still(LIST), (First::Revision, Then::Digest(Everything))),
            ("now and then a change", Situation { odds: 0.5, ..LIST }, (First::Revision, Then::Digest(Everything))),
            ("the same of a few objects", Situation { odds: 0.5, all: 20, answer: 20, ..LIST }, digest(Everything)),
            ("a quiet collection", LIST, digest(Everything)),
            ("a huge quiet collection", large(LIST), FORWARD),
            ("most of a large quiet collection", of(MOST_OF_ALL, 40_000), digest(Everything)),
            ("most of one that is larger still", of(MOST_OF_ALL + 1, 40_000), FORWARD),
            ("the same after a digest that was late", late(of(40_000, 40_000)), FORWARD),
            ("the same if it cannot be forwarded", local(late(of(40_000, 40_000))), digest(Everything)),
            ("a small one after a digest that was late", late(LIST), digest(Everything)),
            ("a large still one", still(large(LIST)), (First::Revision, Then::Forward)),
            ("a namespace of a large one", namespace(40, large(LIST)), digest(Namespace)),
            ("a small namespace of a small one", namespace(10, LIST), digest(Namespace)),
            ("a namespace of a small one is proved with the rest", namespace(100, LIST), digest(Everything)),
            ("a few of many that no selector tells", Situation { answer: 3, ..LIST }, FORWARD),
            ("a few of many", Situation { answer: 3, selective: true, ..large(LIST) }, digest(Selection)),
            (
                "half of a small collection is proved with the rest",
                Situation { answer: 150, selective: true, ..LIST },
                digest(Everything),
            ),
            (
                "a few of many, for a crowd",
                Situation { answer: 3, waiting: 30, selective: true, ..LIST },
                digest(Everything),
            ),
            ("what is compressed either way", Situation { gzip: true, ..LIST }, digest(Everything)),
            ("what a digest is too small to be compressed for", Situation { gzip: true, ..of(40, 40) }, FORWARD),
            ("the same without compression", of(40, 40), digest(Everything)),
            ("the same for a crowd", Situation { gzip: true, waiting: 10, ..of(40, 40) }, digest(Everything)),
            ("what is compressed neither way", Situation { gzip: true, ..of(20, 20) }, digest(Everything)),
            (
                "a selection that is too small as a digest",
                Situation { gzip: true, answer: 40, selective: true, ..LIST },
                FORWARD,
            ),
            ("half of what is compressed", Situation { gzip: true, metadata: 6000, ..of(300, 150) }, FORWARD),
            (
                "metadata that hardly repeats itself",
                Situation { gzip: true, object: 2000, metadata: 1000, ..of(300, 160) },
                FORWARD,
            ),
            ("a lone get", GET, FORWARD),
            ("a get in a still store", still(GET), (First::Revision, Then::Forward)),
            (
                "a get of two, and perhaps a change",
                Situation { odds: 0.8, waiting: 2, namespace: Some(300), ..GET },
                (First::Revision, Then::Forward),
            ),
            ("gets of a crowd", Situation { waiting: 40, ..GET }, digest(Everything)),
            ("a watch", WATCH, digest(Everything)),
            ("a watch of a large one", large(WATCH), (First::Revision, Then::Watch)),
            (
                "a watch of a namespace of a large one",
                Situation { namespace: Some(40), all: 90_000, ..WATCH },
                (First::Revision, Then::Watch),
            ),
            ("who cannot be forwarded", local(large(LIST)), (First::Revision, Then::Watch)),
            ("a get that cannot be forwarded", local(GET), digest(Everything)),
        ] {
            // A watch is never forwarded only because a proof is missing.
            let situation =
                Situation { may_forward: situation.may_forward && situation.verb != Verb::Watch, ..situation };
            assert_eq!((situation.first(), situation.then()), expected, "{what}");
        }
    }
}
