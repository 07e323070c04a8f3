//! Whatever the form, the bytes are the same, and the counts return to zero.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn object(i: usize) -> Bytes {
    let labels: String = (0..8).map(|n| format!("\"label-{n}\":\"value-{}\",", (i * 7 + n) % 40)).collect();
    format!(
        "{{\"metadata\":{{\"name\":\"object-{i}\",\"uid\":\"{:032x}\",\"labels\":{{{labels}\"last\":\"\"}}}},\
         \"spec\":{{\"replicas\":{i},\"image\":\"registry.example.com/team/program:{i}\"}}}}",
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
    .into()
}

fn packing(hot_bytes: usize) -> Packing {
    Packing::new(PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes })
}

fn trained(packing: &Packing) -> Packer {
    let packer = packing.packer(None);
    let samples: Vec<Bytes> = (0..200).map(object).collect();
    packer.train(&samples, 1 << 20);
    packer
}

fn both() -> (Packing, Packer) {
    let packing = packing(0);
    let packer = trained(&packing);
    (packing, packer)
}

#[test]
fn bytes_stay_the_same_and_become_few() {
    let (packing, packer) = both();
    let bodies: Vec<Body> = (1000..1100).map(|i| Body::new(object(i))).collect();
    let plain: usize = bodies.iter().map(Body::size).sum();
    for body in &bodies {
        assert!(matches!(body.pack(&packer, 0), Visit::NowPacked { .. }));
        assert_eq!(body.pack(&packer, 0), Visit::Packed);
    }
    drop(packer);
    let packed: usize = bodies.iter().map(Body::size).sum();
    assert!(packed * 3 < plain, "{packed} of {plain}");
    for (i, body) in (1000..).zip(&bodies) {
        assert_eq!(body.bytes(Reading::Answer).unwrap(), object(i));
        assert!(body.is_packed());
    }
    assert_eq!(packing.stats().objects, 100);
    assert_eq!(packing.stats().unpacked_total, 100);
    drop(bodies);
    let stats = packing.stats();
    assert_eq!((stats.objects, stats.saved_bytes, stats.hot_bytes), (0, 0, 0));
}

#[test]
fn what_is_read_again_stays_plain_within_the_budget() {
    let packing = packing(object(1).len() + object(2).len());
    let packer = trained(&packing);
    let bodies: Vec<Body> = (1..4).map(|i| Body::new(object(i))).collect();
    for body in &bodies {
        body.pack(&packer, MOST_READS);
        // A scan reads everything once.
        body.bytes(Reading::Answer).unwrap();
        assert!(body.is_packed());
    }
    for body in &bodies {
        body.bytes(Reading::Answer).unwrap();
    }
    assert_eq!(bodies.iter().map(Body::is_packed).collect::<Vec<_>>(), [false, false, true]);
    assert!(!packing.is_hot());
    // Two reads are above the bar, then one, then none.
    for expected in [Visit::Hot(object(1).len()), Visit::Hot(object(1).len())] {
        assert_eq!(bodies[0].pack(&packer, 0), expected);
    }
    assert!(matches!(bodies[0].pack(&packer, 0), Visit::NowPacked { .. }));
}

#[test]
fn small_and_random_bytes_stay_plain() {
    let (packing, packer) = both();
    let small = Body::new(Bytes::from_static(b"{\"metadata\":{}}"));
    assert_eq!(small.pack(&packer, 0), Visit::Plain);
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(4096)
    .collect();
    let noise = Body::new(noise.into());
    assert_eq!(noise.pack(&packer, 0), Visit::Plain);
    assert_eq!(noise.pack(&packer, 0), Visit::Plain);
    assert_eq!(packing.stats().objects, 0);
}

#[test]
fn without_a_dictionary_everything_stays_plain() {
    let packer = packing(0).packer(None);
    let body = Body::new(object(1));
    assert_eq!(body.pack(&packer, 0), Visit::Plain);
    packer.train(&[], 1 << 20);
    assert!(!packer.is_trained());
    // Then it is tried again.
    packer.train(&[object(2)], 1 << 20);
    assert!(matches!(body.pack(&packer, 0), Visit::NowPacked { .. }));
}

