//! Forwarded reads that accept an old state. Their answer must not be older than what this daemon has shown or written,
//! and another apiserver behind the same address may lag. So they ask for that revision.

use crate::cache::{Floor, WatchCache};
use crate::meta::{ListOptions, Query, ResourceVersion, Verb};

use super::plan::{At, Freshness, WatchPlan};
use super::{ConsistentReads, ForwardReason, ReadRequest, Reads, plan};

/// The query with which a read is forwarded instead of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOlder {
    pub query: String,
    /// The query to forward next if the apiserver refuses the first one with one of these codes.
    pub otherwise: Option<(String, &'static [u16])>,
}

/// What a read accepts, as its options say.
struct Accepted {
    freshness: Freshness,
    /// The parameters that ask for it, and what asks for at least a revision in their place.
    drop: &'static [&'static str],
    ask: Ask,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Get,
    List,
    /// A watch of the state and then of events.
    State,
}

/// The apiserver has waited for a revision in vain.
const TOO_LARGE: &[u16] = &[504];
/// The apiserver does not support watches that begin with the state (KEP-3157).
const REFUSED: &[u16] = &[400, 422];

// === impl Reads ===

impl Reads {
    /// The query with which a read that is not served must be forwarded for this reason. `None` if its own will do.
    pub fn not_older(&self, request: &ReadRequest, verb: Verb, reason: ForwardReason, query: &str) -> Option<NotOlder> {
        if !reason.is_of_readable() || request.legacy_watch {
            return None;
        }
        let accepted = Accepted::of(&request.options, verb, request.gvr.is_events())?;
        let floor = self.floors().known(&self.factory.store_of(&request.gvr), &request.gvr.resource)?;
        let cached = || {
            let informers = self.factory.of_history(&request.gvr);
            let caches = informers.iter().map(|informer| informer.cache());
            let newest = caches.clone().map(WatchCache::newest).max().unwrap_or_default();
            (newest, caches.map(WatchCache::changed).max().unwrap_or_default())
        };
        accepted.not_older(&floor, reason, query, cached(), || self.factory.is_stalled(&request.gvr))
    }
}

// === impl Accepted ===

impl Accepted {
    /// `None` for reads of the newest state or of an exact one, and for those that the apiserver refuses.
    fn of(options: &ListOptions, verb: Verb, uncached: bool) -> Option<Self> {
        // Reads of the newest state are consistent there.
        let mode = ConsistentReads::Upstream;
        match verb {
            Verb::Get => {
                let freshness = plan::get(options, mode).ok()?;
                Some(Self { freshness, drop: &["resourceVersion"], ask: Ask::Get })
            }
            Verb::List => {
                options.validate().ok()?;
                let plan = plan::list(options, mode, uncached).ok()?;
                let At::Latest(freshness) = plan.state else { return None };
                // With `resourceVersion=0`, the apiserver's cache ignores the limit.
                let whole = plan.limit.is_none();
                let drop: &[_] = if whole {
                    &["resourceVersion", "resourceVersionMatch", "limit"]
                } else {
                    &["resourceVersion", "resourceVersionMatch"]
                };
                Some(Self { freshness, drop, ask: Ask::List })
            }
            Verb::Watch => {
                let mut options = options.clone();
                options.set_defaults();
                options.validate().ok()?;
                // A watch from now on shows no state. From a revision, it would begin with events that its client has
                // not asked for.
                let WatchPlan::State { freshness, .. } = plan::watch(&options, mode).ok()? else { return None };
                let drop = &["resourceVersion", "resourceVersionMatch", "sendInitialEvents"];
                Some(Self { freshness, drop, ask: Ask::State })
            }
            _ => None,
        }
    }

