//! What a cache is saved from: a state, and every event that followed it.

use std::sync::Arc;

use super::shared::SharedCache;
use super::store::Snapshot;
use super::watch_cache::WatchCache;
use crate::meta::{ResourceVersion, WatchCacheEvent};

/// A position in the events of a cache.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<SharedCache>,
    epoch: u64,
    position: u64,
}

/// Why no events follow the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderEnd {
    /// The cache took a whole state, or gave its state up: what was recorded is no longer true, or no longer of use.
    Replaced,
    /// Events have left the window before they were read.
    Behind,
    /// The cache has stopped for good. What was recorded is true up to there.
    Stopped,
}

/// Events that follow each other.
#[derive(Debug)]
pub struct Recorded {
    pub events: Vec<Arc<WatchCacheEvent>>,
    /// The revision up to which the cache is complete, unless there are more events, or more deletions of the last revision
    /// may follow.
    pub rv: Option<ResourceVersion>,
}

// === impl WatchCache ===

impl WatchCache {
    /// Begins at the oldest state of the window, so that what follows it contains the whole window. `None` unless
    /// ready, or if more deletions of that state's revision may follow.
    pub fn record(&self) -> Option<(Recorder, Snapshot)> {
        let shared = self.shared();
        let (mut rebuild, recorder, floor) = {
            let state = shared.state.lock();
            let current = state.current.as_ref()?;
            let floor = Some(state.history.floor()).filter(|floor| shared.certain(*floor) == *floor)?;
            let (epoch, position) = (state.history.epoch(), state.history.position_after(floor));
            let recorder = Recorder { shared: Arc::clone(&shared), epoch, position };
            (state.history.rebuild(floor, current.store()), recorder, floor)
        };
        Some((recorder, Snapshot::new(floor, rebuild.run())))
    }
}

// === impl Recorder ===

impl Recorder {
    /// The next events, `most` at most.
    ///
    /// # Errors
    /// They do not follow the earlier ones.
    pub fn read(&mut self, most: usize) -> Result<Recorded, RecorderEnd> {
        let state = self.shared.state.lock();
        let current = state.current.as_ref().filter(|_| state.history.epoch() == self.epoch);
        let stopped = self.shared.ready.is_stopped();
        let current = current.ok_or(if stopped { RecorderEnd::Stopped } else { RecorderEnd::Replaced })?;
        let mut events = Vec::new();
        let read = state.history.read(self.position, state.history.head(), most, &mut events);
        read.map_err(|_passed| RecorderEnd::Behind)?;
        self.position += events.len() as u64;
        let rv = current.rv();
        let has_all = self.position == state.history.head() && self.shared.certain(rv) == rv;
        Ok(Recorded { events, rv: has_all.then_some(rv) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::{cache, dispatch, plain};
    use crate::meta::EventType;

    /// A file that ends there is undone up to them.
    #[tokio::test]
    async fn deletions_that_may_not_be_all_are_no_progress() {
        for next in [11, 12] {
            let (mut writer, cache, _) = cache(|_| {});
            writer.replace(vec![plain("a", "x", 5).into()], ResourceVersion(10)).await.unwrap();
            let mut recorder = cache.record().unwrap().0;
            writer.delete_together(vec![plain("a", "x", 11)], false).await.unwrap();
            let recorded = recorder.read(2).unwrap();
            assert_eq!((recorded.events.len(), recorded.rv), (1, None));
            writer.progress(ResourceVersion(next));
            assert_eq!(recorder.read(2).unwrap().rv, Some(ResourceVersion(next)));
        }
    }

    #[tokio::test]
    async fn it_is_told_why_no_events_follow() {
        let (mut writer, cache, mut dispatcher) = cache(|config| config.window_max_events = 10);
        assert!(cache.record().is_none() && !cache.is_stopped());
        writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
        let begin = || cache.record().unwrap().0;
        let mut behind = begin();
        for rv in 11..=30 {
            writer.apply(EventType::Modified, plain("a", "x", rv)).await.unwrap();
            dispatch(&mut dispatcher);
            if rv == 13 {
                let read = [2, 2].map(|most| behind.read(most).unwrap());
                let read = read.map(|read| (read.events.iter().map(|event| event.rv.0).collect::<Vec<_>>(), read.rv));
                assert_eq!(read, [(vec![11, 12], None), (vec![13], Some(ResourceVersion(13)))]);
            }
        }
        assert_eq!(behind.read(1).unwrap_err(), RecorderEnd::Behind);
        let mut replaced = begin();
        assert_eq!(replaced.read(100).unwrap().events.len(), 10);
        writer.replace(Vec::new(), ResourceVersion(40)).await.unwrap();
        assert_eq!(replaced.read(1).unwrap_err(), RecorderEnd::Replaced);
        let mut stopped = begin();
        drop(writer);
        assert!(cache.is_stopped());
        assert_eq!(stopped.read(1).unwrap_err(), RecorderEnd::Stopped);
    }
}
