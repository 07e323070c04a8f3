//! Watches that are kept open: what they say, event by event, and what every watch promises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use informerd::lifecycle;
use parking_lot::Mutex;
use prost::Message;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::compare::{without_lot, without_window};
use super::support::proto::{Envelope, Metadata, WatchEvent};
use super::wire::{Answer, Ask, End, Endpoint};

/// A watch that is read as fast as it speaks.
pub(crate) struct Recorder {
    said: Arc<Mutex<Said>>,
    task: JoinHandle<()>,
}

struct Said {
    answer: Answer,
    /// The bytes that `newest` has read, and what it found in them.
    read: usize,
    newest: u64,
}

/// One event as it was sent, without its framing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub bytes: Vec<u8>,
    pub kind: String,
    pub key: String,
    pub rv: u64,
    /// A bookmark that says that the state is complete.
    pub marks_end: bool,
}

// === impl Recorder ===

impl Recorder {
    /// Opens it; returns once its head is there.
    pub(crate) async fn open(endpoint: &Endpoint, ask: &Ask, longest: Duration) -> Result<Self, String> {
        let mut response = tokio::time::timeout(longest, endpoint.open(ask))
            .await
            .map_err(|_| format!("{}: no head in time", ask.target))?
            .map_err(|error| format!("{}: {error}", ask.target))?;
        let said = Arc::new(Mutex::new(Said { answer: response.head.clone(), read: 0, newest: 0 }));
        let ours = Arc::clone(&said);
        let task = lifecycle::spawn("differential-watch", async move {
            loop {
                let next = response.next().await;
                let answer = &mut ours.lock().answer;
                answer.end = match next {
                    Ok(Some(piece)) => {
                        answer.body.extend_from_slice(&piece);
                        continue;
                    }
                    Ok(None) => End::Clean,
                    Err(_) => End::Cut,
                };
                return;
            }
        });
        Ok(Self { said, task })
    }

    /// Everything so far.
    pub(crate) fn answer(&self) -> Answer {
        self.said.lock().answer.clone()
    }

    fn bytes(&self) -> usize {
        self.said.lock().answer.body.len()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.said.lock().answer.end != End::Open
    }

    /// The revision of the newest event that is no bookmark: sides that started elsewhere have different numbers of them.
    /// Each byte is parsed once, and what is no event counts as none.
    fn newest(&self) -> u64 {
        let mut said = self.said.lock();
        let Said { answer, read, newest } = &mut *said;
        let rest = &answer.body[*read..];
        let whole = complete(is_protobuf(answer), rest);
        let found = events_of(is_protobuf(answer), &rest[..whole]).unwrap_or_default();
        let rvs = found.iter().filter(|event| event.kind != "BOOKMARK").map(|event| event.rv);
        *newest = rvs.fold(*newest, u64::max);
        *read += whole;
        *newest
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until both sides of every pair have as many events and none comes any more; not for ever: whoever compares
/// then finds the difference.
pub(crate) async fn come_to_rest(pairs: &[&[Recorder; 2]], longest: Duration) {
    let bound = Instant::now() + longest;
    let mut before = Vec::new();
    let mut still = 0;
    loop {
        let sizes: Vec<[usize; 2]> = pairs.iter().map(|pair| [pair[0].bytes(), pair[1].bytes()]).collect();
        // One that has ended will not come nearer.
        let equal = pairs.iter().all(|[a, b]| a.newest() == b.newest() || a.has_ended() || b.has_ended());
        still = if equal && sizes == before { still + 1 } else { 0 };
        if still >= 4 || Instant::now() > bound {
            return;
        }
        before = sizes;
        sleep(Duration::from_millis(400)).await;
    }
}

/// The events of a stream of either encoding.
pub(crate) fn events(answer: &Answer) -> Result<Vec<Event>, String> {
    events_of(is_protobuf(answer), &answer.body)
}

fn is_protobuf(answer: &Answer) -> bool {
    answer.header("content-type").unwrap_or_default().contains("protobuf")
}

pub(crate) fn events_of(protobuf: bool, body: &[u8]) -> Result<Vec<Event>, String> {
    if protobuf { proto_events(body) } else { json_events(body) }
}

/// How many of these bytes are whole events.
pub(crate) fn complete(protobuf: bool, body: &[u8]) -> usize {
    if protobuf {
        return frames(body).map(|frame| 4 + frame.len()).sum();
    }
    memchr::memrchr(b'\n', body).map_or(0, |end| end + 1)
}

/// The whole ones.
fn frames(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = body.split_first_chunk()?;
        let (frame, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        body = rest;
        Some(frame)
    })
}

fn json_events(body: &[u8]) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for line in body.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let value: serde_json::Value =
            serde_json::from_slice(line).map_err(|error| format!("{error}: {}", String::from_utf8_lossy(line)))?;
        let meta = &value["object"]["metadata"];
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        events.push(Event {
            bytes: line.to_vec(),
            kind: text(&value["type"]),
            key: format!("{}/{}", text(&meta["namespace"]), text(&meta["name"])),
            rv: text(&meta["resourceVersion"]).parse().unwrap_or(0),
            marks_end: meta["annotations"]["k8s.io/initial-events-end"] == "true",
        });
    }
    Ok(events)
}