    /// See [`Reads::not_older`]. `cached`: the newest revision of a cache that is ready, and one at which its state was the
    /// same.
    fn not_older(
        &self,
        floor: &Floor,
        reason: ForwardReason,
        query: &str,
        (newest, cached): (ResourceVersion, ResourceVersion),
        is_stalled: impl FnOnce() -> bool,
    ) -> Option<NotOlder> {
        let least = match self.freshness {
            Freshness::Any => ResourceVersion::ZERO,
            Freshness::NotOlderThan(rv) => rv,
            Freshness::Consistent => return None,
        };
        if least > floor.newest().max(newest) {
            // Nothing here has shown this revision. Only an apiserver that is asked for it can say whether it exists.
            return None;
        }
        let (is_unknown, is_unreached) = (floor.has_unknown_write(), floor.is_unreached());
        // The store may have been restored at an older revision since.
        let counts = floor.is_recent() || reason == ForwardReason::NotFresh;
        // No watch may begin within a gap, so no list may be from there.
        let floor = if counts { floor.get() } else { floor.last_gap_end() };
        // What a cache has shown counts for as long as the cache is there: it learns when the store is set back.
        let rv = if self.ask == Ask::State { floor } else { floor.max(cached) };
        if rv <= least && !is_unknown {
            return None;
        }
        let newest = || self.query(query, None);
        // An apiserver whose watches do not move may have a cache that does not move either.
        if self.ask != Ask::State && (is_unknown || is_unreached || is_stalled()) {
            return Some(NotOlder { query: newest(), otherwise: None });
        }
        if rv <= least || is_unreached {
            return None;
        }
        let otherwise = match self.ask {
            Ask::Get | Ask::List => (newest(), TOO_LARGE),
            Ask::State => (query.to_owned(), REFUSED),
        };
        Some(NotOlder { query: self.query(query, Some(rv)), otherwise: Some(otherwise) })
    }

    /// The query, asking for a state that is not older than `least`, or for the newest state.
    fn query(&self, query: &str, least: Option<ResourceVersion>) -> String {
        let is_kept = |pair: &&str| {
            let pair = Query::parse(pair);
            !self.drop.iter().any(|name| pair.bytes(name).is_some())
        };
        let mut kept: Vec<String> =
            query.split('&').filter(|pair| !pair.is_empty()).filter(is_kept).map(str::to_owned).collect();
        if let Some(least) = least {
            kept.push(format!("resourceVersion={least}"));
            match self.ask {
                Ask::List => kept.push("resourceVersionMatch=NotOlderThan".to_owned()),
                Ask::State => kept.push("resourceVersionMatch=NotOlderThan&sendInitialEvents=true".to_owned()),
                Ask::Get => {}
            }
        }
        kept.join("&")
    }
}

// === impl ForwardReason ===

