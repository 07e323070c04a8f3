//! Answers that are made for one client each, and that nobody reads: none is made without memory for it.

use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;

use super::super::watch_body::SHORTEST;
use super::*;
use crate::cache::WatchStart;
use crate::codec::Shape;
use crate::http::testing::{World, packed};
use crate::lifecycle::drain::DrainWatch;
use crate::memory::{HURRY, Level, Pressure};
use crate::meta::Object;

const SIZE: usize = 100_000;
const LIMIT: usize = 41 * SIZE;
/// So many copies of an object take half of the limit, and there is a last one.
const MOST: usize = 20 + 1;

struct Scene {
    objects: Vec<Arc<Object>>,
    world: World,
    ledger: Ledger,
    stall_guards: StallGuards,
    bodies: Bodies,
}

async fn scene() -> Scene {
    let objects = packed(3, SIZE);
    let world = World::new(objects.clone()).await;
    let (ledger, stall_guards) = (Ledger::new(LIMIT, Pressure::default()), StallGuards::default());
    let gzip = 1 << 20;
    let bodies = Bodies::new(gzip, &ledger, stall_guards.clone(), &Arc::default());
    Scene { objects, world, ledger, stall_guards, bodies }
}

fn taken(indent: bool) -> BodyOptions {
    BodyOptions { is_stream: true, ..super::tests::taken(false, indent) }
}

impl Scene {
    async fn get(&self, shape: Shape, taken: &BodyOptions) -> Result<Answered, Box<Status>> {
        let form = self.world.cache.form().unwrap();
        let answer =
            GetAnswer { form, shape, object: Arc::clone(&self.objects[0]), served: Served::default(), rent: None };
        self.bodies.object(answer, taken).await
    }

    fn watch(&self) -> WatchBody {
        let ending = Ending::new(&DrainWatch::never(), Duration::ZERO, SHORTEST);
        self.bodies.watch(self.world.watch(WatchStart::State), Lease::all([]), None, ending)
    }
}

#[tokio::test]
async fn gets_and_lists_without_memory_are_refused_before_their_head() {
    for (kind, shape, indent) in [
        ("get", Shape::Full, false),
        ("get", Shape::PartialObjectMetadata, false),
        ("get", Shape::Full, true),
        ("list", Shape::Full, false),
    ] {
        let scene = scene().await;
        let mut unread = Vec::new();
        let refused = loop {
            let answer = match kind {
                "get" => scene.get(shape, &taken(indent)).await,
                _ => scene.bodies.list(scene.world.list(), &taken(indent)).await,
            };
            match answer {
                Ok(answered) => unread.push(answered.response.into_body()),
                Err(refused) => break refused,
            }
            assert!(unread.len() <= MOST, "{kind} {shape:?}");
        };
        assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
        assert!(scene.ledger.used() <= LIMIT / 4 * 3 + SIZE + 1000 && unread.len() > 5, "{kind} {}", unread.len());
        drop(unread);
        assert_eq!(scene.ledger.used(), 0);
        // While memory is short, one can be read.
        scene.ledger.pressure().set(Level::Short);
        assert!(scene.get(shape, &taken(indent)).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn watches_without_memory_wait_until_others_are_given_up() {
    let scene = scene().await;
    let mut watches: Vec<_> = (0..MOST + 10).map(|_| scene.watch()).collect();
    let mut unread = Vec::new();
    for watch in &mut watches {
        unread.push(watch.frame().now_or_never());
    }
    assert_eq!(unread.iter().flatten().count(), MOST);
    assert!(scene.ledger.used() <= LIMIT / 2 + SIZE + 1000);
    tokio::time::sleep(2 * HURRY).await;
    assert_eq!((scene.stall_guards.hurry(), watches[0].cut().is_cut()), (MOST as u64, true));
    assert!(!watches[MOST].cut().is_cut(), "it waits for memory");
    // Their streams are dropped.
    drop(unread);
    let frame = watches[MOST].frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(frame.len() > SIZE);
    drop(frame);
    assert!(watches[MOST].frame().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_too_long_for_memory_is_ended() {
    let scene = scene().await;
    let mut body = scene.bodies.list(scene.world.list(), &taken(false)).await.unwrap().response.into_body();
    drop(body.frame().await.unwrap().unwrap());
    let mut watch = scene.watch();
    let mut all = scene.ledger.copies();
    all.try_grow(LIMIT / 2).unwrap();
    let last = scene.ledger.last_copy(1).unwrap();
    assert!(body.frame().now_or_never().is_none() && watch.frame().now_or_never().is_none());
    assert!(body.frame().await.unwrap().is_err(), "it does not look whole");
    assert!(watch.frame().await.is_none(), "its client resumes");
    drop((all, last));
}
