//! Feeds a group's queue from the watch of one selection, as long as the group lives.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::status::Error;
use super::group::Group;
use crate::lifecycle::backoff::Backoff;
use crate::reads::plan::Freshness;
use crate::reads::{OpenWatch, Reads, Refusal, Selection, WatchFrom, WatchTerms, WatcherEvent};
use crate::workqueue::Full;

/// A watch is begun anew after this long, with the state: what is the same costs nothing.
const LIFETIME: Duration = Duration::from_secs(3600);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Events between two looks at other tasks.
const BURST: usize = 256;

/// A watch that begins with the state.
pub(super) async fn open(reads: &Reads, selection: &Selection) -> Result<OpenWatch, Refusal> {
    let terms = WatchTerms {
        from: WatchFrom::State(Freshness::Any),
        max_staleness: None,
        bookmark_interval: Duration::from_secs(60),
        deadline: Instant::now() + LIFETIME,
    };
    reads.open_watch(selection, terms).await
}

/// Runs until the group is over.
pub(super) async fn run(group: Arc<Group>, place: usize, reads: Reads, first: OpenWatch) {
    let mut end = group.end.subscribe();
    tokio::select! {
        _ = end.wait_for(Option::is_some) => {}
        full = feed(&group, place, &reads, first) => {
            tracing::warn!(group = group.name, %full, "queue given up");
            group.finish(Error::overflow(full));
        }
    }
}

async fn feed(group: &Group, place: usize, reads: &Reads, first: OpenWatch) -> Full {
    let mut next = Some(first);
    let mut backoff = Backoff::between(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        let opened = match next.take() {
            Some(first) => Ok(first),
            None => open(reads, &group.feeds[place].selection).await,
        };
        match opened {
            Ok(watch) => {
                let began = Instant::now();
                if let Err(full) = follow(group, place, watch).await {
                    return full;
                }
                if began.elapsed() > LONGEST_PAUSE {
                    backoff.reset();
                }
            }
            // The apiserver may be away, or the definition be gone and come back: what was known stays queued.
            Err(refusal) => tracing::debug!(group = group.name, ?refusal, "watch not opened, trying again"),
        }
        tokio::time::sleep(backoff.next(None)).await;
    }
}

/// One watch, from its state to its end.
async fn follow(group: &Group, place: usize, mut watch: OpenWatch) -> Result<(), Full> {
    group.set_source(place, watch.source.clone());
    group.change(place, |level, _| {
        level.begin();
        Ok(())
    })?;
    for turn in 1_usize.. {
        match watch.watcher.next().await {
            Some(WatcherEvent::Event { kind, object, rv }) => group.change(place, |level, queue| {
                let key = object.key.clone();
                if let Some(why) = level.apply(kind, object, rv)? {
                    queue(&key, why);
                }
                Ok(())
            })?,
            Some(WatcherEvent::Bookmark { initial_end: true, .. }) => {
                group.change(place, |level, queue| {
                    level.finish()?.iter().for_each(|key| queue(key, crate::workqueue::Why::DELETED));
                    Ok(())
                })?;
                group.note_synced();
            }
            Some(WatcherEvent::Bookmark { .. }) => {}
            Some(WatcherEvent::Error(_)) | None => break,
        }
        if turn.is_multiple_of(BURST) {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
