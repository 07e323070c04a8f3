//! Files that were damaged, torn or forged, and disks that fail: never a wrong object, never a panic. At worst, the
//! state is listed.

use super::testing::*;
use super::*;
use crate::meta::{Origin, PrinterColumn, Resource};
use crate::packing::PackingForm;

/// A file with two blocks of events after its state, and the storage that has it.
async fn written(storage: &Memory, key: Option<Key>, form: PackingForm) -> World {
    let mut world = World::new(24, form).await;
    world.change(6).await;
    write(storage, key, &mut world).await.unwrap();
    world
}

/// Writes a snapshot as the task does. Stops at the first error.
async fn write(storage: &Memory, key: Option<Key>, world: &mut World) -> std::io::Result<()> {
    let (mut journal, mut recorder) = begin(&snapshots(storage, key), &identity(), &world.cache)?;
    journal.append(&all(&mut recorder))?;
    world.change(6).await;
    world.expire().await;
    journal.append(&all(&mut recorder))
}

/// What is loaded is a state that the cache had, or nothing.
async fn is_sound(storage: &Memory, key: Option<&Key>, world: &World) -> Option<u64> {
    let loaded = load(&snapshots(storage, key.cloned()), identity(), PackingForm::Plain).await;
    let (_writer, loaded) = loaded?;
    let rv = loaded.resource_version().get();
    let expected = world.states.get(&rv).unwrap_or_else(|| panic!("a state at {rv} that never was"));
    assert_eq!(state(&loaded), *expected, "at {rv}");
    Some(rv)
}

fn keys() -> [Option<Key>; 2] {
    [None, Some(Key::parse(&"5a".repeat(32)).unwrap())]
}

#[tokio::test]
async fn a_file_that_ends_anywhere() {
    for key in keys() {
        let storage = Memory::default();
        let world = written(&storage, key.clone(), PackingForm::Plain).await;
        let name = identity().file_name();
        let file = storage.inner.lock().files[&name].clone();
        let mut found = std::collections::BTreeSet::new();
        for end in 0..=file.len() {
            storage.inner.lock().files.insert(name.clone(), file[..end].to_vec());
            found.insert(is_sound(&storage, key.as_ref(), &world).await);
        }
        let last = Some(world.cache.resource_version().get());
        assert!(found.contains(&None) && found.contains(&last) && found.len() == 4, "{found:?}");
    }
}

#[tokio::test]
async fn every_single_bit_changed() {
    for key in keys() {
        let storage = Memory::default();
        let world = written(&storage, key.clone(), PackingForm::Plain).await;
        let name = identity().file_name();
        let file = storage.inner.lock().files[&name].clone();
        let last = Some(world.cache.resource_version().get());
        for bit in 0..file.len() * 8 {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            storage.inner.lock().files.insert(name.clone(), changed);
            let rv = is_sound(&storage, key.as_ref(), &world).await;
            assert_ne!(rv, last, "bit {bit} was not noticed");
        }
    }
}

#[tokio::test]
async fn blocks_in_another_order_or_from_another_file() {
    for key in keys() {
        let (storage, other) = (Memory::default(), Memory::default());
        let world = written(&storage, key.clone(), PackingForm::Plain).await;
        written(&other, key.clone(), PackingForm::Plain).await;
        let name = identity().file_name();
        let (file, other) = (storage.inner.lock().files[&name].clone(), other.inner.lock().files[&name].clone());
        let (blocks, others) = (blocks(&file), blocks(&other));
        let head = file.len() - blocks.iter().map(Vec::len).sum::<usize>();
        assert_eq!(blocks.len(), 3);
        for a in 0..4 {
            for b in 0..4 {
                let of = |n: usize| if n == 3 { &others[1] } else { &blocks[n] };
                let mixed = [&file[..head], &blocks[0], of(a), of(b)].concat();
                storage.inner.lock().files.insert(name.clone(), mixed);
                let rv = is_sound(&storage, key.as_ref(), &world).await;
                let whole = rv == Some(world.cache.resource_version().get());
                assert_eq!(whole, (a, b) == (1, 2), "{a} {b}");
            }
        }
    }
}

/// The blocks of a file.
fn blocks(file: &[u8]) -> Vec<Vec<u8>> {
    // The first line is of any length.
    let at = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut blocks) = (at + 4 + number(at), Vec::new());
    while at < file.len() {
        let end = at + 4 + seal::TAG + number(at);
        blocks.push(file[at..end].to_vec());
        at = end;
    }
    blocks
}

/// Whatever operation fails, and however much of it was done, the file is the old one, or a good one.
#[tokio::test]
async fn a_disk_that_fails_at_any_time() {
    let mut operations = 0;
    loop {
        for torn in [0, 1, 30, 1000] {
            let storage = Memory::default();
            let mut world = written(&storage, None, PackingForm::Plain).await;
            let before = storage.inner.lock().files.clone();
            {
                let mut inner = storage.inner.lock();
                (inner.operations, inner.torn) = (Some(operations), torn);
                inner.history.clear();
            }
            let result = write(&storage, None, &mut world).await;
            storage.inner.lock().operations = None;
            assert!(is_sound(&storage, None, &world).await.is_some(), "{operations} {torn}");
            // A process that was killed after any of the operations.
            let history = std::mem::take(&mut storage.inner.lock().history);
            for files in std::iter::once(before).chain(history) {
                storage.inner.lock().files = files;
                assert!(is_sound(&storage, None, &world).await.is_some(), "{operations} {torn}");
            }
            if result.is_ok() {
                assert!(operations > 6, "{operations}");
                return;
            }
        }
        operations += 1;
    }
}

