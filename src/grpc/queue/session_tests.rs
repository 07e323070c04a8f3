//! The session of one worker, in a group with the objects of a cache that the test feeds.

use std::sync::Arc;

use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::super::super::call::access;
use super::super::super::messages::convert;
use super::super::super::testing::{caller, objects_of, selection};
use super::super::request::{Join, Wanted};
use super::super::{Groups, QueueConfig};
use super::*;
use crate::cache::Writer;
use crate::http::testing::{FIRST, item, objects, packed, parse};
use crate::lifecycle::drain::DrainWatch;
use crate::memory::{Level, Pressure};
use crate::meta::{EventType, Object, ResourceVersion, Verb};
use crate::workqueue::Why;

const OBJECTS: usize = 200;
/// The size of an object that is large, in bytes.
const SIZE: usize = 100_000;
const MINUTE: Duration = Duration::from_secs(60);

/// A worker of a group that selects all of these objects.
async fn joined(list: Vec<Arc<Object>>, ledger: &Ledger) -> (Session, Writer) {
    let (objects, writer) = objects_of(list).await;
    let sent = selection("configmaps", vec![]);
    let (mut selection, rendering, held) = convert::selection(Some(&sent), ledger).unwrap();
    let grants = access::authorize(&caller(), Verb::Watch, &mut selection).await.unwrap();
    let wanted = vec![Wanted::new(&sent, selection, rendering, held)];
    let join = Join { group: "g".into(), owner: String::new(), wanted, capacity: 10_000 };
    let config = QueueConfig { linger: MINUTE, max_groups: 2, max_deletions: 1000 };
    let groups = Groups::new(config, objects.reads.clone(), DrainWatch::never());
    let session = Session {
        member: groups.join(join, ledger).await.unwrap(),
        right: grants.open(),
        shown: HashMap::new(),
        retiring: Retiring(DrainWatch::never()),
        ledger: ledger.clone(),
        intake: None,
        _place: ledger.lasting(PLACE).unwrap(),
    };
    settled().await;
    (session, writer)
}

/// Waits until nothing changes any more. Time stands still while a task has something to do.
async fn settled() {
    sleep(Duration::from_millis(10)).await;
}

/// Deletes the large objects with these numbers, one after another.
async fn delete(writer: &mut Writer, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let rv = FIRST + 1 + number;
        let item = item(number, SIZE).replace(&format!("\"{}\"}}", number + 1), &format!("\"{rv}\"}}"));
        writer.apply(EventType::Deleted, Arc::into_inner(parse(&item)).unwrap()).await.unwrap();
        settled().await;
    }
}

