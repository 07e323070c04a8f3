//! Chooses the cheapest exact way to answer a read of the newest state. No I/O. Each way costs the apiserver one request:
//!
//! - A *revision* is the smallest. It is enough if the watch stream is already there, or comes there a moment later.
//! - A *digest* (keys and revisions of a collection, of one namespace, or of the objects that a read selects) proves
//!   the state, wherever the stream is.
//! - *Forwarding* costs as much as it would without informerd. So it is chosen if a digest would cost more of anything:
//!   of the apiserver's CPU time, or of the bytes that it sends. The apiserver compresses only answers of some size, so
//!   a digest may have more bytes than the whole objects.
//! - A *second watch* costs almost nothing, but takes a second or two. So it is only used for reads that cannot be
//!   forwarded, and for watches, which would be expensive to forward for as long as they last.

use super::cost::{Cost, QUESTION};
use crate::apiserver::meter::Prices;
use crate::meta::Verb;
use crate::upstream::SMALL_DIGEST;

/// The known facts about a read and its informer when the read arrives.
#[derive(Clone, Copy, Debug)]
pub(in crate::informer) struct Situation {
    pub verb: Verb,
    /// The read may be forwarded.
    pub may_forward: bool,
    /// The probability, from 0 to 1, that the stream delivers the store's revision by itself.
    pub odds: f64,
    /// Numbers of objects: of the informer, of the read's namespace if it has one, up to [`SMALL_DIGEST`] and one, and the
    /// expected one of the answer.
    pub all: usize,
    pub namespace: Option<usize>,
    pub answer: usize,
    /// Objects are answered without more than their metadata and a table's row.
    pub only_metadata: bool,
    pub prices: Prices,
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
pub(in crate::informer) enum Extent {
    Everything,
    Namespace,
    /// The objects that the read selects.
    Selection,
}

/// A way to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::informer) enum Way {
    Revision,
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
/// A wrong guess costs a second question, so a revision must be cheaper by this factor.
const SECOND: f64 = 1.5;
/// Below the first odds a revision is never asked for first, and above the second it always is.
const UNLIKELY: f64 = 0.1;
const LIKELY: f64 = 0.9;
/// Gets of one resource, as those of the last seconds count, see [`super::Book::gets`]. From here on they are a loop: the third
/// of three in a row, or one per second for some seconds.
const LOOP: f64 = 2.5;
/// And from here on a crowd, about 60 per second: as many as the questions for them may be.
const CROWD: f64 = 256.0;

/// Whether a get of the newest state is forwarded without a question. A question costs as much as the get, and has fewer
/// bytes. So a loop of gets is proved where an informer runs, but is not worth that one `starts` for it. A crowd is: it
/// shares questions.
pub(in crate::informer) fn is_lone(lately: Cost, starts: impl FnOnce() -> bool) -> bool {
    let is_fewer = |gets: f64| lately.work < QUESTION.work * gets;
    is_fewer(LOOP) || is_fewer(CROWD) && starts()
}

// === impl Situation ===

impl Situation {
    /// What to ask first.
    pub(in crate::informer) fn first(&self) -> Way {
        let then = self.then();
        let instead = match then {
            Way::Digest(extent) => self.digest(extent).work,
            Way::Forward => self.forwarding().work,
            Way::Watch | Way::Revision => return Way::Revision,
        };
        let is_likely = self.odds >= (SECOND * QUESTION.work / instead).clamp(UNLIKELY, LIKELY);
        if is_likely { Way::Revision } else { then }
    }

    /// What to do if a revision is not enough.
    pub(in crate::informer) fn then(&self) -> Way {
        // A watch continues from the state of everything.
        let namespace = self.namespace.filter(|_| self.verb != Verb::Watch);
        let all = match self.verb {
            Verb::List if self.answer >= self.all / 2 => MOST_OF_ALL,
            _ if namespace.is_some() => SHARED,
            _ => SMALL_DIGEST,
        };
        let is_worth = |extent| !self.may_forward || self.digest(extent).is_within(self.forwarding());
        // A small digest is only late if the apiserver answers nothing, and then forwarding would not help.
        let is_late = self.is_late && self.may_forward && self.all > SMALL_DIGEST;
        let is_small = |objects: Option<usize>| objects.is_some_and(|objects| objects <= SMALL_DIGEST);
        let selected = Some(self.answer).filter(|_| self.selective && self.verb == Verb::List);
        match () {
            () if self.all <= all && !is_late && is_worth(Extent::Everything) => Way::Digest(Extent::Everything),
            () if is_small(namespace) && is_worth(Extent::Namespace) => Way::Digest(Extent::Namespace),
            () if is_small(selected) && is_worth(Extent::Selection) => Way::Digest(Extent::Selection),
            () if self.may_forward => Way::Forward,
            () => Way::Watch,
        }
    }

