//! Tests on a paused clock: what is asked after forwarded answers, and when an informer ends. Nothing answers a second watch.

use super::*;
use crate::apiserver::discovery::{ApiResource, Discovery};
use crate::cache::{WatchSpec, WatchStart};
use crate::informer::factory::testing::{nowhere, scripted};
use crate::informer::{Factory, Sought, Use};
use crate::upstream::script::Script;

const TIMEOUT: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn what_was_forwarded_is_proved_by_a_watch_for_those_who_read() {
    let script = Script::default();
    let (informer, mut writer) = scripted(&script, None, None).await;
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let is_proved = async |at: u64| {
        let begun = Instant::now();
        informer.advance(ResourceVersion(at)).await;
        begun.elapsed() >= OVERDUE
    };
    assert!(!is_proved(90).await, "nobody reads it");
    informer.serves();
    assert!(is_proved(91).await);
    assert!(!is_proved(92).await, "nobody has read it since then");
    informer.outlasts();
    assert!(is_proved(93).await && is_proved(94).await, "it may be read at any time");
    // What was shown before the restore is no longer proved.
    writer.not_ready("the store was restored");
    writer.replace(Vec::new(), ResourceVersion(20)).await.unwrap();
    assert!(!is_proved(20).await, "it is at the revision that was shown");
    assert!(script.asked().is_empty(), "no digest is asked for");
}

#[tokio::test(start_paused = true)]
async fn an_informer_ends_soon_after_its_only_reader_and_not_during_its_first_list() {
    let (informer, mut writer) = scripted(&Script::default(), None, None).await;
    let later = async || tokio::time::advance(Duration::from_secs(61)).await;
    later().await;
    assert!(!informer.is_over(TIMEOUT), "its first state is on its way");
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    assert!(informer.is_over(TIMEOUT));
    let spec = WatchSpec {
        predicate: Predicate::everything(),
        start: WatchStart::State,
        bookmarks: false,
        initial_end: false,
        deadline: Instant::now() + TIMEOUT,
    };
    let watcher = informer.cache.watch(spec).unwrap();
    later().await;
    assert!(!informer.is_over(TIMEOUT), "somebody follows");
    drop(watcher);
    later().await;
    assert!(!informer.is_over(TIMEOUT), "the watch may have ended just now");
    later().await;
    assert!(informer.is_over(TIMEOUT));
    informer.outlasts();
    assert!(!informer.is_over(TIMEOUT), "its state is to be served while the apiserver is away");
    tokio::time::advance(TIMEOUT).await;
    assert!(informer.is_over(TIMEOUT));
}

async fn factory() -> Factory {
    let upstream = nowhere().await;
    let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
    Factory::simple(TIMEOUT, upstream, discovery)
}

/// As if it had asked for ten megabytes since now.
fn owes_much(informer: &Informer) {
    informer.debt.lock().settle(Some((-1e7, informer.book.earned(), 0)));
}

#[tokio::test(start_paused = true)]
async fn an_informer_lives_by_what_its_own_readers_save() {
    let (informer, mut writer) = scripted(&Script::default(), None, None).await;
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let book = Arc::<Book>::default();
    let one = Arc::into_inner(informer).unwrap().counting(book.of_informer(), Arc::default());
    let other = book.of_informer();
    tokio::time::advance(Duration::from_secs(1)).await;
    (0..3).for_each(|_| one.serves());
    for (earns, is_over) in [(&other, true), (&one.book, false)] {
        owes_much(&one);
        one.serves();
        earns.sent(100 << 20);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(one.is_over(TIMEOUT), is_over);
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_in_debt_is_remembered() {
    let factory = factory().await;
    let mut writer = factory.put(Resource::simple("", "configmaps", "ConfigMap"));
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let informer = factory.informers().remove(0);
    owes_much(&informer);
    tokio::time::advance(Duration::from_secs(1)).await;
    factory.stop_idle();
    assert!(factory.informers().is_empty());
    assert_eq!(factory.books().accounts.lock().of(&informer.key, Instant::now()).1, 1.0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_watch_and_is_not_forwarded_keeps_its_informer() {
    let (factory, resource) = (factory().await, Resource::simple("", "configmaps", "ConfigMap"));
    let mut writer = factory.put(resource.clone());
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let informer = factory.informers().remove(0);
    let (resource, predicate) = (Arc::new(resource), Predicate::everything());
    let is_over = async || {
        tokio::time::advance(Duration::from_secs(1)).await;
        informer.is_over(TIMEOUT)
    };
    for must in [false, true] {
        owes_much(&informer);
        let read = Use { watch: true, must, ..Use::default() };
        let sought = Sought { resource: &resource, predicate: &predicate, encoding: Encoding::Json, read };
        factory.covering(sought).unwrap();
        assert_eq!(is_over().await, !must);
    }
    // For any watch from before the window.
    for (rv, keeps) in [(10, false), (5, true)] {
        owes_much(&informer);
        informer.reach_back(ResourceVersion(rv), Duration::ZERO).await;
        assert_eq!(is_over().await, !keeps);
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_not_held_for_nobody_beside_their_tables() {
    let (factory, resource) = (factory().await, Resource::simple("", "configmaps", "ConfigMap"));
    let (mut json, mut tables) = (factory.put(resource.clone()), factory.put_tables(resource));
    json.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    for informer in factory.informers() {
        (0..3).for_each(|_| informer.serves());
    }
    let later = async || {
        tokio::time::advance(Duration::from_secs(61)).await;
        factory.stop_idle();
        factory.informers().iter().map(|informer| informer.key.encoding).collect::<Vec<_>>()
    };
    assert_eq!(later().await.len(), 2, "the tables are on their way");
    tables.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    assert_eq!(later().await, [Encoding::Table]);
}

/// Its clients come to others as soon as their watches end.
#[tokio::test]
async fn what_a_cache_lacks_is_known_before_its_watches_end() {
    let factory = factory().await;
    let mut writer = factory.put(Resource::simple("", "configmaps", "ConfigMap"));
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    writer.progress(ResourceVersion(12));
    writer.lacks_after(ResourceVersion(10));
    let informer = factory.informers().remove(0);
    factory.remove(&informer);
    let inside = [10, 11, 12].map(|rv| informer.cache().is_inside_gap(ResourceVersion(rv)));
    assert_eq!(inside, [false, true, true]);
}
