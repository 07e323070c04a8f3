//! What happens in the model test.

use proptest::prelude::*;
use proptest::sample::Index;

use super::model::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Change(Change),
    /// The cache does not hear of these yet.
    Unseen(Vec<Change>),
    /// An object comes and goes, and the cache does not hear of it yet. It may be told that its state is the newest.
    Passing(bool),
    /// The cache hears of so much.
    Hear(usize),
    /// A list of the keys shows that the newest state is the one that the cache has, if it is.
    Confirm,
    /// Several objects are deleted at one revision, like events that expire. Clients may get a part of the deletions.
    Expire {
        gap: u64,
        keys: Vec<(usize, usize)>,
        part: Option<usize>,
    },
    Progress(u64),
    /// A proof: all events were heard. The revision may be later.
    Proved(u64),
    Dispatch(usize),
    Watch {
        predicate: usize,
        start: Start,
        bookmarks: bool,
        initial_end: bool,
        seconds: Option<u64>,
    },
    Poll {
        watcher: Index,
        count: usize,
    },
    Leave(Index),
    /// A client begins another watch, where its watch claims to be or after its last item.
    Resume {
        client: Index,
        by_claim: bool,
    },
    /// A watch is asked to end, with a last bookmark or without.
    End(Index, bool),
    /// The changes, and those that are unseen, are never seen as events. The apiserver may write all objects otherwise.
    Relist {
        changes: Vec<Change>,
        gap: u64,
        rewritten: bool,
    },
    /// The store is set back to an earlier revision. Or the cache gives its state up, and reads it again.
    Rewind(Index),
    /// Another process goes on with what was saved of the window, or with a list.
    Restart(Option<Index>),
    Backfill(Index),
    Backfilled,
    Advance(u64),
    Sweep,
    ListAt(Index),
}

#[derive(Clone, Debug)]
pub(super) enum Start {
    State,
    Now,
    After(Index),
    /// After a state that the cache has not seen.
    Elsewhere(Index),
    /// After one that the cache was told of.
    Confirmed(Index),
    /// After a state that does not exist yet.
    Future(u64),
}

/// How it ends: with clients that are up to date, with a drain, or with the informer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Finale {
    Settle,
    Drain(bool),
    Stop,
}

fn change() -> impl Strategy<Value = Change> {
    (1..4_u64, 0..3_usize, 0..4_usize, 0..3_usize, 0..3_usize, prop::bool::weighted(0.3))
        .prop_map(|(gap, namespace, name, labels, node, delete)| Change { gap, namespace, name, labels, node, delete })
}

/// Changes of few objects, which come and go.
fn bustle(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = (1..3_u64, 1..3_usize, 0..3_usize, 0..3_usize, prop::bool::weighted(0.4))
        .prop_map(|(gap, name, labels, node, delete)| Change { gap, namespace: 0, name, labels, node, delete });
    prop::collection::vec(change, 0..most)
}

pub(super) fn finale() -> impl Strategy<Value = Finale> {
    prop_oneof![4 => Just(Finale::Settle), 2 => any::<bool>().prop_map(Finale::Drain), 1 => Just(Finale::Stop)]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let start = prop_oneof![
        2 => Just(Start::State),
        1 => Just(Start::Now),
        1 => any::<Index>().prop_map(Start::After),
        1 => any::<Index>().prop_map(Start::Elsewhere),
        1 => any::<Index>().prop_map(Start::Confirmed),
        1 => (1..6_u64).prop_map(Start::Future),
    ];
    let watch = (0..predicates().len(), start, any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 1..150_u64));
    let keys = prop::collection::vec((0..3_usize, 0..4_usize), 1..8);
    let expire = (1..4_u64, keys, prop::option::of(1..4_usize));
    let relist = (bustle(6), 0..2_u64, prop::bool::weighted(0.2));
    prop_oneof![
        16 => change().prop_map(Op::Change),
        7 => bustle(4).prop_map(Op::Unseen),
        3 => any::<bool>().prop_map(Op::Passing),
        4 => (1..3_usize).prop_map(Op::Hear),
        2 => Just(Op::Confirm),
        4 => expire.prop_map(|(gap, keys, part)| Op::Expire { gap, keys, part }),
        2 => (0..4_u64).prop_map(Op::Progress),
        1 => (0..4_u64).prop_map(Op::Proved),
        10 => (1..6_usize).prop_map(Op::Dispatch),
        8 => watch.prop_map(|(predicate, start, bookmarks, initial_end, seconds)| {
            Op::Watch { predicate, start, bookmarks, initial_end, seconds }
        }),
        14 => (any::<Index>(), 1..8_usize).prop_map(|(watcher, count)| Op::Poll { watcher, count }),
        1 => any::<Index>().prop_map(Op::Leave),
        3 => (any::<Index>(), any::<bool>()).prop_map(|(client, by_claim)| Op::Resume { client, by_claim }),
        4 => (any::<Index>(), any::<bool>()).prop_map(|(client, bookmark)| Op::End(client, bookmark)),
        2 => relist.prop_map(|(changes, gap, rewritten)| Op::Relist { changes, gap, rewritten }),
        1 => any::<Index>().prop_map(Op::Rewind),
        1 => prop::option::of(any::<Index>()).prop_map(Op::Restart),
        1 => any::<Index>().prop_map(Op::Backfill),
        1 => Just(Op::Backfilled),
        4 => (1..70_u64).prop_map(Op::Advance),
        1 => Just(Op::Sweep),
        3 => any::<Index>().prop_map(Op::ListAt),
    ]
}