impl ForwardReason {
    /// Whether the read is one that informerd understands, of a resource whose revisions are those of a store.
    fn is_of_readable(self) -> bool {
        match self {
            Self::Encoding
            | Self::Excluded
            | Self::OutOfScope
            | Self::Forbidden
            | Self::Memory
            | Self::TooManyInformers
            | Self::Undecodable
            | Self::Seldom
            | Self::TableCells
            | Self::NotSynced
            | Self::NotFresh => true,
            Self::Consistent
            | Self::OutsideWindow
            | Self::Invalid
            | Self::NotReadable
            | Self::Aggregated
            | Self::Unversioned
            | Self::Unsupported
            | Self::Unauthorized => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::cache::{self, CacheConfig};
    use crate::meta::Gvr;

    fn queries(query: &str, verb: Verb) -> Option<[String; 2]> {
        let options =
            if verb == Verb::Get { ListOptions::decode_get(query) } else { ListOptions::decode(query).unwrap() };
        let accepted = Accepted::of(&options, verb, false)?;
        Some([accepted.query(query, Some(ResourceVersion(9))), accepted.query(query, None)])
    }

    #[test]
    fn a_read_asks_for_at_least_a_revision() {
        for (verb, query, least, newest) in [
            (Verb::Get, "resourceVersion=0&pretty=1", "pretty=1&resourceVersion=9", "pretty=1"),
            (Verb::Get, "resourceVersion=5", "resourceVersion=9", ""),
            (
                Verb::List,
                "labelSelector=a%3Db&resource%56ersion=0&limit=500",
                "labelSelector=a%3Db&resourceVersion=9&resourceVersionMatch=NotOlderThan",
                "labelSelector=a%3Db",
            ),
            (
                Verb::List,
                "limit=5&resourceVersion=3&resourceVersionMatch=NotOlderThan",
                "limit=5&resourceVersion=9&resourceVersionMatch=NotOlderThan",
                "limit=5",
            ),
            (Verb::List, "resourceVersion=3", "resourceVersion=9&resourceVersionMatch=NotOlderThan", ""),
            (
                Verb::Watch,
                "watch=1&resourceVersion=0&allowWatchBookmarks=true",
                "watch=1&allowWatchBookmarks=true&resourceVersion=9&resourceVersionMatch=NotOlderThan&sendInitialEvents=true",
                "watch=1&allowWatchBookmarks=true",
            ),
        ] {
            assert_eq!(queries(query, verb), Some([least.to_owned(), newest.to_owned()]), "{query}");
        }
        for (verb, query) in [
            (Verb::Get, ""),
            (Verb::List, "limit=5"),
            (Verb::List, "resourceVersion=3&resourceVersionMatch=Exact"),
            (Verb::List, "resourceVersion=3&limit=2"),
            (Verb::Watch, "watch=1"),
            (Verb::Watch, "watch=1&resourceVersion=3"),
            (Verb::Watch, "watch=1&resourceVersion=0&resourceVersionMatch=NotOlderThan&sendInitialEvents=false"),
        ] {
            assert_eq!(queries(query, verb), None, "{query}");
        }
    }

    /// How a read with `resourceVersion=0` is forwarded.
    fn forwarded(floor: &Floor, verb: Verb) -> Option<NotOlder> {
        let query = if verb == Verb::Watch { WATCH } else { "resourceVersion=0" };
        asked(floor, (verb, query), ForwardReason::Excluded, [0, 0], false)
    }

    fn asked(
        floor: &Floor,
        (verb, query): (Verb, &str),
        reason: ForwardReason,
        cached: [u64; 2],
        is_stalled: bool,
    ) -> Option<NotOlder> {
        let accepted = Accepted::of(&ListOptions::decode(query).unwrap(), verb, false).unwrap();
        accepted.not_older(floor, reason, query, cached.map(ResourceVersion).into(), || is_stalled)
    }

    const WATCH: &str = "watch=1&resourceVersion=0&allowWatchBookmarks=true";

    fn newest() -> Option<NotOlder> {
        Some(NotOlder { query: String::new(), otherwise: None })
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_shown_at_an_unknown_revision_does_not_count() {
        let floor = Floor::default();
        floor.showed_unknown();
        for verb in [Verb::Get, Verb::List, Verb::Watch] {
            assert!(forwarded(&floor, verb).is_none(), "{verb:?}");
        }
        floor.wrote_unknown();
        assert!(forwarded(&floor, Verb::List).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_at_an_unknown_revision_counts_for_five_minutes() {
        let floor = Floor::default();
        floor.wrote_unknown();
        assert_eq!((forwarded(&floor, Verb::List), forwarded(&floor, Verb::Watch)), (newest(), None));
        tokio::time::advance(Duration::from_secs(301)).await;
        assert_eq!(forwarded(&floor, Verb::List), None);
        floor.doubt();
        assert_eq!(forwarded(&floor, Verb::List), newest());
        tokio::time::advance(Duration::from_secs(11)).await;
        floor.showed_unknown();
        assert_eq!(forwarded(&floor, Verb::List), None, "a write that may have happened counts for ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_keeps_no_old_revision() {
        let floor = Floor::default();
        floor.raise(ResourceVersion(1000));
        tokio::time::sleep(Duration::from_secs(301)).await;
        floor.wrote_unknown();
        assert_eq!(forwarded(&floor, Verb::List), newest());
        assert_eq!(forwarded(&floor, Verb::Watch), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_that_may_be_of_the_future_is_asked_for_as_it_is() {
        let floor = Floor::default();
        floor.raise(ResourceVersion(5));
        floor.wrote_unknown();
        for (verb, query, cached, expected) in [
            (Verb::Get, "resourceVersion=5", 0, newest()),
            (Verb::Get, "resourceVersion=6", 0, None),
            (Verb::List, "resourceVersion=6", 5, None),
            // Its client has it from a watch of the cache, and must not read what it has deleted since.
            (Verb::List, "resourceVersion=6", 6, newest()),
        ] {
            let asked = asked(&floor, (verb, query), ForwardReason::NotFresh, [cached, 0], true);
            assert_eq!(asked, expected, "{query} {cached}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_cache_shows_is_asked_for() {
        let floor = Floor::default();
        floor.raise(ResourceVersion(3));
        tokio::time::advance(Duration::from_secs(301)).await;
        for (verb, query, wanted) in [
            (Verb::Get, "resourceVersion=0", Some("resourceVersion=9")),
            (Verb::List, "resourceVersion=8", Some("resourceVersion=9&resourceVersionMatch=NotOlderThan")),
            (Verb::List, "resourceVersion=9", None),
            (Verb::Watch, WATCH, None),
        ] {
            let found = asked(&floor, (verb, query), ForwardReason::Encoding, [12, 9], false);
            assert_eq!(found.as_ref().map(|found| found.query.as_str()), wanted, "{verb:?} {query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_only_shown_keeps_no_write() {
        let floor = Floor::default();
        floor.wrote_unknown();
        floor.cover(1, ResourceVersion(1000));
        assert!(forwarded(&floor, Verb::List).is_some_and(|asked| asked.query.contains("resourceVersion=1000")));
        for _ in 0..6 {
            floor.showed_unknown();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(forwarded(&floor, Verb::List), None, "the store may have been restored meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_that_the_apiserver_did_not_reach_is_not_asked_for_again_soon() {
        let floor = Floor::default();
        floor.raise(ResourceVersion(9));
        let asks = |verb| forwarded(&floor, verb).is_some_and(|asked| asked.query.contains("resourceVersion=9"));
        assert!(asks(Verb::List) && asks(Verb::Watch));
        floor.unreached();
        assert_eq!((forwarded(&floor, Verb::List), forwarded(&floor, Verb::Watch)), (newest(), None));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(asks(Verb::List) && asks(Verb::Watch));
    }

    /// A watch from there would be refused.
    #[tokio::test(start_paused = true)]
    async fn no_list_is_from_within_a_gap_however_long_ago_it_was() {
        let floor = Arc::new(Floor::default());
        let config = CacheConfig { floor: Arc::clone(&floor), ..CacheConfig::new(Gvr::new("", "v1", "configmaps")) };
        let (mut writer, _cache) = cache::new(config);
        for rv in [10, 20] {
            writer.replace(Vec::new(), ResourceVersion(rv)).await.unwrap();
        }
        floor.raise(ResourceVersion(30));
        let asks = |verb, rv: u64| {
            let asked =
                forwarded(&floor, verb).is_some_and(|asked| asked.query.contains(&format!("resourceVersion={rv}")));
            assert!(asked, "{verb:?} {rv}");
        };
        let verbs = [Verb::List, Verb::Watch];
        verbs.iter().for_each(|verb| asks(*verb, 30));
        tokio::time::advance(Duration::from_secs(301)).await;
        verbs.iter().for_each(|verb| asks(*verb, 20));
        // A list of the store itself has shown that it was set back.
        floor.rewound(floor.get(), ResourceVersion(15));
        verbs.iter().for_each(|verb| asks(*verb, 15));
        floor.rewound(floor.get(), ResourceVersion(5));
        assert_eq!(verbs.map(|verb| forwarded(&floor, verb)), [None, None]);
    }
}
