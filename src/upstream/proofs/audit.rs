//! Checks whether a cache matches the store that the apiserver has now. A store that was restored from a backup has a
//! different history.
//!
//! Revisions count the changes of a store, so a different history contradicts the cache in one of three ways. The store
//! is at a revision below ours. Or it holds an object at a revision up to which we are complete, and we do not hold
//! that object at that revision. Or it does not hold an object that we hold, at a revision up to which we have since
//! become complete, and no event has reported the deletion.
//!
//! For a large collection, only its revision is compared.
//!
//! If the store of an apiserver was set back while it runs, the apiserver keeps answering lists and watches from its
//! own cache, which contradicts nothing. Only a get reads the store. So one object is also read with a get: the newest
//! one of the previous comparison, because its last change is the most likely to be undone.

use super::digest::Digest;
use super::progress::ProgressProbe;
use super::questions::QUESTION_TIMEOUT;
use super::single_flight::{Asked, Pace};
use crate::apiserver::UpstreamError;
use crate::apiserver::metadata::{ACCEPT_OBJECT, DEPTH_OF_METADATA, Item};
use crate::apiserver::metrics::RequestVerb;
use crate::apiserver::reader::get_outline;
use crate::cache::{Snapshot, WatchCache};
use crate::meta::{ObjectKey, ResourceVersion, Scope};

/// What the next comparison has to check.
#[derive(Debug, Default)]
pub struct Suspects {
    at: ResourceVersion,
    /// Objects that we hold and the store did not. Their deletion may still be on its way.
    gone: Vec<(ObjectKey, ResourceVersion)>,
    /// The newest object.
    newest: Option<(ObjectKey, ResourceVersion)>,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Agrees,
    /// The apiserver shows a different history than ours.
    Contradicts(String),
    /// The apiserver's own cache has a different history than its store.
    Detached {
        key: ObjectKey,
        why: String,
    },
}

/// For collections with more objects, only the revision is compared: reading their metadata would cost the apiserver
/// too much.
const MOST: usize = 500;
/// Maximum number of objects searched for the newest one.
const MOST_LOOKS: usize = 20_000;
/// The most bytes that are kept of one object's metadata, which may have any size.
const MOST_BYTES: usize = 64 << 10;
/// Maximum number of suspects to remember.
const MOST_SUSPECTS: usize = 64;

// === impl ProgressProbe ===

impl ProgressProbe {
    /// Compares the cache with the store.
    ///
    /// # Errors
    /// The apiserver does not say what the store holds.
    pub async fn audit(&self, cache: &WatchCache, suspects: &mut Suspects) -> Result<Finding, UpstreamError> {
        // The revision is read first: the snapshot then contains everything up to it.
        let complete = cache.resource_version();
        let (Some(snapshot), newest) = (cache.snapshot(), cache.newest()) else { return Ok(Finding::Agrees) };
        let now = Asked::now();
        let (digest, rv) = if snapshot.len() > MOST {
            (None, self.revision(now, newest, Pace::AT_ONCE).await?.rv)
        } else {
            let digest = self.whole(cache, now).await?;
            (Some(digest.clone()), digest.rv)
        };
        if rv < newest {
            let why = format!("the apiserver is at resource version {rv}, behind ours, {newest}");
            return Ok(Finding::Contradicts(why));
        }
        if let Some(why) = digest.and_then(|digest| suspects.compare(&digest, &snapshot, complete)) {
            return Ok(Finding::Contradicts(why));
        }
        if let Some(detached) = self.undone(&snapshot, suspects).await? {
            return Ok(detached);
        }
        let all = Scope::all();
        let newest = snapshot.range(&all, None).take(MOST_LOOKS).max_by_key(|object| object.rv);
        suspects.newest = newest.map(|object| (object.key.clone(), object.rv));
        Ok(Finding::Agrees)
    }

    /// Whether the store no longer holds an object that we hold and the apiserver lists.
    async fn undone(&self, ours: &Snapshot, suspects: &Suspects) -> Result<Option<Finding>, UpstreamError> {
        let Some((key, rv)) = &suspects.newest else { return Ok(None) };
        // Objects that expire may be gone for a while before a deletion event reports it.
        if self.source.resource.gvr.is_events() || ours.get(key).is_none_or(|held| held.rv != *rv) {
            return Ok(None);
        }
        let path = self.source.object_path(key);
        let options = self.source.options(RequestVerb::Get).header_timeout(QUESTION_TIMEOUT);
        let got =
            get_outline::<Item>(&self.upstream, &path, ACCEPT_OBJECT, &options, (DEPTH_OF_METADATA, MOST_BYTES)).await;
        let there = match got {
            Ok(item) => item.metadata.rv()?,
            Err(error) if error.code() == Some(404) && error.is_refusal() => ResourceVersion::ZERO,
            Err(error) => return Err(error),
        };
        let detached = || {
            let why = match there {
                ResourceVersion::ZERO => format!("{key} is listed at resource version {rv}, and not there"),
                there => format!("{key} is listed at resource version {rv}, and is at {there}"),
            };
            Finding::Detached { key: key.clone(), why }
        };
        Ok((there < *rv).then(detached))
    }
}