fn proto_events(body: &[u8]) -> Result<Vec<Event>, String> {
    frames(body).map(|frame| proto_event(frame).ok_or_else(|| format!("no watch event: {frame:?}"))).collect()
}

fn proto_event(frame: &[u8]) -> Option<Event> {
    let event = WatchEvent::decode(frame).ok()?;
    let kind = event.kind.clone();
    let envelope = Envelope::open(&event.object())?;
    let meta = if envelope.is_status() { Metadata::default() } else { envelope.metadata().unwrap_or_default() };
    Some(Event {
        bytes: frame.to_vec(),
        kind,
        key: meta.key(),
        rv: meta.resource_version.parse().unwrap_or(0),
        marks_end: meta.has_annotation(b"k8s.io/initial-events-end", b"true"),
    })
}

/// Where two streams of one watch may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// After a revision that was named: the same events.
    Named,
    /// Wherever the server is: the same state in the end, and the same events once both are past their beginnings.
    Anywhere,
}

/// What is wrong with two streams of one request; nothing if they are as good as one. Both were open at the revision
/// `opened`: wherever they began, all that came after it they must tell.
pub(crate) fn differences(answers: &[Answer; 2], start: Start, opened: u64, bookmarks: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut parsed = Vec::new();
    for (side, answer) in ["direct", "through"].iter().zip(answers) {
        match events(answer) {
            Ok(events) => {
                wrong.extend(
                    broken_promises(&events, bookmarks, start).into_iter().map(|what| format!("{side}: {what}")),
                );
                parsed.push(events);
            }
            Err(error) => wrong.push(format!("{side}: {error}")),
        }
    }
    let [direct, through] = &parsed[..] else { return wrong };
    let after = match start {
        Start::Named => 0,
        Start::Anywhere => both_began(direct, through).min(opened),
    };
    let live = |events: &[Event]| -> Vec<Event> {
        events.iter().filter(|event| event.kind != "BOOKMARK" && event.rv > after).cloned().collect()
    };
    let (want, have) = (live(direct), live(through));
    if want != have {
        let at = want.iter().zip(&have).position(|(a, b)| a != b).unwrap_or_else(|| want.len().min(have.len()));
        let show = |events: &[Event]| {
            events.get(at).map_or("nothing more".to_owned(), |event| {
                super::report::excerpt(&event.bytes, first_difference(want.get(at), have.get(at)))
            })
        };
        wrong.push(format!(
            "event {at} of {} / {} (after {after})\n    direct:  {}\n    through: {}",
            want.len(),
            have.len(),
            show(&want),
            show(&have)
        ));
    }
    if start == Start::Anywhere {
        let (mut want, mut have) = (BTreeMap::new(), BTreeMap::new());
        replay(&mut want, direct);
        replay(&mut have, through);
        if want != have {
            let odd: Vec<_> = want.keys().chain(have.keys()).filter(|key| want.get(*key) != have.get(*key)).collect();
            wrong.push(format!("the state in the end differs in {odd:?}"));
        }
    }
    let (want, have) = (errors(direct), errors(through));
    if want != have {
        wrong.push(format!("errors: {want:?} / {have:?}"));
    }
    for marks_end in [true, false] {
        let (want, have) = (shapes_of_bookmarks(direct, marks_end), shapes_of_bookmarks(through, marks_end));
        // A message tells its length, in which the number counts.
        for (digits, want) in &want {
            if have.get(digits).is_some_and(|have| have != want) {
                wrong.push(format!("bookmarks: {want:?} / {:?}", have[digits]));
            }
        }
        if marks_end && want.is_empty() != have.is_empty() {
            wrong.push(format!("the end of the state is marked by one only: {want:?} / {have:?}"));
        }
    }
    wrong
}

/// What a stream says of its own end, which is of no revision.
fn errors(events: &[Event]) -> Vec<String> {
    let errors = events.iter().filter(|event| event.kind == "ERROR").map(|event| event.bytes.clone());
    errors.map(|error| String::from_utf8_lossy(&without_lot(without_window(error))).into_owned()).collect()
}