#[test]
fn forms_decide_when() {
    let auto = Packing::new(PackingConfig { form: PackingForm::Auto, threshold: 10 << 20, hot_bytes: 0 });
    assert!(!auto.packer(None).is_wanted(10 << 20, 5 << 20));
    assert!(auto.packer(None).is_wanted(11 << 20, 5 << 20));
    assert!(!auto.packer(None).is_wanted(11 << 20, 5 << 10), "too small to be worth a dictionary");
    assert!(!auto.packer(Some(PackingForm::Plain)).is_wanted(usize::MAX, usize::MAX));
    assert!(auto.packer(Some(PackingForm::Packed)).is_wanted(0, 1 << 20));
    // While a state is read: a large one, and a small one if the caches hold much already.
    assert!(auto.packer(None).is_wanted_early(11 << 20, 2 << 20));
    assert!(!auto.packer(None).is_wanted_early(10 << 20, 2 << 20));
    assert!(!auto.packer(None).is_wanted_early(14 << 20, 1 << 20));
    assert!(auto.packer(None).is_wanted_early(15 << 20, 1 << 20));
    assert!(!auto.packer(None).is_wanted_early(15 << 20, 5 << 10));
    // What was saved counts as if it were plain, so that packing does not end itself.
    let packer = trained(&auto);
    let bodies: Vec<Body> = (0..2000).map(|i| Body::new(object(i))).collect();
    bodies.iter().for_each(|body| assert!(matches!(body.pack(&packer, 0), Visit::NowPacked { .. })));
    let saved = usize::try_from(auto.stats().saved_bytes).unwrap();
    assert!(!auto.packer(None).is_wanted((10 << 20) - saved, 5 << 20));
    assert!(auto.packer(None).is_wanted((10 << 20) - saved + 1, 5 << 20));
}

#[test]
fn a_dictionary_that_no_longer_fits_is_replaced_after_a_while() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let packing = packing(0);
        let packer = trained(&packing);
        let other = |i: usize| -> Bytes {
            let text: String = (0..60).map(|n| format!("{:x}-{}-", i * n * 31, "abcdefgh".repeat(n % 3))).collect();
            text.into()
        };
        for i in 0..3000 {
            Body::new(object(i)).pack(&packer, 0);
        }
        assert!(!packer.needs_training());
        for i in 0..3000 {
            Body::new(other(i)).pack(&packer, 0);
        }
        assert!(!packer.needs_training(), "too soon");
        tokio::time::advance(std::time::Duration::from_secs(601)).await;
        assert!(packer.needs_training());
        let samples: Vec<Bytes> = (0..200).map(other).collect();
        packer.train(&samples, 1 << 20);
        assert!(!packer.needs_training());
        assert_eq!(packing.stats().trained_total, 2);
    });
}

proptest! {
    #[test]
    fn any_bytes_come_back(
        samples in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..8),
        repeats in 1usize..20,
        plain in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let packing = packing(usize::MAX);
        let packer = packing.packer(None);
        let samples: Vec<Bytes> = samples.into_iter().map(Bytes::from).collect();
        packer.train(&samples, 1 << 14);
        for plain in samples.iter().cloned().chain([Bytes::from(plain.repeat(repeats))]) {
            let body = Body::new(plain.clone());
            body.pack(&packer, 0);
            for _ in 0..3 {
                prop_assert_eq!(&body.bytes(Reading::Answer).unwrap(), &plain);
            }
            prop_assert!(!body.is_packed());
        }
        drop(packer);
        let stats = packing.stats();
        prop_assert_eq!((stats.objects, stats.saved_bytes, stats.hot_bytes), (0, 0, 0));
    }
}

struct Versioned(Body);

impl Version for Versioned {
    fn body(&self) -> &Body {
        &self.0
    }
}

