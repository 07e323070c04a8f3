//! `informerd.v1.Queue`: a controller's work queue as a service. The queue itself is in the module `workqueue`. This
//! module feeds it from the caches and serves its workers as streams.

mod families;
mod feed;
mod group;
mod groups;
mod request;
mod session;

use tonic::{Request, Response, Status, Streaming};

pub use group::GroupStats;
pub use groups::{Groups, QueueConfig};

use super::Streamed;
use super::access::{self, Grants, Verb};
use super::convert;
use super::objects::refused;
use super::pb::v1::queue_server::Queue as QueueService;
use super::pb::v1::work_request::Action;
use super::pb::v1::{WorkRequest, WorkResponse};
use super::retiring::Retiring;
use super::status::Error;
use crate::memory::Ledger;

/// The service.
pub(super) struct Queue {
    pub(super) groups: Groups,
    /// Accounts for the items that workers requested but have not read yet.
    pub(super) ledger: Ledger,
}

#[tonic::async_trait]
impl QueueService for Queue {
    type WorkStream = Streamed<WorkResponse>;

    async fn work(&self, request: Request<Streaming<WorkRequest>>) -> Result<Response<Self::WorkStream>, Status> {
        let caller = access::authenticate(&request)?;
        let retiring = Retiring::of(request.extensions());
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|request| request.action);
        let Some(Action::Join(mut join)) = first else {
            return Err(Error::invalid("the first request of a worker is join").into());
        };
        for selection in &mut join.selections {
            convert::complete(self.groups.reads(), selection.resource.as_mut()).await?;
        }
        let mut join = request::join(&join, &self.ledger)?;
        let mut grants = Vec::new();
        for wanted in &mut join.wanted {
            grants.push(access::authorize(&caller, Verb::Watch, &mut wanted.selection).await?);
        }
        let grants = Grants::join(grants);
        join.owner = grants.username().unwrap_or_default().to_owned();
        let Ok(place) = self.ledger.lasting(session::PLACE) else {
            return Err(refused(grants, Error::no_memory("there is no memory for one more worker")));
        };
        match self.groups.join(join).await {
            Ok(member) => {
                Ok(Response::new(session::start(member, grants.open(), requests, retiring, self.ledger.clone(), place)))
            }
            Err(error) => Err(refused(grants, error)),
        }
    }
}
