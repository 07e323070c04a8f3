//! Snapshots on disk: whole files, the records of one block, and records written here, against a map of their objects.

use std::collections::BTreeMap;

use informerd::cache::{self, CacheConfig, Restoration, WatchCache, Writer};
use informerd::codec::{Form, json::Style};
use informerd::meta::{Encoding, Gvr, Scope};
use informerd::packing::{Packing, PackingConfig, PackingForm};
use informerd::snapshots::{read, read_records};

use super::pods::raw;

/// Keys and revisions.
type Model = BTreeMap<String, u64>;

const NAMES: [&str; 8] = ["a/a", "a/a-", "a/b", "a-b/a", "b/a", "b/é", "n", "z/z"];
const ITEM: &[u8] =
    br#"{"metadata":{"resourceVersion":"0000"},"data":"some text that is long enough to be a difference"},"#;
const FIRST: u64 = 1000;

pub fn check(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 3 {
        0 => is_sound(|restoration| read(data, None, restoration)),
        1 => is_sound(|restoration| read_records(data, restoration)),
        _ => against_model(data),
    }
}

/// Whatever the bytes are, what is taken from them is a state in order, whose objects can be read.
fn is_sound(load: impl FnOnce(&mut Restoration) -> bool) {
    let (mut writer, cache) = empty();
    let mut restoration = writer.restoration();
    if !load(&mut restoration) || writer.restore(restoration).is_err() {
        return;
    }
    let Some(snapshot) = cache.snapshot() else { return };
    let (mut last, scope) = (String::new(), Scope::all());
    for object in snapshot.range(&scope, None) {
        assert!(object.key.as_str() > last.as_str(), "{} after {last}", object.key);
        assert!(object.rv <= snapshot.rv());
        object.key.as_str().clone_into(&mut last);
        // Packed bytes were unpacked once. Forged ones may be anything, of the length that they say.
        let raw = raw(object);
        assert_eq!(raw.item().len(), object.item_len());
        let _ = (raw.metadata(), raw.slice(raw.rv_range()), object.attributes.labels().count());
    }
}

/// Records that follow each other give the state of a map; the first one that does not is refused.
fn against_model(data: &[u8]) {
    let (mut model, mut out, mut rv) = (Model::new(), Vec::new(), FIRST);
    let (held, changes) = data.split_first().map_or((0, data), |(held, rest)| (*held, rest));
    let mut names = NAMES;
    names.sort_unstable();
    for (bit, name) in names.iter().enumerate() {
        if held >> bit & 1 == 1 {
            object(&mut out, 2, name, FIRST - bit as u64, None);
            model.insert((*name).to_owned(), FIRST - bit as u64);
        }
    }
    out.push(3);
    number(&mut out, FIRST);
    number(&mut out, model.len() as u64);
    let mut fits = true;
    for change in changes.iter().take(64) {
        let (name, step, kind) = (NAMES[usize::from(change & 7)], u64::from(change >> 3 & 3), change >> 5 & 3);
        if kind == 3 {
            out.push(5);
            number(&mut out, rv + step);
            number(&mut out, 0);
            rv += step;
            continue;
        }
        let before = model.get(name).copied();
        fits = step > 0 && before.is_some() == (kind > 0);
        out.extend([4, kind]);
        object(&mut out, 0, name, rv + step, before.filter(|_| change >> 7 == 1));
        if !fits {
            break;
        }
        rv += step;
        match kind {
            2 => model.remove(name),
            _ => model.insert(name.to_owned(), rv),
        };
    }
    let (mut writer, cache) = empty();
    let mut restoration = writer.restoration();
    // Deletions of one revision are allowed.
    let read = read_records(&out, &mut restoration);
    assert!(read || !fits, "records that follow each other are refused");
    if !fits || !read {
        return;
    }
    restoration.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "Pod", "PodList"));
    writer.restore(restoration).expect("it is complete");
    assert_eq!(cache.resource_version().get(), rv);
    let snapshot = cache.snapshot().expect("it is ready");
    let scope = Scope::all();
    let all: Vec<_> = snapshot.range(&scope, None).map(|object| (object.key.to_string(), object.rv.get())).collect();
    assert_eq!(all, model.into_iter().collect::<Vec<_>>());
    for object in snapshot.range(&scope, None) {
        assert_eq!(raw(object).framed(), item(object.rv.get()));
    }
}

fn empty() -> (Writer, WatchCache) {
    let packing = Packing::new(PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes: 0 });
    cache::new(CacheConfig { packing, ..CacheConfig::new(Gvr::new("", "v1", "pods")) })
}

fn item(rv: u64) -> Vec<u8> {
    let mut item = ITEM.to_vec();
    item[32..36].copy_from_slice(format!("{rv:04}").as_bytes());
    item
}

/// An object, after the kind of its record unless that is zero: whole, or as the difference from the version at `before`.
fn object(out: &mut Vec<u8>, record: u8, key: &str, rv: u64, before: Option<u64>) {
    if record > 0 {
        out.push(record);
    }
    bytes(out, key.as_bytes());
    number(out, rv);
    // Attributes: the uid alone.
    bytes(out, b"u");
    for n in [0, 1, 1] {
        number(out, n);
    }
    // The layout.
    number(out, ITEM.len() as u64);
    out.extend([0, 1]);
    for n in [12, 37, 32, 36] {
        number(out, n);
    }
    let Some(_) = before else {
        out.push(0);
        return bytes(out, &item(rv));
    };
    let mut delta = Vec::new();
    number(&mut delta, 32 << 1 | 1);
    number(&mut delta, 0);
    number(&mut delta, 4 << 1);
    delta.extend(format!("{rv:04}").as_bytes());
    number(&mut delta, ((ITEM.len() as u64 - 36) << 1) | 1);
    number(&mut delta, 36);
    out.push(2);
    number(out, ITEM.len() as u64);
    bytes(out, &delta);
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