fn first_difference(want: Option<&Event>, have: Option<&Event>) -> Option<usize> {
    let (want, have) = (want?, have?);
    want.bytes.iter().zip(&have.bytes).position(|(a, b)| a != b)
}

/// The revision at which a stream that starts anywhere started; what it says of the state is not newer.
fn beginning(events: &[Event]) -> u64 {
    let marked = events.iter().find(|event| event.marks_end).map(|event| event.rv);
    // Without a mark the state ends with the first event that is older than one before it, or no ADDED; the newest
    // object of it is a bound that is low enough for what follows to be complete.
    marked.unwrap_or_else(|| {
        let mut newest = 0;
        for event in events {
            if event.kind != "ADDED" || event.key.is_empty() {
                break;
            }
            newest = newest.max(event.rv);
        }
        newest
    })
}

/// What a client that held this holds in the end.
pub(crate) fn replay(state: &mut BTreeMap<String, u64>, events: &[Event]) {
    for event in events {
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => drop(state.insert(event.key.clone(), event.rv)),
            "DELETED" => drop(state.remove(&event.key)),
            _ => {}
        }
    }
}

/// Bookmarks without their revisions, by how many digits those have.
fn shapes_of_bookmarks(events: &[Event], marks_end: bool) -> BTreeMap<usize, BTreeSet<String>> {
    let mut shapes = BTreeMap::<usize, BTreeSet<String>>::new();
    for mark in events.iter().filter(|event| event.kind == "BOOKMARK" && event.marks_end == marks_end) {
        let revision = mark.rv.to_string();
        let shape = String::from_utf8_lossy(&mark.bytes).replace(&revision, "N");
        shapes.entry(revision.len()).or_default().insert(shape);
    }
    shapes
}

/// The revision from which on two streams of a state must tell the same. A state whose end is marked ends there. One that
/// is not may hold all that came before its first live event, deletions too, of which no object in it tells.
fn both_began(direct: &[Event], through: &[Event]) -> u64 {
    let known = beginning(direct).max(beginning(through));
    let is_marked = |events: &[Event]| events.iter().any(|event| event.marks_end);
    if is_marked(direct) && is_marked(through) {
        return known;
    }
    let first = |events: &[Event]| {
        events.iter().find(|event| event.kind != "BOOKMARK" && event.rv > known).map(|event| event.rv - 1)
    };
    match (first(direct), first(through)) {
        (Some(direct), Some(through)) => direct.max(through),
        (None, None) => known,
        // What one tells the other's state may hold; the states in the end are compared.
        _ => u64::MAX,
    }
}

/// What a watch promises whatever it starts from.
fn broken_promises(events: &[Event], bookmarks: bool, start: Start) -> Vec<String> {
    let mut broken = Vec::new();
    let mut held: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut last, mut mark) = (0, 0);
    // The state comes in the order of the keys, whatever the revisions; it is over with what does not fit.
    let mut initial = start == Start::Anywhere;
    let mut key_before = String::new();
    for (n, event) in events.iter().enumerate() {
        let what = || format!("event {n}, {} of {} at {}", event.kind, event.key, event.rv);
        match event.kind.as_str() {
            "BOOKMARK" => {
                if !bookmarks {
                    broken.push(format!("{}: nobody asked for it", what()));
                }
                if event.marks_end && (start == Start::Named || mark > 0) {
                    broken.push(format!("{}: marks the end of the state twice, or of none", what()));
                }
                if event.rv < mark || event.rv < last {
                    broken.push(format!("{}: goes back from {}", what(), mark.max(last)));
                }
                mark = event.rv;
                initial = initial && !event.marks_end;
            }
            "ADDED" | "MODIFIED" | "DELETED" => {
                if initial && (event.kind != "ADDED" || event.key <= key_before) {
                    initial = false;
                }
                if initial {
                    key_before.clone_from(&event.key);
                    last = last.max(event.rv);
                    held.insert(&event.key, event.rv);
                    continue;
                }
                if event.rv <= mark.max(last) {
                    broken.push(format!("{}: not after {}", what(), mark.max(last)));
                }
                let holds = held.contains_key(event.key.as_str());
                if start == Start::Anywhere && holds == (event.kind == "ADDED") {
                    broken.push(format!("{}: {}held", what(), if holds { "" } else { "not " }));
                }
                if event.kind == "DELETED" {
                    held.remove(event.key.as_str());
                } else {
                    held.insert(&event.key, event.rv);
                }
                last = last.max(event.rv);
            }
            "ERROR" if n + 1 < events.len() => broken.push(format!("{}: something follows it", what())),
            _ => {}
        }
    }
    broken
}
