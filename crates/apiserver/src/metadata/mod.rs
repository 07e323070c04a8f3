//! Watches that ask for metadata only. They keep the few members that they need of each event, so an event of any size
//! takes little memory. [`follow`] keeps one open forever.

mod follow;

use std::time::Duration;

use bytes::Bytes;
use memchr::memchr;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

pub use follow::{Collection, Seen, Whole, follow};

pub use super::reader::near_root;

use super::chunks::Chunks;
use super::error::{Cause, UpstreamError};
use super::lenient::nullable;
use informerd_codec::json::Outline;
use informerd_meta::{ResourceVersion, Status};

/// The media types that make the apiserver send only the metadata of objects and lists.
pub const ACCEPT_OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The depth of an event's metadata, and of a Status.
const DEPTH: usize = 3;
/// The depth of the metadata of a page's objects.
const DEPTH_OF_ITEMS: usize = 4;
/// The depth of the metadata of one object, or of a list itself.
pub const DEPTH_OF_METADATA: usize = 2;
/// How much deeper than metadata the conditions of a status are.
const CONDITIONS: usize = 2;
/// The most bytes that are kept of an event. The event itself may have any size.
const MAX_KEPT: usize = 1 << 20;
/// How long one event may take to arrive. Until it is complete, nobody knows what it changes.
const IN_EVENT: Duration = Duration::from_secs(30);

/// A watch of PartialObjectMetadata.
pub struct MetadataStream {
    chunks: Chunks,
    /// Bytes that have arrived and are not in `event` yet.
    rest: Bytes,
    depth: usize,
    event: Outline,
    /// When the first bytes of `event` arrived.
    begun: Option<Instant>,
}

