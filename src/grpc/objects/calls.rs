//! The calls of `informerd.v1.Objects`.

use std::sync::Arc;

use tokio_stream::{Empty, empty};
use tonic::{Request, Response, Status};

use super::list::ListStream;
use super::service::Objects;
use super::sync::SyncStream;
use crate::grpc::call::{Error, Retiring, Room, Taken, access};
use crate::grpc::messages::{Elsewhere, Messages, Selected, TokenBase, convert, render, select};
use crate::grpc::pb::v1::objects_server::Objects as ObjectsService;
use crate::grpc::pb::v1::{
    Filter, GetRequest, GetResponse, ListHeader, ListRequest, Selection, SyncRequest, SyncResponse, WatchRequest,
    WatchResponse,
};
use crate::meta::Verb;
use crate::reads::At;

#[tonic::async_trait]
impl ObjectsService for Objects {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let caller = access::caller(request.extensions())?;
        let request = request.into_inner();
        if request.name.is_empty() {
            return Err(Error::invalid("a get needs a name").into());
        }
        let (at, stale) = convert::consistency(request.consistency.as_ref())?;
        if matches!(at, At::Exact(_)) {
            return Err(Error::invalid("only lists can be read at an exact resource version").into());
        }
        let filter = Filter { namespace: request.namespace, names: vec![request.name], ..Filter::default() };
        let mut sent = Selection {
            resource: request.resource,
            filters: vec![filter],
            shape: request.shape,
            mask: request.mask,
            drop: request.drop,
            encoding: request.encoding,
        };
        let selected = select(&self.reads, &self.ledger, &caller, Verb::Get, Some(&mut sent)).await?;
        let Selected { selection, rendering, mut grants, held: _held } = selected;
        let gvr = selection.gvr.clone();
        let [filter] = selection.filters.as_slice() else {
            return Err(Error::invalid("a get names one object").into());
        };
        let (namespace, name) = (filter.namespace.as_deref().unwrap_or_default(), filter.names.concat());
        let state = self.reads.state_of(&selection, at, stale).await;
        let found = state.and_then(|state| Ok((state.get(&gvr, namespace, &name)?, state)));
        let answer = found.map_err(|refusal| Error::refusal(&gvr, refusal)).and_then(|(object, state)| {
            // The object is in memory twice: rendered, and encoded for the transport.
            let held = self.ledger.lasting(2 * object.size());
            let held = held.map_err(|_| Error::no_memory("there is no memory for the object"))?;
            let encoding = render::encoding(state.source.encoding()).into();
            let object = rendering.object(&state.source.form, &object)?;
            state.source.sent(object.object.len());
            let found = GetResponse { object: Some(object), encoding };
            Ok((found, held))
        });
        let (found, held) = grants.recorded(answer)?;
        grants.complete();
        let mut response = Response::new(found);
        response.extensions_mut().insert(Taken(Arc::new(held)));
        Ok(response)
    }

    type ListStream = ListStream;

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListStream>, Status> {
        let caller = access::caller(request.extensions())?;
        let mut request = request.into_inner();
        let (at, stale) = convert::consistency(request.consistency.as_ref())?;
        let selected = select(&self.reads, &self.ledger, &caller, Verb::List, request.selection.as_mut()).await?;
        let Selected { selection, rendering, mut grants, held } = selected;
        let room = grants.recorded(Room::of_list(&self.ledger, held))?;
        let state = self.reads.state_of(&selection, at, stale).await;
        let state = grants.recorded(state.map_err(|refusal| Error::refusal(&selection.gvr, refusal)))?;
        let tokens =
            TokenBase::new(&self.cluster.id().await, request.selection.as_ref().unwrap_or(&Selection::default()));
        let header = ListHeader {
            resource_version: state.snapshot.rv().to_string(),
            encoding: render::encoding(state.source.encoding()).into(),
            resume_token: tokens.at(state.snapshot.rv()),
        };
        let metrics = Arc::clone(&self.metrics);
        Ok(Response::new(ListStream::new(header, grants.send(), state, rendering, room, metrics)))
    }

    type WatchStream = Empty<Result<WatchResponse, Status>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let caller = access::caller(request.extensions())?;
        let retiring = Retiring::of(request.extensions());
        let watch = self.watch_for(&caller, request.into_inner()).await?;
        Ok(elsewhere(watch.until(&retiring)))
    }

    type SyncStream = Empty<Result<SyncResponse, Status>>;

    async fn sync(
        &self,
        request: Request<tonic::Streaming<SyncRequest>>,
    ) -> Result<Response<Self::SyncStream>, Status> {
        let caller = access::caller(request.extensions())?;
        let retiring = Retiring::of(request.extensions());
        let inbound = Box::pin(request.into_inner());
        Ok(elsewhere(SyncStream::new(self.clone(), caller, inbound, &retiring)))
    }
}

/// A response whose messages this module encodes, without the library.
fn elsewhere<T>(messages: impl Messages) -> Response<Empty<T>> {
    let mut response = Response::new(empty());
    response.extensions_mut().insert(Elsewhere::new(messages));
    response
}
