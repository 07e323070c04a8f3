//! Lists: a snapshot of one state, sent in chunks while it is traversed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message;
use tokio_stream::Stream;
use tonic::Status;

use crate::codec::Form;
use crate::grpc::call::{Error, Right, Room};
use crate::grpc::messages::Rendering;
use crate::grpc::metrics::GrpcMetrics;
use crate::grpc::pb::v1;
use crate::grpc::pb::v1::list_response::Part;
use crate::grpc::pb::v1::{ListChunk, ListHeader, ListResponse};
use crate::meta::Object;
use crate::reads::{ListItems, ReadState, Rent};

/// The maximum size of a chunk in bytes, if the memory for it is available. A chunk ends before the object that would
/// exceed the limit. A larger object is sent in its own chunk.
const CHUNK: usize = 1 << 20;
/// The space reserved for the message fields around the objects.
const HEADROOM: usize = 1 << 10;
/// The most bytes of a rendered object that are kept for the next chunk.
const KEPT: usize = 16 << 10;
/// The number of objects taken from the state at once.
const BATCH: usize = 64;

/// The messages of one list. It holds a state, which shares all unchanged data with the current state.
pub(in crate::grpc) struct ListStream {
    header: Option<ListHeader>,
    /// `None` once it was revoked or the list has failed.
    right: Option<Right>,
    items: ListItems,
    more: bool,
    waiting: VecDeque<Arc<Object>>,
    /// The first of them, if it is rendered already and is small.
    rendered: Option<v1::Object>,
    form: Arc<Form>,
    rent: Rent,
    rendering: Rendering,
    room: Room,
    metrics: Arc<GrpcMetrics>,
}

// === impl ListStream ===

impl ListStream {
    pub(super) fn new(
        header: ListHeader,
        right: Right,
        state: ReadState,
        rendering: Rendering,
        room: Room,
        metrics: Arc<GrpcMetrics>,
    ) -> Self {
        Self {
            header: Some(header),
            right: Some(right),
            form: Arc::clone(&state.source.form),
            rent: state.source.rent(),
            items: state.into_items(),
            more: true,
            waiting: VecDeque::new(),
            rendered: None,
            rendering,
            room,
            metrics,
        }
    }

    /// Returns the next chunk. The chunk is empty if a batch was searched without a match.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: there is no memory for an object that is larger than a chunk. INTERNAL: an object is damaged.
    fn chunk(&mut self) -> Result<Option<ListChunk>, Error> {
        let mut chunk = ListChunk::default();
        let (mut size, most) = (0, self.room.next(CHUNK) - HEADROOM);
        loop {
            let Some(object) = self.waiting.front() else {
                if !self.more {
                    break;
                }
                let mut found = Vec::new();
                self.more = self.items.next(BATCH, &mut found);
                self.waiting = found.into();
                if self.waiting.is_empty() && self.more {
                    return Ok(Some(chunk));
                }
                continue;
            };
            let rendered = match self.rendered.take() {
                Some(rendered) => rendered,
                None => self.rendering.object(&self.form, object)?,
            };
            let length = rendered.encoded_len() + HEADROOM / BATCH;
            if size > 0 && size + length > most {
                // To render it twice would count as two reads.
                self.rendered = Some(rendered).filter(|_| length <= KEPT);
                break;
            }
            if length > most {
                self.room.exceed(length)?;
            }
            self.waiting.pop_front();
            size += length;
            self.metrics.list_bytes.inc_by(rendered.object.len() as u64);
            self.rent.sent(rendered.object.len());
            chunk.objects.push(rendered);
            if size >= most {
                break;
            }
        }
        self.metrics.list_objects.inc_by(chunk.objects.len() as u64);
        Ok((!chunk.objects.is_empty()).then_some(chunk))
    }
}

impl Stream for ListStream {
    type Item = Result<ListResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(right) = &mut self.right else { return Poll::Ready(None) };
        // When the permission is revoked, the unsent rest of the list is not sent.
        if let Poll::Ready(error) = right.poll_gone(cx) {
            self.right = None;
            return Poll::Ready(Some(Err(error.into())));
        }
        if let Some(header) = self.header.take() {
            return Poll::Ready(Some(Ok(ListResponse { part: Some(Part::Header(header)) })));
        }
        match self.chunk() {
            Err(error) => {
                self.right = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Ok(None) => Poll::Ready(None),
            // Many objects were searched without a match: let other tasks run first.
            Ok(Some(chunk)) if chunk.objects.is_empty() => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Some(chunk)) => Poll::Ready(Some(Ok(ListResponse { part: Some(Part::Chunk(chunk)) }))),
        }
    }
}
