//! Cooperative scheduling: a multiplexer runs many futures in one task, one after the other, in the order in which they were
//! woken.
//!
//! An event wakes all watches of a group at once. If each were a task, each would have to be scheduled, and they would run
//! on several threads, which would wait for the same locks. The task of a multiplexer is woken once for all of them
//! ([`Woken`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use slab::Slab;

use super::turn::Turn;
use super::woken::{WakeOne, Woken};

/// A future that shares its task with others.
pub trait Multiplexed {
    /// Ready when it has ended. One that has more to do than fits into its part of the turn wakes itself: it runs again after all
    /// others that are ready.
    fn poll(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()>;
}

/// In the extensions of a response: its body waits for events most of the time. Whoever sends it runs it in a multiplexer.
#[derive(Clone, Copy, Debug)]
pub struct IsWatch;

/// The futures of one task. A future that is dropped with it was not at its end.
#[derive(Debug)]
pub struct Multiplexer<F> {
    futures: Slab<Entry<F>>,
    /// The futures that run next, in order. What does not fit into a turn comes first in the next one, so nobody waits for longer
    /// than two rounds.
    queue: VecDeque<u64>,
    handle: MultiplexerHandle<F>,
}

/// Adds futures to a multiplexer. Cloning shares it.
#[derive(Debug)]
pub struct MultiplexerHandle<F>(Arc<Arrivals<F>>);

#[derive(Debug)]
struct Arrivals<F> {
    /// `None` once the multiplexer is gone: what stayed here could keep its own task alive.
    futures: Mutex<Option<Vec<F>>>,
    woken: Arc<Woken>,
}

#[derive(Debug)]
struct Entry<F> {
    future: F,
    waker: Waker,
    wake: Arc<WakeOne>,
}

// === impl Multiplexer ===

impl<F: Multiplexed> Multiplexer<F> {
    pub fn new() -> Self {
        let arrivals = Arrivals { futures: Mutex::new(Some(Vec::new())), woken: Arc::default() };
        Self { futures: Slab::new(), queue: VecDeque::new(), handle: MultiplexerHandle(Arc::new(arrivals)) }
    }

    pub fn handle(&self) -> MultiplexerHandle<F> {
        MultiplexerHandle(Arc::clone(&self.handle.0))
    }

    /// Runs all that are ready, and those that become ready meanwhile, until the turn is over. The task is woken when there is
    /// more to do. Returns how many have ended.
    pub fn poll(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> usize {
        let woken = Arc::clone(&self.handle.0.woken);
        woken.register(cx.waker());
        let mut ended = 0;
        loop {
            if self.queue.is_empty() && !self.next_round(&woken) {
                return ended;
            }
            if turn.is_over() {
                break;
            }
            let Some(key) = self.queue.pop_front() else { continue };
            ended += usize::from(self.run(key as usize, turn));
        }
        cx.waker().wake_by_ref();
        ended
    }

    /// Queues what has arrived or was woken. Returns whether there is any.
    fn next_round(&mut self, woken: &Arc<Woken>) -> bool {
        let arrived = self.handle.0.futures.lock().as_mut().map(std::mem::take).unwrap_or_default();
        for future in arrived {
            let entry = self.futures.vacant_entry();
            let key = entry.key() as u64;
            let wake = woken.one(key, true);
            entry.insert(Entry { future, waker: Waker::from(Arc::clone(&wake)), wake });
            self.queue.push_back(key);
        }
        woken.drain_into(&mut self.queue);
        !self.queue.is_empty()
    }

    /// Runs one future. Returns whether it has ended.
    fn run(&mut self, index: usize, turn: &mut Turn) -> bool {
        // A waker may outlive its future, and wake another one at this place. That does no harm.
        let Some(entry) = self.futures.get_mut(index) else { return false };
        entry.wake.begins();
        let polled = entry.future.poll(&mut Context::from_waker(&entry.waker), turn);
        // What has ended is gone at once, however much there is of it.
        if polled.is_pending() {
            turn.runs();
        } else {
            self.futures.remove(index);
            if self.futures.is_empty() {
                self.futures.shrink_to_fit();
            }
        }
        polled.is_ready()
    }
}

impl<F: Multiplexed> Default for Multiplexer<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Drop for Multiplexer<F> {
    fn drop(&mut self) {
        let left = self.handle.0.futures.lock().take();
        drop(left);
    }
}

// === impl MultiplexerHandle ===

impl<F> MultiplexerHandle<F> {
    /// The multiplexer runs it from now on. If the multiplexer is gone, it is dropped.
    pub fn run(&self, future: F) {
        let refused = match &mut *self.0.futures.lock() {
            Some(futures) => {
                futures.push(future);
                None
            }
            None => Some(future),
        };
        // Not under the lock.
        drop(refused);
        self.0.woken.wake_task();
    }

    /// Whether both are of one multiplexer.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<F> Clone for MultiplexerHandle<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Wakes;
    use crate::wakes::together;

    type Log = Arc<Mutex<Vec<u32>>>;

    /// Says its name when it runs. `busy` times it has more to do.
    struct Speaker {
        name: u32,
        busy: u32,
        ends: bool,
        waker: Arc<Mutex<Option<Waker>>>,
        log: Log,
    }

