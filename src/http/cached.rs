//! The read path as the HTTP side uses it: answers of [`Reads`] as the sources that bodies are written from.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;

use super::read::{
    EventSource, ForwardReason, GetAnswer, ListAnswer, ObjectSource, Outcome, ReadHandler, ReadRequest, WatchAnswer,
    WatcherEvent,
};
use super::server::BoxFuture;
use crate::codec::ListMetaOut;
use crate::meta::{Gvr, Object};
use crate::reads::{self, ListItems, Reads, WatchSource};

// === impl Reads ===

impl ReadHandler for Reads {
    fn get(&self, request: ReadRequest) -> BoxFuture<Outcome<GetAnswer>> {
        let reads = self.clone();
        Box::pin(async move {
            outcome(reads.get(&request).await, |answer| GetAnswer {
                form: answer.form,
                shape: answer.shape,
                object: answer.object,
            })
        })
    }

    fn list(&self, request: ReadRequest) -> BoxFuture<Outcome<ListAnswer>> {
        let reads = self.clone();
        Box::pin(async move {
            outcome(reads.list(&request).await, |answer| ListAnswer {
                form: answer.form,
                shape: answer.shape,
                meta: ListMetaOut { rv: answer.rv, continue_token: answer.continue_token, remaining: answer.remaining },
                items: Box::new(answer.items),
            })
        })
    }

    fn watch(&self, request: ReadRequest) -> BoxFuture<Outcome<WatchAnswer>> {
        let reads = self.clone();
        Box::pin(async move {
            outcome(reads.watch(&request).await, |answer| WatchAnswer {
                form: answer.form,
                shape: answer.shape,
                events: Box::new(answer.source),
            })
        })
    }

    fn warnings(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        Self::warnings(self, gvr)
    }

    fn forwarded(&self, reason: ForwardReason) {
        self.metrics().forwarded(reason);
    }
}

fn outcome<T, U>(outcome: reads::Outcome<T>, answer: impl FnOnce(T) -> U) -> Outcome<U> {
    match outcome {
        reads::Outcome::Serve(served) => Outcome::Serve(answer(served)),
        reads::Outcome::Forward(_) => Outcome::Forward,
        reads::Outcome::Refuse(status) => Outcome::Refuse(status),
    }
}

impl ObjectSource for ListItems {
    fn next(&mut self, max: usize, into: &mut Vec<Arc<Object>>) -> bool {
        Self::next(self, max, into)
    }
}

impl EventSource for WatchSource {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        Self::poll_next(self, cx)
    }

    fn end(&mut self) {
        Self::end(self);
    }

    fn bookmark_template(&self) -> Option<Bytes> {
        Self::bookmark_template(self)
    }
}
