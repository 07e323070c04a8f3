//! Files that were damaged, torn or forged, and disks that fail: never a wrong object, never a panic. At worst, the
//! state is listed.

use super::testing::*;
use super::*;
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
