use proptest::prelude::*;

use super::super::list_writer::ListWriter;
use super::*;
use crate::cache::Snapshot;
use crate::codec::json::Style;
use crate::http::testing::{World, form, inflate, list_text, object, objects};
use crate::memory::Pressure;
use crate::meta::{Encoding, ResourceVersion};

const OBJECTS: usize = 3000;
const SIZE: usize = 200;

fn gzip(keep_bytes: u64) -> (Gzip, Arc<HttpMetrics>) {
    within(keep_bytes, Ledger::default())
}

fn within(keep_bytes: u64, ledger: Ledger) -> (Gzip, Arc<HttpMetrics>) {
    let metrics = Arc::<HttpMetrics>::default();
    (Gzip::new(keep_bytes, ledger, Arc::clone(&metrics)), metrics)
}

async fn world() -> World {
    World::new(objects(OBJECTS, SIZE)).await
}

async fn compressed(gzip: &Gzip, world: &World, key: &Key) -> Arc<Compressed> {
    gzip.get(key.clone(), Slices::new(), Writer::list(ListWriter::new(world.list()), false, &Ledger::default()))
        .await
        .ok()
        .unwrap()
}

/// The key of a list that looks the same but belongs to another state.
fn another(answer: &ListAnswer) -> Key {
    let state = Snapshot::empty(ResourceVersion(7)).id();
    keyed(answer, ListIdentity { state, ..answer.identity.clone() })
}

fn keyed(answer: &ListAnswer, identity: ListIdentity) -> Key {
    let (meta, form) = (answer.meta.clone(), SameForm(answer.form.clone()));
    Key::List { identity, meta, form, shape: answer.shape, indent: false }
}

/// Reads the next piece; false at the end.
fn read(compressed: &Arc<Compressed>, place: &mut usize, into: &mut Vec<u8>) -> bool {
    match compressed.piece(*place, &mut Copies::new(&Ledger::default())).expect("it cannot fail") {
        BodyStep::Frame(chunk) => {
            *place += 1;
            chunk.into_iter().for_each(|part| into.extend_from_slice(&part));
            true
        }
        BodyStep::Again => true,
        BodyStep::Wait => panic!("there is memory"),
        BodyStep::End => false,
    }
}

fn read_all(compressed: &Arc<Compressed>) -> Vec<u8> {
    let (mut place, mut bytes) = (0, Vec::new());
    while read(compressed, &mut place, &mut bytes) {}
    inflate(&bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// In whatever order the readers of one answer run, all read the same list, and it is compressed once.
    #[test]
    fn readers_share_one_compression(turns in prop::collection::vec(0_usize..4, 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let ((gzip, metrics), world) = (gzip(1 << 20), world().await);
            let key = Key::list(&world.list(), false);
            let mut readers = Vec::new();
            for _ in 0..4 {
                readers.push((compressed(&gzip, &world, &key).await, 0, Vec::new()));
            }
            for turn in turns {
                let (compressed, place, bytes) = &mut readers[turn];
                let before = metrics.gzip_bytes_in.get();
                read(compressed, place, bytes);
                assert!(metrics.gzip_bytes_in.get() - before <= STEP as u64, "a step is bounded");
            }
            for (compressed, mut place, mut bytes) in readers {
                while read(&compressed, &mut place, &mut bytes) {}
                assert!(inflate(&bytes) == list_text(OBJECTS, SIZE).into_bytes());
                assert_eq!(compressed.objects(), OBJECTS as u64);
            }
            assert_eq!((metrics.gzip_compressions.get(), metrics.gzip_responses.get()), (1, 4));
            assert_eq!(metrics.gzip_bytes_in.get(), list_text(OBJECTS, SIZE).len() as u64);
        });
    }
}

