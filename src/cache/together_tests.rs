//! What watchers claim to have delivered, and where they end, while only a part of what belongs together was delivered.

use std::time::Duration;

use tokio::time::advance;

use super::dispatcher::Dispatcher;
use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion};

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion(n)
}

/// A cache with five objects listed at 100, of which four were deleted at 110.
async fn expired() -> (Writer, WatchCache, Dispatcher) {
    let (mut writer, cache, dispatcher) = cache(|_| {});
    writer.replace(("vwxyz").chars().map(|name| Arc::new(at(name, 10))).collect(), rv(100)).await.unwrap();
    (writer, cache, dispatcher)
}

fn at(name: char, rv: u64) -> Object {
    plain("a", &name.to_string(), rv)
}

async fn expire(writer: &mut Writer) {
    writer.delete_together("vwxy".chars().map(|name| at(name, 110)).collect()).await.unwrap();
}

fn after(cache: &WatchCache, from: u64) -> CacheWatcher {
    cache.watch(spec(WatchStart::After(rv(from)))).unwrap()
}

/// The next item, and what the watcher then says that it has delivered.
fn next(watcher: &mut CacheWatcher) -> (String, u64) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let item = match watcher.poll_next(&mut context) {
        std::task::Poll::Ready(Some(event)) => short(&event),
        std::task::Poll::Ready(None) => format!("END {}", watcher.end_reason().unwrap().as_str()),
        std::task::Poll::Pending => String::new(),
    };
    (item, watcher.complete().0)
}

fn is(item: &str, complete: u64) -> (String, u64) {
    (item.to_owned(), complete)
}

/// A client without bookmarks continues after the last event.
#[tokio::test(start_paused = true)]
async fn a_watch_does_not_end_by_itself_between_deletions_of_one_revision() {
    for drained in [false, true] {
        let (mut writer, cache, mut dispatcher) = expired().await;
        let spec = || WatchSpec { bookmarks: false, ..spec(WatchStart::After(rv(100))) };
        let mut live = cache.watch(spec()).unwrap();
        expire(&mut writer).await;
        let (mut replaying, mut late) = (cache.watch(spec()).unwrap(), cache.watch(spec()).unwrap());
        dispatcher.step(2);
        for watcher in [&mut live, &mut replaying] {
            assert_eq!(next(watcher), is("DELETED a/v@110", 109));
        }
        if drained {
            cache.end_watchers(false);
        } else {
            advance(Duration::from_secs(1801)).await;
            assert_eq!(take(&mut late), ["END deadline"], "it has delivered nothing");
        }
        assert_eq!(take(&mut live), ["DELETED a/w@110"]);
        advance(Duration::from_secs(1)).await;
        assert!(take(&mut live).is_empty());
        let end = if drained { "END drained" } else { "END deadline" };
        assert_eq!(take(&mut replaying), ["DELETED a/w@110", "DELETED a/x@110", "DELETED a/y@110", end]);
        dispatch(&mut dispatcher);
        assert_eq!(take(&mut live)[..2], ["DELETED a/x@110", "DELETED a/y@110"]);
        advance(Duration::from_secs(1)).await;
        assert_eq!(take(&mut live), [end]);
        assert_eq!((live.cut_short_at(), replaying.cut_short_at()), (None, None));
    }
}

/// Its deadline is far away.
#[tokio::test(start_paused = true)]
async fn who_is_asked_to_end_between_deletions_of_one_revision_gets_the_rest_and_a_bookmark() {
    let (mut writer, cache, mut dispatcher) = expired().await;
    let mut watcher = after(&cache, 100);
    expire(&mut writer).await;
    dispatcher.step(2);
    watcher.end(true);
    assert_eq!(take(&mut watcher), ["DELETED a/v@110", "DELETED a/w@110"]);
    writer.apply(EventType::Modified, at('z', 111)).await.unwrap();
    dispatch(&mut dispatcher);
    advance(Duration::from_secs(1)).await;
    let rest = ["DELETED a/x@110", "DELETED a/y@110", "MODIFIED a/z@111", "BOOKMARK 111", "END drained"];
    assert_eq!(take(&mut watcher), rest);
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_short_is_known() {
    let (mut writer, cache, mut dispatcher) = expired().await;
    let (mut between, mut whole) = (after(&cache, 100), after(&cache, 100));
    expire(&mut writer).await;
    dispatch(&mut dispatcher);
    assert_eq!(next(&mut between), is("DELETED a/v@110", 109));
    assert_eq!(take(&mut whole).len(), 4);
    assert_eq!(between.cut_short_at(), None, "it has not ended");
    writer.not_ready("gone");
    assert_eq!(
        (take(&mut between), take(&mut whole)),
        (vec!["END not_ready".to_owned()], vec!["END not_ready".to_owned()])
    );
    assert_eq!((between.cut_short_at(), whole.cut_short_at()), (Some(rv(110)), None));
}

#[tokio::test(start_paused = true)]
async fn an_initial_list_that_is_cut_short_claims_nothing() {
    let (mut writer, cache, _) = expired().await;
    let [mut late, mut marked, mut gone] = [0; 3].map(|_| cache.watch(spec(WatchStart::State)).unwrap());
    assert_eq!(next(&mut late), is("ADDED a/v@10", 0));
    // All objects, but not the end of the list.
    (0..5).for_each(|_| drop(next(&mut marked)));
    advance(Duration::from_secs(1801)).await;
    assert_eq!((next(&mut late), next(&mut marked)), (is("END deadline", 0), is("END deadline", 0)));
    writer.not_ready("gone");
    assert_eq!(next(&mut gone).1, 0);
}