/// Takes all keys that there are, and answers each with this.
fn answer_all(session: &mut Session, with: impl Fn(v1::ItemRef) -> Action) {
    while let Some(handed) = session.member.worker.try_next() {
        let Some(Frame::Items(items)) = session.items(handed).unwrap().frame else { continue };
        for item in items.items {
            session.act(with(item.r#ref.unwrap())).unwrap();
        }
    }
}

/// Takes all keys that there are, and answers them with success.
fn work(session: &mut Session) {
    answer_all(session, Action::Done);
}

/// Takes and answers all keys. Returns how many of them were queued for a resync.
fn resynced(session: &Session) -> usize {
    let handed = std::iter::from_fn(|| {
        let handed = session.member.worker.try_next()?;
        session.member.worker.answer(&handed.key, Outcome::Done).unwrap();
        Some(handed.why.contains(Why::RESYNC))
    });
    handed.filter(|is_of_resync| *is_of_resync).count()
}

/// The code of the error that the group ended with.
fn end(session: &Session) -> Option<Code> {
    let end = session.member.group.end.borrow().clone();
    end.map(|error| Status::from(error).code())
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_damaged_is_tried_again_and_the_others_go_on() {
    let list = packed(OBJECTS, 1000);
    list[3].spoil();
    let (mut session, _writer) = joined(list, &Ledger::default()).await;
    let mut sent = 0;
    while sent < OBJECTS - 1 || session.member.group.queue.stats().retries < 3 {
        let handed = timeout(10 * MINUTE, session.member.worker.next()).await.expect("a key").unwrap();
        if let Some(Frame::Items(items)) = session.items(handed).unwrap().frame {
            sent += items.items.len();
        }
    }
    assert_eq!(sent, OBJECTS - 1);
}

#[tokio::test(start_paused = true)]
async fn deletions_are_counted_until_they_are_handled_and_a_group_with_too_many_ends() {
    let ledger = Ledger::new(80 * SIZE, Pressure::default());
    let (mut session, mut writer) = joined(objects(24, SIZE), &ledger).await;
    let before = ledger.used();
    let of_group = || ledger.used() - before;
    delete(&mut writer, 0..4).await;
    assert!((4 * SIZE..5 * SIZE).contains(&of_group()), "{}", of_group());
    work(&mut session);
    assert_eq!((of_group(), end(&session)), (0, None));
    for number in 4..24 {
        delete(&mut writer, number..number + 1).await;
        assert!(of_group() <= 10 * SIZE, "an eighth: {}", of_group());
    }
    assert_eq!(end(&session), Some(Code::ResourceExhausted));
    drop(session);
    settled().await;
    assert_eq!(ledger.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_exist_is_not_queued_later() {
    let (mut session, mut writer) = joined(objects(4, SIZE), &Ledger::default()).await;
    let hour = || prost_types::Duration::try_from(60 * MINUTE).ok();
    let later = |item| Action::AddAfter(v1::AddAfter { item: Some(item), delay: hour() });
    let delayed = |session: &Session| session.member.group.queue.stats().delayed;
    answer_all(&mut session, later);
    assert_eq!(delayed(&session), 4);
    delete(&mut writer, 0..2).await;
    assert_eq!(delayed(&session), 4, "the deletions are not handled");
    work(&mut session);
    assert_eq!(delayed(&session), 2);
    for (namespace, name) in [("a", "c00000"), ("b", "c00003"), ("b", "none")] {
        let item = v1::ItemRef { namespace: namespace.to_owned(), name: name.to_owned(), ..v1::ItemRef::default() };
        session.act(later(item)).unwrap();
        assert_eq!(delayed(&session), 2, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_without_memory_for_a_deletion_ends() {
    let ledger = Ledger::new(80 * SIZE, Pressure::default());
    let (session, mut writer) = joined(objects(4, SIZE), &ledger).await;
    let all: Vec<_> = std::iter::from_fn(|| ledger.lasting(SIZE).ok()).collect();
    assert!(all.len() > 50, "{}", all.len());
    delete(&mut writer, 0..2).await;
    assert_eq!(end(&session), Some(Code::ResourceExhausted));
}

#[tokio::test(start_paused = true)]
async fn a_group_holds_little_while_memory_is_short() {
    let pressure = Pressure::default();
    let ledger = Ledger::new(1 << 30, pressure.clone());
    for (deleted, ended) in [(4, None), (20, Some(Code::ResourceExhausted))] {
        let (session, mut writer) = joined(objects(deleted, SIZE), &ledger).await;
        delete(&mut writer, 0..deleted).await;
        pressure.set(Level::Tight);
        settled().await;
        assert_eq!(end(&session), None);
        // No event comes after this.
        pressure.set(Level::Short);
        settled().await;
        assert_eq!(end(&session), ended, "{deleted}");
        pressure.set(Level::Calm);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_has_an_account_of_objects_that_their_cache_gave_up() {
    for (limit, ended) in [(1 << 30, None), (80 * SIZE, Some(Code::ResourceExhausted))] {
        let ledger = Ledger::new(limit, Pressure::default());
        let (session, mut writer) = joined(objects(20, SIZE), &ledger).await;
        let before = ledger.used();
        writer.not_ready("there is no memory");
        sleep(MINUTE).await;
        assert_eq!(end(&session), ended);
        if ended.is_none() {
            let of_group = ledger.used() - before;
            assert!((20 * SIZE..24 * SIZE).contains(&of_group), "{of_group}");
            writer.replace(objects(20, SIZE), ResourceVersion(FIRST as u64 + 1)).await.unwrap();
            sleep(2 * MINUTE).await;
            assert_eq!((ledger.used(), end(&session)), (before, None), "the cache has them again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_all_objects_are_merged_and_others_run_while_they_are_queued() {
    const ALL: usize = 2500;
    let (mut session, _writer) = joined(objects(ALL, 10), &Ledger::default()).await;
    assert_eq!(resynced(&session), 0);
    let (mut walked, mut largest) = (0, 0);
    for _ in 0..100 {
        session.act(Action::Resync(v1::Resync {})).unwrap();
        yield_now().await;
        let queued = resynced(&session);
        (walked, largest) = (walked + queued, largest.max(queued));
    }
    assert_eq!((walked, largest), (ALL, 1000));
    // The requests that came meanwhile.
    let mut later = Vec::new();
    for _ in 0..3 {
        sleep(MINUTE).await;
        later.push(resynced(&session));
    }
    assert_eq!(later, [ALL, 0, 0]);
}

#[tokio::test]
async fn a_request_of_a_worker_is_counted_until_it_is_handled() {
    let ledger = Ledger::new(16 << 20, Pressure::default());
    let (mut session, _writer) = joined(Vec::new(), &ledger).await;
    let intake = Intake::new(&ledger, None, "/informerd.v1.Queue/Work", false).unwrap();
    session.intake = Some(intake.clone());
    let before = ledger.used();
    let request = v1::WorkRequest { action: Some(Action::Resync(v1::Resync {})) };
    // The last of equal fields counts, but each costs as much as one.
    intake.decode(&request.encode_to_vec().repeat(10_000)).unwrap();
    assert!(ledger.used() > before + (1 << 20), "{}", ledger.used());
    session.act(Action::Resync(v1::Resync {})).unwrap();
    assert_eq!(ledger.used(), before);
}