    fn digest(&self, extent: Extent) -> Cost {
        let objects = match extent {
            Extent::Everything => self.all,
            Extent::Namespace => self.namespace.unwrap_or(self.all),
            Extent::Selection => self.answer,
        };
        Cost::digest(&self.prices, objects)
    }

    /// The cost of forwarding for all reads that would share the digest.
    fn forwarding(&self) -> Cost {
        let mut answer = Cost::objects(&self.prices, self.answer, self.gzip);
        if self.only_metadata {
            answer.bytes = self.prices.metadata(self.answer as u64, self.gzip) as f64;
        }
        // The apiserver would have to serve a watch for as long as it lasts.
        let shared = if self.verb == Verb::Watch { f64::INFINITY } else { self.waiting as f64 };
        (QUESTION + answer).times(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::meter::Meter;

    fn situation() -> Situation {
        Situation {
            verb: Verb::List,
            may_forward: true,
            odds: 0.0,
            all: 300,
            namespace: None,
            answer: 300,
            only_metadata: false,
            prices: prices([6000, 3000], 12),
            gzip: false,
            is_late: false,
            selective: false,
            waiting: 1,
        }
    }

    /// The bytes of an object and of its metadata, and the ratio to which many are compressed.
    fn prices([object, metadata]: [u64; 2], ratio: u64) -> Prices {
        let meter = Meter::default();
        meter.listed(1000, (1000 * object / ratio, 1000 * object));
        meter.digested(1000, (1000 * metadata / ratio, 1000 * metadata));
        meter.prices()
    }

    #[test]
    fn table() {
        use Extent::{Everything, Namespace, Selection};
        let list = situation();
        let get = Situation { verb: Verb::Get, answer: 1, namespace: Some(50), ..list };
        let watch = Situation { verb: Verb::Watch, ..list };
        let still = |situation| Situation { odds: 1.0, ..situation };
        let local = |situation| Situation { may_forward: false, ..situation };
        let large = |situation| Situation { all: 90_000, answer: 90_000, ..situation };
        let of = |all, answer| Situation { all, answer, ..list };
        let late = |situation| Situation { is_late: true, ..situation };
        let namespace = |answer, situation| Situation { namespace: Some(answer), answer, ..situation };
        let digest = |extent| (Way::Digest(extent), Way::Digest(extent));
        let gzip = |situation| Situation { gzip: true, ..situation };
        const FORWARD: (Way, Way) = (Way::Forward, Way::Forward);
        for (what, situation, expected) in [
            ("a still store", still(list), (Way::Revision, Way::Digest(Everything))),
            ("now and then a change", Situation { odds: 0.5, ..list }, (Way::Revision, Way::Digest(Everything))),
            ("the same of a few objects", Situation { odds: 0.5, ..of(20, 20) }, digest(Everything)),
            ("a quiet collection", list, digest(Everything)),
            ("a huge quiet collection", large(list), FORWARD),
            ("most of a large quiet collection", of(MOST_OF_ALL, 40_000), digest(Everything)),
            ("most of one that is larger still", of(MOST_OF_ALL + 1, 40_000), FORWARD),
            ("the same after a digest that was late", late(of(40_000, 40_000)), FORWARD),
            ("the same if it cannot be forwarded", local(late(of(40_000, 40_000))), digest(Everything)),
            ("a small one after a digest that was late", late(list), digest(Everything)),
            ("a large still one", still(large(list)), (Way::Revision, Way::Forward)),
            ("a namespace of a large one", namespace(40, large(list)), digest(Namespace)),
            ("a small namespace of a small one", namespace(10, list), digest(Namespace)),
            ("a namespace of a small one is proved with the rest", namespace(100, list), digest(Everything)),
            ("a few of many that no selector tells", Situation { answer: 3, ..list }, FORWARD),
            ("a few of many", Situation { answer: 3, selective: true, ..large(list) }, digest(Selection)),
            (
                "half of a small collection is proved with the rest",
                Situation { answer: 150, selective: true, ..list },
                digest(Everything),
            ),
            (
                "a few of many, for a crowd",
                Situation { answer: 3, waiting: 30, selective: true, ..list },
                digest(Everything),
            ),
            ("what is compressed either way", gzip(list), digest(Everything)),
            ("what a digest is too small to be compressed for", gzip(of(40, 40)), FORWARD),
            ("the same without compression", of(40, 40), digest(Everything)),
            ("the same for a crowd", Situation { waiting: 10, ..gzip(of(40, 40)) }, digest(Everything)),
            ("what is compressed neither way", gzip(of(20, 20)), digest(Everything)),
            (
                "a selection that is too small as a digest",
                Situation { answer: 40, selective: true, ..gzip(list) },
                FORWARD,
            ),
            (
                "half of what is compressed",
                Situation { prices: prices([6000, 6000], 12), ..gzip(of(300, 150)) },
                FORWARD,
            ),
            (
                "metadata alone, for those who ask for nothing else",
                Situation { only_metadata: true, ..gzip(of(300, 300)) },
                digest(Everything),
            ),
            ("half of it", Situation { only_metadata: true, ..gzip(of(300, 150)) }, FORWARD),
            (
                "half of objects that are hardly compressed",
                Situation { prices: prices([6000, 3000], 2), ..gzip(of(300, 160)) },
                digest(Everything),
            ),
            ("a lone get", get, FORWARD),
            ("a get in a still store", still(get), (Way::Revision, Way::Forward)),
            (
                "a get of two, and perhaps a change",
                Situation { odds: 0.8, waiting: 2, namespace: Some(300), ..get },
                (Way::Revision, Way::Forward),
            ),
            ("gets of a crowd", Situation { waiting: 40, ..get }, digest(Everything)),
            ("a watch", watch, digest(Everything)),
            ("a watch of a large one", large(watch), (Way::Revision, Way::Watch)),
            (
                "a watch of a namespace of a large one",
                Situation { namespace: Some(40), all: 90_000, ..watch },
                (Way::Revision, Way::Watch),
            ),
            ("who cannot be forwarded", local(large(list)), (Way::Revision, Way::Watch)),
            ("a get that cannot be forwarded", local(get), digest(Everything)),
        ] {
            // A watch is never forwarded only because a proof is missing.
            let situation =
                Situation { may_forward: situation.may_forward && situation.verb != Verb::Watch, ..situation };
            assert_eq!((situation.first(), situation.then()), expected, "{what}");
        }
    }

    /// What was measured of one resource may be the reverse of what is usual.
    #[test]
    fn metadata_that_hardly_repeats_itself_is_not_asked_for_in_place_of_objects_that_do() {
        let meter = Meter::default();
        meter.listed(1000, (170_000, 2_000_000));
        let digest_of_all = |meter: &Meter| {
            Situation { prices: meter.prices(), gzip: true, all: 300, answer: 160, ..situation() }.first()
        };
        assert_eq!(digest_of_all(&meter), Way::Forward, "300 × 1000 / 5 bytes are assumed, and 160 × 170 known");
        meter.digested(1000, (60_000, 1_000_000));
        assert_eq!(digest_of_all(&meter), Way::Digest(Extent::Everything));
        (0..9).for_each(|_| meter.digested(1000, (200_000, 1_000_000)));
        assert_eq!(digest_of_all(&meter), Way::Forward);
    }

    #[test]
    fn a_loop_is_told_from_lone_gets_and_a_crowd_from_a_loop() {
        let lone = |gets: f64| [false, true].map(|starts| is_lone(QUESTION.times(gets), || starts));
        assert_eq!(
            [1.0, LOOP - 0.1, LOOP, CROWD - 1.0, CROWD].map(lone),
            [[true, true], [true, true], [false, true], [false, true], [false, false]]
        );
    }
}