#[tokio::test]
async fn what_is_complete_is_kept_and_what_nobody_reads_any_more_is_not() {
    let ((gzip, metrics), world) = (gzip(1 << 20), world().await);
    let answer = world.list();
    let key = Key::list(&answer, false);

    let left = compressed(&gzip, &world, &key).await;
    for _ in 0..3 {
        left.piece(0, &mut Copies::new(&Ledger::default())).unwrap();
    }
    let in_the_middle = Arc::downgrade(&left);
    drop(left);
    assert!(in_the_middle.upgrade().is_none(), "it would keep a snapshot alive");

    let whole = compressed(&gzip, &world, &key).await;
    assert!(read_all(&whole) == list_text(OBJECTS, SIZE).into_bytes());
    drop(whole);
    while gzip.kept.get(&key).await.is_none() {
        tokio::task::yield_now().await;
    }
    assert!(read_all(&compressed(&gzip, &world, &key).await) == list_text(OBJECTS, SIZE).into_bytes());
    assert_eq!((metrics.gzip_compressions.get(), metrics.gzip_responses.get()), (2, 3));
    assert!(metrics.gzip_memory.get() > 0);

    // Some forms are made for one read.
    let (meta, identity) = (answer.meta.clone(), answer.identity.clone());
    let again = Key::list(&ListAnswer { form: Arc::new(form()), meta, identity, ..world.list() }, false);
    assert!(gzip.kept.get(&again).await.is_some());

    // Any difference in the request gives a different key.
    let of_another_kind = Form::new(Encoding::Json, Style::Stripped, "v1", "Other", "OtherList");
    let ListAnswer { form: as_written, shape, served, .. } = world.list();
    let one = GetAnswer { form: as_written, shape, object: object(1, 1), served, rent: None };
    let others = [
        Key::list(
            &ListAnswer { meta: ListMetaOut { remaining: Some(1), ..answer.meta.clone() }, ..world.list() },
            false,
        ),
        Key::list(&ListAnswer { shape: Shape::PartialObjectMetadata, ..world.list() }, false),
        keyed(&answer, ListIdentity { limit: Some(5), ..answer.identity.clone() }),
        Key::list(&ListAnswer { form: Arc::new(of_another_kind), ..world.list() }, false),
        another(&answer),
        Key::list(&world.list(), true),
        Key::object(&one, false),
    ];
    for other in &others {
        assert!(gzip.kept.get(other).await.is_none());
    }
}

#[tokio::test]
async fn memory_is_bounded() {
    let ((gzip, metrics), world) = (gzip(40 << 10), world().await);
    for _ in 0..20 {
        let key = another(&world.list());
        let whole = compressed(&gzip, &world, &key).await;
        read_all(&whole);
        drop(whole);
        gzip.kept.run_pending_tasks().await;
        tokio::task::yield_now().await;
    }
    gzip.kept.run_pending_tasks().await;
    assert_eq!(metrics.gzip_compressions.get(), 20);
    assert!(gzip.kept.weighted_size() <= 40 << 10);
    // An evicted answer is freed a few operations later.
    for n in 0.. {
        if metrics.gzip_memory.get() <= 40 << 10 {
            break;
        }
        assert!(n < 100_000, "{} bytes", metrics.gzip_memory.get());
        gzip.kept.get(&another(&world.list())).await;
        gzip.kept.run_pending_tasks().await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_short_one_is_known_to_be_short() {
    let ((gzip, _), world) = (gzip(1 << 20), world().await);
    let whole = compressed(&gzip, &world, &Key::list(&world.list(), false)).await;
    assert!(whole.if_short(100).await.is_none());
    let all = whole.if_short(usize::MAX).await.unwrap().into_bytes();
    assert!(inflate(&all) == list_text(OBJECTS, SIZE).into_bytes());
    assert!(whole.if_short(all.len() - 1).await.is_none());
    assert!(whole.if_short(all.len()).await.is_some());
}

#[tokio::test]
async fn without_memory_for_a_compressor_the_answer_goes_as_it_is() {
    let ledger = Ledger::new(4 * COMPRESSOR, Pressure::default());
    let ((gzip, metrics), world) = (within(1 << 20, ledger.clone()), world().await);
    let held = ledger.reserve(2 * COMPRESSOR).unwrap();
    let key = Key::list(&world.list(), false);
    let writer = || Writer::list(ListWriter::new(world.list()), false, &Ledger::default());
    let (_, back) = *gzip.get(key.clone(), Slices::new(), writer()).await.err().unwrap();
    assert!(!back.is_done(), "nothing of it is lost");
    assert_eq!((metrics.gzip_compressions.get(), metrics.gzip_responses.get()), (0, 0));
    drop(held);
    let whole = gzip.get(key, Slices::new(), writer()).await.ok().unwrap();
    assert!(read_all(&whole) == list_text(OBJECTS, SIZE).into_bytes());
    // The compressor is gone; its output is still in memory.
    assert_eq!(ledger.used() as i64, metrics.gzip_memory.get());
}

#[tokio::test]
async fn without_memory_for_all_of_it_an_answer_is_for_its_reader_alone() {
    let ledger = Ledger::new(2 * (COMPRESSOR + CHUNK), Pressure::default());
    let ((gzip, metrics), world) = (within(1 << 20, ledger.clone()), World::new(objects(19_000, SIZE)).await);
    let key = Key::list(&world.list(), false);
    let first = compressed(&gzip, &world, &key).await;
    let (mut place, mut bytes, mut most) = (0, Vec::new(), 0);
    while read(&first, &mut place, &mut bytes) {
        most = most.max(metrics.gzip_memory.get());
        assert!(ledger.used() <= ledger.limit() / 2);
    }
    assert!(inflate(&bytes) == list_text(19_000, SIZE).into_bytes(), "and whole");
    assert!(bytes.len() > 6 * CHUNK && most < 5 * CHUNK as i64, "{most} of {} bytes at once", bytes.len());
    drop(first);
    assert!(gzip.kept.get(&key).await.is_none());
    assert_eq!((ledger.used(), metrics.gzip_memory.get()), (0, 0));
}