#[test]
fn replaced_versions_are_differences_from_the_next() {
    let text =
        |i: usize| -> Bytes { [&object(1)[..], format!("{{\"resourceVersion\":\"{i}\"}}").as_bytes()].concat().into() };
    let versions: Vec<_> = (0..100).map(|i| Arc::new(Versioned(Body::new(text(i))))).collect();
    for pair in versions.windows(2) {
        pair[0].0.replaced_by(&pair[1]);
    }
    let plain: Vec<_> = (0..100).filter(|at| !versions[*at].0.is_packed()).collect();
    assert_eq!(plain, [32, 65, 98, 99], "after every 32 differences, one stays plain");
    assert!(versions[0].0.size() <= 64 && versions[0].0.most_size() == versions[0].0.size());
    for (i, version) in versions.iter().enumerate() {
        assert_eq!(version.0.bytes(Reading::Answer).unwrap(), text(i));
    }
    // Whatever form the next version takes, and whoever still holds it.
    let packer = trained(&packing(0));
    for version in versions.iter().rev() {
        version.0.pack(&packer, MOST_READS);
    }
    for (i, version) in versions.into_iter().enumerate() {
        assert_eq!(version.0.bytes(Reading::Answer).unwrap(), text(i));
    }
}

fn version(name: usize, rv: usize) -> Arc<Versioned> {
    Arc::new(Versioned(Body::new([&object(name)[..], format!("{{\"rv\":\"{rv}\"}}").as_bytes()].concat().into())))
}

#[test]
fn versions_share_the_packed_bytes_of_an_earlier_one() {
    let (packing, packer) = both();
    let mut current = version(1000, 0);
    assert!(matches!(current.0.pack(&packer, 0), Visit::NowPacked { .. }));
    let packed = current.0.size();
    for rv in 1..20 {
        let next = version(1000, rv);
        current.0.replaced_by(&next);
        assert!(current.0.is_packed());
        assert!(matches!(next.0.pack(&packer, 0), Visit::NowPacked { packed: delta, .. } if delta * 3 < packed));
        assert_eq!(next.0.bytes(Reading::Answer).unwrap(), version(1000, rv).0.bytes(Reading::Answer).unwrap());
        assert_eq!(packing.stats().objects, 2);
        current = next;
    }
    // A version that has little in common with them is packed on its own.
    let other = version(2, 20);
    current.0.replaced_by(&other);
    drop(current);
    assert!(matches!(other.0.pack(&packer, 0), Visit::NowPacked { packed: size, .. } if size * 2 > packed));
    assert_eq!(other.0.bytes(Reading::Answer).unwrap(), version(2, 20).0.bytes(Reading::Answer).unwrap());
    drop((other, packer));
    assert_eq!((packing.stats().objects, packing.stats().saved_bytes), (0, 0));
}

#[test]
fn what_versions_share_counts_once() {
    let (packing, packer) = both();
    let dictionary = packing.stats().saved_bytes;
    let versions: Vec<_> = (0..3).map(|rv| version(1000, rv)).collect();
    let plain: usize = versions.iter().map(|version| version.0.size()).sum();
    for pair in versions.windows(2) {
        pair[0].0.pack(&packer, 0);
        pair[0].0.replaced_by(&pair[1]);
    }
    versions[2].0.pack(&packer, 0);
    let now: usize = versions.iter().map(|version| version.0.size()).sum();
    let saved = usize::try_from(packing.stats().saved_bytes - dictionary).unwrap();
    let shared = plain - now - saved;
    assert!((1..=80).contains(&shared), "{shared}: what is shared has a place of its own");
    assert_eq!(versions.iter().map(|version| version.0.most_size()).sum::<usize>(), plain);
}

#[test]
fn little_that_is_left_of_an_object_does_not_keep_all_of_it() {
    let (_packing, packer) = both();
    let mut objects: Vec<u8> = (0..100).flat_map(object).collect();
    let large = Arc::new(Versioned(Body::new(objects.clone().into())));
    large.0.pack(&packer, 0);
    let packed = large.0.size();
    objects.truncate(object(0).len() + object(1).len());
    let small = Arc::new(Versioned(Body::new(objects.into())));
    large.0.replaced_by(&small);
    small.0.pack(&packer, 0);
    drop(large);
    assert!(small.0.is_packed() && small.0.size() * 10 < packed, "{} of {packed}", small.0.size());
}

#[test]
fn what_cannot_be_packed_keeps_no_earlier_version() {
    let (packing, packer) = both();
    let dictionary = packing.stats().saved_bytes;
    for next in [&b"{}"[..], &(0..600u32).map(|i| ((i * i * 7919) >> 7) as u8).collect::<Vec<_>>()] {
        let (before, after) = (version(1000, 0), Arc::new(Versioned(Body::new(Bytes::copy_from_slice(next)))));
        before.0.pack(&packer, 0);
        before.0.replaced_by(&after);
        assert_eq!(after.0.pack(&packer, 0), Visit::Plain);
        drop(before);
        assert_eq!((packing.stats().objects, packing.stats().saved_bytes), (0, dictionary));
    }
}

