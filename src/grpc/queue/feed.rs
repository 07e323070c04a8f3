//! Feeds a group's queue from the watch of one selection, for as long as the group exists.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::call::Error;
use super::group::Group;
use crate::lifecycle::backoff::Backoff;
use crate::reads::plan::Freshness;
use crate::reads::{ForwardReason, OpenWatch, Reads, Refusal, Selection, WatchFrom, WatchTerms, WatcherEvent};
use crate::workqueue::Full;

/// After this time a watch is restarted with a new snapshot. Unchanged objects cost nothing.
const LIFETIME: Duration = Duration::from_secs(3600);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The number of events to process before other tasks may run.
const BURST: usize = 256;

/// Opens a watch that starts with the current state.
pub(super) async fn open(reads: &Reads, selection: &Selection) -> Result<OpenWatch, Refusal> {
    let terms = WatchTerms {
        from: WatchFrom::State(Freshness::Any),
        max_staleness: None,
        bookmark_interval: Duration::from_secs(60),
        deadline: Instant::now() + LIFETIME,
    };
    reads.open_watch(selection, terms).await
}

/// Runs until the group ends.
pub(super) async fn run(group: Arc<Group>, place: usize, reads: Reads, first: OpenWatch) {
    let mut end = group.end.subscribe();
    let error = tokio::select! {
        _ = end.wait_for(Option::is_some) => return,
        full = group.memory.runs_short() => Error::overflow(full),
        error = feed(&group, place, &reads, first) => error,
    };
    tracing::warn!(group = group.name, ?error, "queue given up");
    group.finish(error);
}

async fn feed(group: &Group, place: usize, reads: &Reads, first: OpenWatch) -> Error {
    let mut next = Some(first);
    let mut backoff = Backoff::between(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        let opened = match next.take() {
            Some(first) => Ok(first),
            None => open(reads, &group.feeds[place].wanted.selection).await,
        };
        match opened {
            Ok(watch) => {
                let began = Instant::now();
                if let Err(error) = follow(group, place, watch).await {
                    return error;
                }
                if began.elapsed() > LONGEST_PAUSE {
                    backoff.reset();
                }
            }
            // Even the known objects must not be shown any more, because another server may have them by now.
            Err(refusal @ Refusal::NotServed(ForwardReason::Aggregated)) => {
                return Error::refusal(&group.feeds[place].wanted.selection.gvr, refusal);
            }
            // The apiserver may be unreachable, or the definition may be deleted and created again. Known objects
            // stay queued.
            Err(refusal) => {
                tracing::debug!(group = group.name, ?refusal, "watch not opened, trying again");
                // While their cache has them, they cost nothing here.
                let is_ready = group.feeds[place].source.lock().is_ready();
                let counted = match is_ready {
                    true => Ok(()),
                    false => group.change(place, |level, _| {
                        level.count_objects();
                        Ok(())
                    }),
                };
                if let Err(full) = counted {
                    return Error::overflow(full);
                }
            }
        }
        tokio::time::sleep(backoff.next(None)).await;
    }
}

/// Runs one watch, from its snapshot to its end.
async fn follow(group: &Group, place: usize, mut watch: OpenWatch) -> Result<(), Error> {
    let proof = watch.proof.take();
    let over = async {
        match proof {
            Some(proof) => proof.over().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        // Why is told when the watch is opened again.
        _ = over => Ok(()),
        followed = events(group, place, watch) => followed.map_err(Error::overflow),
    }
}

async fn events(group: &Group, place: usize, mut watch: OpenWatch) -> Result<(), Full> {
    *group.feeds[place].source.lock() = watch.source.clone();
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
