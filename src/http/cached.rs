//! The read path as the HTTP side uses it: answers of [`Reads`] as the sources that bodies are written from.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;

use super::read::{
    EventSource, ForwardReason, GetAnswer, ListAnswer, ObjectSource, Outcome, ReadHandler, ReadRequest, Served,
    WatchAnswer, WatcherEvent,
};
use super::server::BoxFuture;
use crate::meta::{Gvr, Object};
use crate::reads::{self, ListItems, Reads, WatchSource};

// === impl Reads ===

impl ReadHandler for Reads {
    fn get(&self, request: ReadRequest) -> BoxFuture<Outcome<GetAnswer>> {
        let reads = self.clone();
        Box::pin(async move {
            outcome(reads.get(&request).await, |answer| {
                let served = answer.served;
                (GetAnswer { form: answer.form, shape: answer.shape, object: answer.object }, served)
            })
        })
    }

    fn list(&self, request: ReadRequest) -> BoxFuture<Outcome<ListAnswer>> {
        let reads = self.clone();
        Box::pin(async move {
            outcome(reads.list(&request).await, |answer| {
                let (served, items) = (answer.served, Box::new(answer.items));
                let identity = Some(answer.identity);
                (ListAnswer { form: answer.form, shape: answer.shape, meta: answer.meta, items, identity }, served)
            })
        })
    }

    fn watch(&self, request: ReadRequest) -> BoxFuture<Outcome<WatchAnswer>> {
        let reads = self.clone();
        Box::pin(async move {
            outcome(reads.watch(&request).await, |answer| {
                let served = answer.served;
                (WatchAnswer { form: answer.form, shape: answer.shape, events: Box::new(answer.source) }, served)
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

fn outcome<T, U>(outcome: reads::Outcome<T>, make: impl FnOnce(T) -> (U, Served)) -> Outcome<U> {
    match outcome {
        reads::Outcome::Serve(answer) => {
            let (answer, served) = make(answer);
            Outcome::Serve(answer, served)
        }
        reads::Outcome::Forward(reason) => Outcome::Forward(reason),
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