#[test]
fn a_new_dictionary_replaces_the_old_one_with_the_next_change() {
    let (packing, packer) = both();
    let (first, second) = (version(1000, 0), version(1000, 1));
    first.0.pack(&packer, 0);
    let packed = first.0.size();
    let samples: Vec<Bytes> = (200..400).map(object).collect();
    packer.train(&samples, 1 << 20);
    let both = packing.stats().saved_bytes;
    first.0.replaced_by(&second);
    assert!(matches!(second.0.pack(&packer, 0), Visit::NowPacked { packed: size, .. } if size * 2 > packed));
    drop(first);
    assert!(packing.stats().saved_bytes > both, "the old dictionary is gone");
}

proptest! {
    #[test]
    fn versions_stay_the_same_in_any_form(
        steps in prop::collection::vec((0usize..4, 0usize..3, any::<prop::sample::Index>()), 1..60),
    ) {
        let packing = packing(2000);
        let packer = trained(&packing);
        let mut versions = vec![(version(1000, 0), version(1000, 0).0.bytes(Reading::Answer).unwrap())];
        for (n, (step, name, index)) in steps.into_iter().enumerate() {
            let (chosen, bytes) = versions.get(index.index(versions.len())).unwrap();
            match step {
                0 => {
                    let next = version([1000, 1000, 2][name], n + 1);
                    let bytes = next.0.bytes(Reading::Upkeep).unwrap();
                    versions.last().unwrap().0.0.replaced_by(&next);
                    versions.push((next, bytes));
                }
                1 => drop(chosen.0.pack(&packer, name as u8)),
                2 => prop_assert_eq!(&chosen.0.bytes(Reading::Answer).unwrap(), bytes),
                // The oldest ones leave the window.
                _ if versions.len() > 1 => drop(versions.remove(0)),
                _ => {}
            }
        }
        for (version, bytes) in &versions {
            let (mut dictionaries, mut out) = (Dictionaries::default(), Vec::new());
            dictionaries.put(&version.0, &mut out).unwrap();
            let dictionary = dictionaries.take_new().map(<[u8]>::to_vec);
            for form in [PackingForm::Packed, PackingForm::Plain] {
                let mut library = Library::new(packing.packer(Some(form)));
                if let Some(dictionary) = &dictionary {
                    library.add(dictionary).unwrap();
                }
                let mut input = &out[..];
                let loaded = library.take(&mut input, bytes.len(), None);
                prop_assert!(loaded.is_some_and(|loaded| loaded.bytes(Reading::Answer).unwrap() == *bytes) && input.is_empty());
            }
        }
        drop((versions, packer));
        let stats = packing.stats();
        prop_assert_eq!((stats.objects, stats.saved_bytes, stats.hot_bytes), (0, 0, 0));
    }
}

#[test]
fn bytes_that_do_not_come_back_are_an_error_in_each_form() {
    let packer = trained(&packing(usize::MAX));
    let packed = || {
        let first = version(1000, 0);
        assert!(matches!(first.0.pack(&packer, 0), Visit::NowPacked { .. }));
        first
    };
    let before = damaged_total();
    let body = packed();
    body.0.spoil();
    for reading in [Reading::Answer, Reading::Upkeep, Reading::Answer] {
        assert_eq!(body.0.bytes(reading), Err(Damaged));
    }
    assert!(damaged_total() >= before + 3, "each is counted");
    assert!(body.0.is_packed(), "it is not taken for what was read");
    assert_eq!(Dictionaries::default().put_after(&body.0, None, &mut Vec::new()), Err(Damaged));
    // What later versions share with it is damaged with it, and so are those that are differences from one of them.
    let (second, third) = (version(1000, 1), version(1000, 2));
    body.0.replaced_by(&second);
    assert_eq!(body.0.bytes(Reading::Answer), Err(Damaged));
    assert!(matches!(second.0.pack(&packer, 0), Visit::NowPacked { .. }), "it is packed on its own");
    assert_eq!(second.0.bytes(Reading::Answer), version(1000, 1).0.bytes(Reading::Answer));
    let plain = version(1000, 3);
    third.0.replaced_by(&plain);
    plain.0.pack(&packer, MOST_READS);
    plain.0.spoil();
    assert_eq!(third.0.bytes(Reading::Answer), Err(Damaged));
}