fn seen() -> LastSeen {
    let column = PrinterColumn { name: "Size".into(), kind: "integer".into(), json_path: ".spec.size".into() };
    let custom = Origin::Custom {
        selectable: [".spec.color".into()].into(),
        columns: [column].into(),
        definition: "uid/2".into(),
    };
    let widgets =
        Resource { namespaced: false, origin: custom, ..Resource::simple("example.com", "widgets", "Widget") };
    let resources = vec![Resource::simple("", "pods", "Pod"), widgets];
    LastSeen { server: "10.0.0.1:6443".into(), cluster: identity().cluster, resources }
}

async fn last_seen(storage: &Memory, key: Option<&Key>, server: &str, authorities: &str) -> Option<LastSeen> {
    snapshots(storage, key.cloned()).last_seen(server.to_owned(), authorities.to_owned()).await
}

/// The cluster is known exactly as it was seen, or not at all.
#[tokio::test]
async fn a_cluster_is_known_from_an_unharmed_file_alone() {
    for key in keys() {
        let storage = Memory::default();
        let again = async || last_seen(&storage, key.as_ref(), "10.0.0.1:6443", "ca").await;
        assert_eq!(again().await, None, "nothing was kept yet");
        let kept = snapshots(&storage, key.clone());
        assert!(kept.keep_last_seen(LastSeen { resources: Vec::new(), ..seen() }).await);
        assert!(kept.keep_last_seen(seen()).await);
        assert_eq!(again().await, Some(seen()));
        let (name, file) =
            storage.inner.lock().files.iter().next().map(|(name, file)| (name.clone(), file.clone())).unwrap();
        assert_eq!(storage.inner.lock().files.len(), 1, "the old one is replaced");
        let hides = !file.windows(7).any(|bytes| bytes == b"widgets");
        assert!(key.is_none() || hides);
        for bit in 0..file.len() * 8 {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            storage.inner.lock().files.insert(name.clone(), changed);
            assert_eq!(again().await, None, "bit {bit} was not noticed");
        }
        for end in 0..file.len() {
            storage.inner.lock().files.insert(name.clone(), file[..end].to_vec());
            assert_eq!(again().await, None, "it ends at {end}");
        }
        for more in [&[0][..], &[0; 4096], &blocks(&file)[0]] {
            storage.inner.lock().files.insert(name.clone(), [&file, more].concat());
            assert_eq!(again().await, None, "something follows");
        }
        // Under the name of another server, of other authorities, or of a snapshot.
        for (server, authorities) in [("10.0.0.2:6443", "ca"), ("10.0.0.1:6443", "another")] {
            let cluster = Cluster { authorities: authorities.into(), ..seen().cluster };
            assert!(kept.keep_last_seen(LastSeen { server: server.into(), cluster, ..seen() }).await);
            let names: Vec<_> = storage.inner.lock().files.keys().cloned().collect();
            for name in names {
                storage.inner.lock().files.insert(name, file.clone());
            }
            assert_eq!(last_seen(&storage, key.as_ref(), server, authorities).await, None);
        }
        written(&storage, key.clone(), PackingForm::Plain).await;
        let snapshot = storage.inner.lock().files[&identity().file_name()].clone();
        storage.inner.lock().files.insert(name.clone(), snapshot);
        assert_eq!(again().await, None, "a snapshot");
        storage.inner.lock().files.insert(name, file);
        assert_eq!(again().await, Some(seen()));
        for other in [None, Some(Key::parse(&"5b".repeat(32)).unwrap())] {
            let is_same = other.is_none() && key.is_none();
            assert_eq!(last_seen(&storage, other.as_ref(), "10.0.0.1:6443", "ca").await.is_some(), is_same);
        }
    }
}

/// If it cannot be kept which cluster this is, no other one may stay in its place.
#[tokio::test]
async fn a_cluster_that_cannot_be_kept_leaves_none() {
    for operations in 0..6 {
        let storage = Memory::default();
        let kept = snapshots(&storage, None);
        assert!(kept.keep_last_seen(seen()).await);
        storage.inner.lock().operations = Some(operations);
        let cluster = Cluster { uid: "another".into(), ..seen().cluster };
        let another = LastSeen { cluster, ..seen() };
        let is_kept = kept.keep_last_seen(another.clone()).await;
        storage.inner.lock().operations = None;
        assert_eq!(is_kept, operations >= 5, "create, header, block, sync, rename: {operations}");
        let found = last_seen(&storage, None, "10.0.0.1:6443", "ca").await;
        assert_eq!(found, is_kept.then_some(another.clone()), "{operations}");
        // A process that may not write here removes nothing either.
        assert!(kept.keep_last_seen(seen()).await);
        storage.inner.lock().operations = Some(0);
        assert!(!snapshots(&storage, None).keep_last_seen(another).await);
        storage.inner.lock().operations = None;
        assert_eq!(last_seen(&storage, None, "10.0.0.1:6443", "ca").await, Some(seen()));
    }
}
