//! Watches that ask for metadata only. They are few and small, so they use a simple reader. [`follow`] keeps one open
//! forever.

mod follow;

use bytes::BytesMut;
use memchr::memchr;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

pub use follow::{Collection, Seen, follow};

use super::error::{Cause, UpstreamError};
use super::reader::Chunks;
use crate::meta::{ResourceVersion, Status};

/// The media types that make the apiserver send only the metadata of objects and lists.
pub const ACCEPT_OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(super) const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// No object's metadata is larger than this; etcd refuses more.
const MAX_LINE: usize = 4 << 20;

/// A watch of PartialObjectMetadata.
pub(super) struct MetadataStream {
    chunks: Chunks,
    buf: BytesMut,
}

#[derive(Debug)]
pub(super) enum MetadataEvent {
    Changed { deleted: bool, metadata: Metadata },
    Bookmark(ResourceVersion),
    Error(Box<Status>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    pub resource_version: String,
    /// Whether the object's spec names a service, as that of an APIService does whose group version is not served by the
    /// kube-apiserver itself. `None` without a spec, so always where only metadata are read.
    #[serde(skip)]
    pub has_service: Option<bool>,
}

/// A list of PartialObjectMetadata, or just the part of any list that carries its revision.
#[derive(Debug, Deserialize)]
pub(super) struct MetadataList {
    metadata: ListMetadata,
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Item {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
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
    pub(super) fn new(chunks: Chunks) -> Self {
        Self { chunks, buf: BytesMut::new() }
    }

    /// Returns the next event, or `None` at a clean end of the stream.
    ///
    /// # Errors
    /// The stream breaks, is malformed, or sends nothing until the deadline.
    pub(super) async fn next(&mut self, deadline: Instant) -> Result<Option<MetadataEvent>, UpstreamError> {
        loop {
            if let Some(newline) = memchr(b'\n', &self.buf) {
                let line = self.buf.split_to(newline + 1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return decode(&line).map(Some);
            }
            if self.buf.len() > MAX_LINE {
                return Err(UpstreamError::Decode(Cause::new("a watch event without an end")));
            }
            let what = "the next watch event";
            let elapsed = |_elapsed| UpstreamError::Timeout { what, after: deadline.elapsed() };
            match timeout_at(deadline, self.chunks.read()).await.map_err(elapsed)?? {
                Some(chunk) => self.buf.extend_from_slice(&chunk),
                None if self.buf.trim_ascii().is_empty() => return Ok(None),
                None => return Err(UpstreamError::Decode(Cause::new("a watch event without an end"))),
            }
        }
    }
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
    pub(super) fn rv(&self) -> Result<ResourceVersion, UpstreamError> {
        revision(&self.resource_version)
    }
}

// === impl MetadataList ===

impl MetadataList {
    pub(super) fn rv(&self) -> Result<ResourceVersion, UpstreamError> {
        revision(&self.metadata.resource_version)
    }

    /// Returns the continue token; empty on the last page.
    pub(super) fn continue_token(&self) -> &str {
        &self.metadata.continue_token
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = Metadata> {
        self.items.unwrap_or_default().into_iter().map(Metadata::from)
    }
}

impl From<Item> for Metadata {
    fn from(item: Item) -> Self {
        Self { has_service: item.spec.map(|spec| spec.service.is_some()), ..item.metadata }
    }
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
    fn a_revision_of_nothing_is_no_revision() {
        for bad in ["", "0", "x"] {
            assert!(revision(bad).is_err());
        }
        assert!(decode(br#"{"type":"BOOKMARK","object":{"metadata":{}}}"#).is_err());
        assert!(decode(b"garbage").is_err());
    }
}
