//! Objects, lists and watches out of nothing.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::read::{EventSource, ListAnswer, ObjectSource, WatchAnswer, WatcherEvent};
use crate::codec::json::{self, Style};
use crate::codec::{Form, ListMetaOut, Shape};
use crate::meta::{Encoding, EventType, FieldTable, Object, ResourceVersion};

pub(super) fn form() -> Arc<Form> {
    Arc::new(Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList"))
}

/// The item of a config map, without kind and apiVersion.
pub(super) fn item(number: usize, size: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"c{number}","namespace":"a","uid":"u{number}","resourceVersion":"{}"}},"data":{{"k":"{}"}}}}"#,
        number + 1,
        "x".repeat(size)
    )
}

pub(super) fn object(number: usize, size: usize) -> Arc<Object> {
    Arc::new(json::parse_item(item(number, size).as_bytes(), &FieldTable::default()).unwrap().0)
}

/// Gives `objects` objects, and nothing on every third call.
pub(super) struct Objects {
    next: usize,
    objects: usize,
    size: usize,
    calls: usize,
}

impl ObjectSource for Objects {
    fn next(&mut self, max: usize, into: &mut Vec<Arc<Object>>) -> bool {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return true;
        }
        let until = self.objects.min(self.next + max);
        into.extend((self.next..until).map(|number| object(number, self.size)));
        self.next = until;
        self.next < self.objects
    }
}

pub(super) fn list(objects: usize, size: usize) -> ListAnswer {
    ListAnswer {
        form: form(),
        shape: Shape::Full,
        meta: ListMetaOut { rv: ResourceVersion(99), ..ListMetaOut::default() },
        items: Box::new(Objects { next: 0, objects, size, calls: 0 }),
        identity: None,
    }
}

pub(super) fn inflate(compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(compressed), &mut plain).unwrap();
    plain
}

/// What that list is to read.
pub(super) fn list_text(objects: usize, size: usize) -> String {
    let items: Vec<String> = (0..objects).map(|number| item(number, size)).collect();
    format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"99\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
}

/// A watch fed by a channel; asked to end, it says a bookmark.
pub(super) struct Events {
    receiver: mpsc::Receiver<WatcherEvent>,
    ending: bool,
}

impl EventSource for Events {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        match self.receiver.poll_recv(cx) {
            Poll::Pending if self.ending => {
                self.receiver.close();
                Poll::Ready(Some(WatcherEvent::Bookmark { rv: ResourceVersion(500), initial_end: false }))
            }
            polled => polled,
        }
    }

    fn end(&mut self) {
        self.ending = true;
    }

    fn bookmark_template(&self) -> Option<Bytes> {
        None
    }
}

pub(super) fn watch() -> (mpsc::Sender<WatcherEvent>, WatchAnswer) {
    let (sender, receiver) = mpsc::channel(1000);
    let events = Box::new(Events { receiver, ending: false });
    (sender, WatchAnswer { form: form(), shape: Shape::Full, events })
}

pub(super) fn added(number: usize, size: usize) -> WatcherEvent {
    WatcherEvent::Event { kind: EventType::Added, object: object(number, size), rv: None }
}

/// What that event is to read.
pub(super) fn added_text(number: usize, size: usize) -> String {
    let item = item(number, size);
    format!("{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",{}}}\n", &item[1..])
}

pub(super) const LAST_BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"500\"";