    impl Multiplexed for Speaker {
        fn poll(&mut self, cx: &mut Context<'_>, _: &mut Turn) -> Poll<()> {
            self.log.lock().push(self.name);
            *self.waker.lock() = Some(cx.waker().clone());
            if self.busy > 0 {
                self.busy -= 1;
                cx.waker().wake_by_ref();
            }
            if self.ends { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[derive(Default)]
    struct Scene {
        multiplexer: Multiplexer<Speaker>,
        log: Log,
        wakers: Vec<Arc<Mutex<Option<Waker>>>>,
    }

    impl Scene {
        fn add(&mut self, busy: u32, ends: bool) {
            let (name, waker) = (self.wakers.len() as u32, Arc::<Mutex<Option<Waker>>>::default());
            self.wakers.push(Arc::clone(&waker));
            self.multiplexer.handle().run(Speaker { name, busy, ends, waker, log: Arc::clone(&self.log) });
        }

        fn poll(&mut self, waker: &Waker) -> Vec<u32> {
            self.multiplexer.poll(&mut Context::from_waker(waker), &mut Turn::new());
            std::mem::take(&mut *self.log.lock())
        }

        fn wakers(&self, names: &[usize]) -> Vec<Waker> {
            names.iter().filter_map(|name| self.wakers[*name].lock().clone()).collect()
        }
    }

    #[test]
    fn those_that_were_woken_run_in_their_order_and_the_task_is_woken_once() {
        let (mut scene, (wakes, task)) = (Scene::default(), Wakes::new());
        (0..5).for_each(|_| scene.add(0, false));
        assert_eq!(scene.poll(&task), [0, 1, 2, 3, 4]);
        let before = wakes.count();
        together(scene.wakers(&[3, 1, 3, 4]));
        assert_eq!(wakes.count(), before + 1);
        assert_eq!(scene.poll(&task), [3, 1, 4]);
        assert!(scene.poll(&task).is_empty());
    }

    #[test]
    fn what_does_not_fit_into_a_turn_comes_first_in_the_next_one() {
        let (mut scene, (wakes, task)) = (Scene::default(), Wakes::new());
        (0..200).for_each(|_| scene.add(0, false));
        let first = scene.poll(&task);
        let before = wakes.count();
        assert!(before > 0 && first.len() < 200);
        scene.wakers(&[0]).into_iter().for_each(Waker::wake);
        let next = scene.poll(&task);
        assert_eq!([first, next].concat(), (0..200).chain([0]).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_has_more_to_do_runs_after_the_others() {
        let (mut scene, task) = (Scene::default(), Waker::noop());
        scene.add(2, false);
        scene.add(1, false);
        scene.add(0, false);
        assert_eq!(scene.poll(task), [0, 1, 2, 0, 1, 0]);
    }

    #[test]
    fn what_has_ended_is_gone_and_its_waker_does_no_harm() {
        let (mut scene, task) = (Scene::default(), Waker::noop());
        scene.add(0, true);
        scene.add(0, false);
        assert_eq!(scene.poll(task), [0, 1]);
        assert_eq!(scene.multiplexer.futures.len(), 1);
        scene.add(0, false);
        scene.poll(task);
        scene.wakers(&[0]).into_iter().for_each(Waker::wake);
        assert_eq!(scene.poll(task), [2], "it has the place of the first");
    }

    /// Does something only while the turn lasts, and always has more to do.
    struct Endless {
        name: usize,
        done: Arc<Mutex<Vec<usize>>>,
    }

    impl Multiplexed for Endless {
        fn poll(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()> {
            if !turn.is_over() {
                self.done.lock()[self.name] += 1;
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    #[test]
    fn as_many_as_fit_into_a_turn_all_have_their_part() {
        for count in [127, 128, 129, 256] {
            let done = Arc::new(Mutex::new(vec![0; count]));
            let mut multiplexer = Multiplexer::new();
            (0..count).for_each(|name| multiplexer.handle().run(Endless { name, done: Arc::clone(&done) }));
            for _ in 0..20 {
                multiplexer.poll(&mut Context::from_waker(Waker::noop()), &mut Turn::new());
            }
            let done = done.lock();
            let (least, most) = (done.iter().min().copied(), done.iter().max().copied());
            assert!(least >= most.map(|most| most - 1) && least > Some(0), "{count}: {least:?} {most:?}");
        }
    }

    #[test]
    fn nothing_outlives_it() {
        let mut scene = Scene::default();
        (0..2).for_each(|_| scene.add(0, false));
        let handle = scene.multiplexer.handle();
        drop(std::mem::take(&mut scene.multiplexer));
        let late = Arc::new(Mutex::new(None));
        handle.run(Speaker { name: 9, busy: 0, ends: false, waker: Arc::clone(&late), log: Arc::clone(&scene.log) });
        assert!(
            scene.wakers.iter().chain([&late]).all(|waker| Arc::strong_count(waker) == 1 || Arc::ptr_eq(waker, &late))
        );
        assert_eq!((Arc::strong_count(&late), Arc::strong_count(&scene.log)), (1, 1));
    }
}