#[test]
fn saved_bytes_that_do_not_come_back_are_refused() {
    let (packing, packer) = both();
    let (first, second) = (version(1000, 0), version(1000, 1));
    first.0.pack(&packer, 0);
    first.0.replaced_by(&second);
    second.0.pack(&packer, 0);
    let found = damaged_total();
    for body in [&first.0, &second.0] {
        let len = body.bytes(Reading::Upkeep).unwrap().len();
        let (mut dictionaries, mut out) = (Dictionaries::default(), Vec::new());
        dictionaries.put(body, &mut out).unwrap();
        let dictionary = dictionaries.take_new().unwrap().to_vec();
        for form in [PackingForm::Packed, PackingForm::Plain] {
            let mut library = Library::new(packing.packer(Some(form)));
            library.add(&dictionary).unwrap();
            assert!(library.take(&mut &out[..], len, None).is_some());
            assert!(library.take(&mut &out[..], len + 1, None).is_none());
            let mut refused = 0;
            for at in 0..out.len() {
                for bit in 0..8 {
                    let mut changed = out.clone();
                    changed[at] ^= 1 << bit;
                    // Whatever is taken has the length that it says.
                    match library.take(&mut &changed[..], len, None) {
                        Some(taken) => assert_eq!(taken.bytes(Reading::Answer).map(|bytes| bytes.len()), Ok(len)),
                        None => refused += 1,
                    }
                }
            }
            assert!(refused > 0, "{refused} of {}", 8 * out.len());
        }
    }
    assert_eq!(damaged_total(), found, "a damaged file breaks no promise of this process");
}

/// Each body has the dictionary for itself.
#[test]
fn so_many_dictionaries_are_saved_and_what_needs_another_is_stored_plain() {
    let (body, packing) = (version(1000, 0), packing(0));
    body.0.pack(&trained(&packing), 0);
    let len = body.0.bytes(Reading::Upkeep).unwrap().len();
    let (mut dictionaries, mut out) = (Dictionaries::default(), Vec::new());
    dictionaries.put(&body.0, &mut out).unwrap();
    let dictionary = dictionaries.take_new().unwrap().to_vec();
    let library = || Library::new(packing.packer(Some(PackingForm::Packed)));
    let (mut saved, mut last) = (1, Vec::new());
    for _ in 0..70 {
        let mut library = library();
        library.add(&dictionary).unwrap();
        last.clear();
        dictionaries.put(&library.take(&mut &out[..], len, None).unwrap(), &mut last).unwrap();
        saved += usize::from(dictionaries.take_new().is_some());
    }
    let plain = library().take(&mut &last[..], len, None).unwrap();
    assert_eq!(plain.bytes(Reading::Upkeep), body.0.bytes(Reading::Upkeep));
    let mut library = library();
    assert_eq!((saved, (0..70).filter(|_| library.add(&dictionary).is_some()).count()), (64, 64));
}

#[test]
fn upkeep_reads_nothing() {
    let packing = packing(usize::MAX);
    let packer = trained(&packing);
    let (old, body) = (version(1000, 0), version(1000, 1));
    old.0.replaced_by(&body);
    body.0.pack(&packer, 0);
    packer.begin_pass();
    for _ in 0..10 {
        old.0.bytes(Reading::Upkeep).unwrap();
        body.0.bytes(Reading::Upkeep).unwrap();
        Dictionaries::default().put(&old.0, &mut Vec::new()).unwrap();
        Dictionaries::default().put_after(&body.0, Some(&old.0), &mut Vec::new()).unwrap();
    }
    assert!(body.0.is_packed() && !packer.is_read());
    assert_eq!(packing.stats().unpacked_total, 0);
    // Twice read, it stays plain.
    body.0.bytes(Reading::Answer).unwrap();
    assert!(body.0.is_packed() && packer.is_read());
    old.0.bytes(Reading::Answer).unwrap();
    assert!(!body.0.is_packed());
}