// === impl Suspects ===

impl Suspects {
    fn compare(&mut self, digest: &Digest, ours: &Snapshot, complete: ResourceVersion) -> Option<String> {
        let theirs = digest.objects()?;
        for (key, rv) in theirs.iter().filter(|(_, rv)| *rv <= complete) {
            match ours.get(key) {
                Some(held) if held.rv == *rv => {}
                Some(held) => return Some(format!("{key} is at resource version {rv}, and at {} here", held.rv)),
                None => return Some(format!("{key} is there since resource version {rv}, and not here")),
            }
        }
        let is_held = |key: &ObjectKey, rv: ResourceVersion| ours.get(key).is_some_and(|held| held.rv == rv);
        if complete >= self.at
            && let Some((key, rv)) = self.gone.iter().find(|(key, rv)| is_held(key, *rv))
        {
            return Some(format!("{key}, of resource version {rv}, is here and not there"));
        }
        let all = Scope::all();
        let is_missing = |key: &ObjectKey| theirs.binary_search_by(|(theirs, _)| theirs.cmp(key)).is_err();
        let missing = ours.range(&all, None).filter(|held| is_missing(&held.key));
        self.gone = missing.take(MOST_SUSPECTS).map(|held| (held.key.clone(), held.rv)).collect();
        self.at = digest.rv;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::apiserver::testing::bare;
    use crate::cache::{self, CacheConfig, Order, Writer};
    use crate::meta::{EventType, Gvr};

    /// `x@5` and `y@7` at 10.
    async fn held() -> (Writer, WatchCache) {
        let (mut writer, cache) = cache::new(CacheConfig::new(Gvr::new("", "v1", "configmaps")));
        let objects = vec![Arc::new(bare("a", "x", 5)), Arc::new(bare("a", "y", 7))];
        writer.replace(objects, ResourceVersion(10)).await.unwrap();
        (writer, cache)
    }

    fn compare(suspects: &mut Suspects, cache: &WatchCache, rv: u64, theirs: &[(&str, u64)]) -> Option<String> {
        let theirs = theirs.iter().map(|(name, rv)| (ObjectKey::new("a", name), ResourceVersion(*rv)));
        let room = Digest::room(&cache.config().budget, 2).unwrap();
        let digest = Digest::new(ResourceVersion(rv), Order::now(), Some(theirs.collect()), room);
        suspects.compare(&digest, &cache.snapshot().unwrap(), cache.resource_version())
    }

    #[tokio::test]
    async fn another_past_shows_though_the_store_has_overtaken_us() {
        let (_writer, cache) = held().await;
        for (theirs, why) in [
            // What may be on its way contradicts nothing.
            (&[("x", 5), ("y", 7)][..], None),
            (&[("x", 5), ("y", 12)], None),
            (&[("x", 5), ("y", 7), ("z", 11)], None),
            (&[("x", 5)], None),
            (&[], None),
            (&[("x", 4), ("y", 7)], Some("a/x is at resource version 4, and at 5 here")),
            (&[("x", 9), ("y", 7)], Some("a/x is at resource version 9, and at 5 here")),
            (&[("x", 5), ("y", 7), ("z", 10)], Some("a/z is there since resource version 10, and not here")),
        ] {
            assert_eq!(compare(&mut Suspects::default(), &cache, 20, theirs).as_deref(), why, "{theirs:?}");
        }
    }

    #[tokio::test]
    async fn what_is_gone_without_an_event_shows_once_we_are_past_it() {
        let (mut writer, cache) = held().await;
        let mut suspects = Suspects::default();
        assert_eq!(compare(&mut suspects, &cache, 20, &[("x", 5)]), None);
        assert_eq!(compare(&mut suspects, &cache, 21, &[("x", 5)]), None, "its deletion may be on its way");
        writer.progress(ResourceVersion(25));
        let why = compare(&mut suspects, &cache, 26, &[("x", 5)]);
        assert_eq!(why.as_deref(), Some("a/y, of resource version 7, is here and not there"));
        assert!(compare(&mut suspects, &cache, 27, &[("x", 5)]).is_some(), "and is not forgotten");

        let (mut writer, cache) = held().await;
        let mut suspects = Suspects::default();
        assert_eq!(compare(&mut suspects, &cache, 20, &[("x", 5)]), None);
        writer.apply(EventType::Deleted, bare("a", "y", 19)).await.unwrap();
        writer.progress(ResourceVersion(25));
        assert_eq!(compare(&mut suspects, &cache, 26, &[("x", 5)]), None);

        // More are not remembered.
        for (last, suspected) in [(MOST_SUSPECTS, MOST_SUSPECTS), (MOST_SUSPECTS + 1, MOST_SUSPECTS)] {
            let objects = (1..=last).map(|number| Arc::new(bare("a", &format!("n{number}"), 9))).collect();
            writer.replace(objects, ResourceVersion(30)).await.unwrap();
            let mut suspects = Suspects::default();
            assert_eq!(compare(&mut suspects, &cache, 30, &[]), None);
            assert_eq!(suspects.gone.len(), suspected);
            writer.not_ready("again");
        }
    }
}