#[derive(Debug)]
pub enum MetadataEvent {
    Changed { deleted: bool, metadata: Metadata },
    Bookmark(ResourceVersion),
    Error(Box<Status>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    #[serde(deserialize_with = "nullable")]
    pub generation: i64,
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    /// Empty unless the object is being deleted.
    #[serde(deserialize_with = "nullable")]
    pub deletion_timestamp: String,
    /// Whether the object's spec names a service, as that of an APIService does whose group version is not served by the
    /// kube-apiserver itself. `None` without a spec, so always where only metadata are read.
    #[serde(skip)]
    pub has_service: Option<bool>,
    /// Where whole objects are read.
    #[serde(skip)]
    pub parts: Option<Parts>,
}

/// What is kept of an object beside its metadata: what is nested as deep as the conditions of its status, without strings
/// of more than 4 KiB.
#[derive(Clone, Debug)]
pub struct Parts {
    pub spec: Option<Box<RawValue>>,
    pub status: Option<Box<RawValue>>,
}

/// A list of PartialObjectMetadata, or just the part of any list that carries its revision. An item that cannot be read
/// makes the list unreadable: an object that is left out would count as absent.
#[derive(Debug, Deserialize)]
pub(crate) struct MetadataList {
    metadata: ListMetadata,
    #[serde(default, deserialize_with = "nullable")]
    items: Vec<Item>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    #[serde(deserialize_with = "nullable")]
    resource_version: String,
    /// Empty on the last page.
    #[serde(rename = "continue", deserialize_with = "nullable")]
    continue_token: String,
}

#[derive(Debug, Deserialize)]
pub struct Item {
    pub metadata: Metadata,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Spec {
    #[serde(default)]
    service: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

// === impl MetadataStream ===

impl MetadataStream {
    pub fn new(chunks: Chunks) -> Self {
        Self::to_depth(chunks, DEPTH)
    }

    fn to_depth(chunks: Chunks, depth: usize) -> Self {
        Self { chunks, rest: Bytes::new(), depth, event: Outline::new(depth, MAX_KEPT), begun: None }
    }

    /// Returns the next event, or `None` at a clean end of the stream. `until` tells how long to wait for more bytes.
    ///
    /// # Errors
    /// The stream breaks, is malformed, or sends nothing for too long.
    pub async fn next(&mut self, until: impl Fn() -> Instant) -> Result<Option<MetadataEvent>, UpstreamError> {
        loop {
            let is_complete = self.take_line();
            if self.event.is_empty() {
                self.begun = None;
                if is_complete {
                    continue;
                }
            } else if is_complete {
                self.begun = None;
                let event = std::mem::replace(&mut self.event, Outline::new(self.depth, MAX_KEPT));
                return decode(event.text().ok_or_else(too_long)?).map(Some);
            }
            let asked = Instant::now();
            let begun = (!self.event.is_empty()).then(|| *self.begun.get_or_insert(asked));
            let deadline = begun.map_or_else(&until, |begun| until().min(begun + IN_EVENT));
            match timeout_at(deadline, self.chunks.read()).await {
                Ok(chunk) => match chunk? {
                    Some(chunk) => self.rest = chunk,
                    None if begun.is_none() => return Ok(None),
                    None => return Err(endless()),
                },
                Err(_) if begun.is_some() => return Err(endless()),
                Err(_) => {
                    return Err(UpstreamError::Timeout { what: "the next watch event", after: asked.elapsed() });
                }
            }
        }
    }

    /// Moves bytes to the event, up to the end of its line. Returns whether that has come.
    fn take_line(&mut self) -> bool {
        let end = memchr(b'\n', &self.rest);
        let line = self.rest.split_to(end.map_or(self.rest.len(), |end| end + 1));
        self.event.push(&line);
        end.is_some()
    }
}

fn too_long() -> UpstreamError {
    UpstreamError::Decode(Cause::new("a watch event with too many members"))
}

fn endless() -> UpstreamError {
    UpstreamError::Decode(Cause::new("a watch event without an end"))
}

fn decode(line: &[u8]) -> Result<MetadataEvent, UpstreamError> {
    let error = |error: serde_json::Error| UpstreamError::Decode(Cause::new(error));
    let frame: Frame<'_> = serde_json::from_slice(line).map_err(error)?;
    if frame.kind == "ERROR" {
        return Ok(MetadataEvent::Error(Box::new(serde_json::from_str(frame.object.get()).map_err(error)?)));
    }
    let metadata = Metadata::from(serde_json::from_str::<Item>(frame.object.get()).map_err(error)?);
    Ok(match frame.kind {
        "BOOKMARK" => MetadataEvent::Bookmark(metadata.rv()?),
        "ADDED" | "MODIFIED" => MetadataEvent::Changed { deleted: false, metadata },
        "DELETED" => MetadataEvent::Changed { deleted: true, metadata },
        other => return Err(UpstreamError::Decode(Cause::new(format!("a watch event of type {other:?}")))),
    })
}

// === impl Metadata ===

impl Metadata {
    pub fn rv(&self) -> Result<ResourceVersion, UpstreamError> {
        revision(&self.resource_version)
    }
}

// === impl MetadataList ===

impl MetadataList {
    pub(crate) fn rv(&self) -> Result<ResourceVersion, UpstreamError> {
        revision(&self.metadata.resource_version)
    }
}

impl From<Item> for Metadata {
    fn from(item: Item) -> Self {
        let (spec, status) = (item.spec, item.status);
        let has_service = spec.as_deref().map(|spec| has_service(spec.get()));
        let parts = (spec.is_some() || status.is_some()).then_some(Parts { spec, status });
        Self { has_service, parts, ..item.metadata }
    }
}

/// A spec that cannot be read may name one.
fn has_service(spec: &str) -> bool {
    serde_json::from_str::<Spec>(spec).map_or(true, |spec| spec.service.is_some())
}

fn revision(text: &str) -> Result<ResourceVersion, UpstreamError> {
    let rv = ResourceVersion::parse(text).filter(|rv| !rv.is_zero());
    rv.ok_or_else(|| UpstreamError::Decode(Cause::new(format!("the resource version {text:?}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_events_bookmarks_and_errors() {
        let line = br#"{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","uid":"u","generation":3,"resourceVersion":"7"}}}"#;
        let MetadataEvent::Changed { deleted: false, metadata } = decode(line).unwrap() else { panic!() };
        assert_eq!((&*metadata.name, metadata.generation, metadata.rv().unwrap().0), ("a", 3, 7));
        let line = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"a":"b"}}}}"#;
        assert!(matches!(decode(line).unwrap(), MetadataEvent::Bookmark(ResourceVersion(9))));
        let line = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"status":"Failure","reason":"Expired"}}"#;
        assert!(matches!(decode(line).unwrap(), MetadataEvent::Error(status) if status.code == 410));
    }

    #[test]
    fn a_list_with_an_item_that_cannot_be_read_is_none() {
        let list = |items: &str| {
            let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}}{items}}}"#);
            serde_json::from_str::<MetadataList>(&list).ok().map(|list| list.items.len())
        };
        assert_eq!([list(""), list(r#","items":null"#), list(r#","items":[]"#)], [Some(0); 3]);
        assert_eq!(list(r#","items":[{"metadata":{"name":"a","uid":null}}]"#), Some(1));
        for bad in ["null", "{}", r#"{"metadata":{"name":7}}"#, r#"{"metadata":[7]}"#] {
            assert_eq!(list(&format!(r#","items":[{{"metadata":{{"name":"a"}}}},{bad}]"#)), None, "{bad}");
        }
    }
}
