//! `informerd.v1.Queue`: a controller's work queue as a service. The queue itself is in the module `workqueue`. This
//! module feeds it from the caches and serves its workers as streams.

mod families;
mod feed;
mod group;
mod groups;
mod memory;
mod request;
mod session;

use tonic::{Request, Response, Status, Streaming};

pub use group::GroupStats;
pub use groups::{Groups, QueueConfig};

use self::request::Wanted;
use super::Streamed;
use super::call::{Error, Grants, Retiring, access};
use super::messages::select;
use super::pb::v1::queue_server::Queue as QueueService;
use super::pb::v1::work_request::Action;
use super::pb::v1::{WorkRequest, WorkResponse};
use crate::memory::Ledger;
use crate::meta::Verb;

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
        let caller = access::caller(request.extensions())?;
        let retiring = Retiring::of(request.extensions());
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|request| request.action);
        let Some(Action::Join(mut asked)) = first else {
            return Err(Error::invalid("the first request of a worker is join").into());
        };
        request::check(&asked)?;
        let (mut wanted, mut grants) = (Vec::new(), Vec::new());
        for sent in &mut asked.selections {
            let selected = select(self.groups.reads(), &self.ledger, &caller, Verb::Watch, Some(sent)).await?;
            wanted.push(Wanted::new(sent, selected.selection, selected.rendering, selected.held));
            grants.push(selected.grants);
        }
        let mut grants = Grants::join(grants);
        let mut join = grants.recorded(request::join(&asked, wanted))?;
        join.owner = grants.username().unwrap_or_default().to_owned();
        let short = |_| Error::no_memory("there is no memory for one more worker");
        let place = grants.recorded(self.ledger.lasting(session::PLACE).map_err(short))?;
        grants.recorded(caller.charge(&place))?;
        let member = grants.recorded(self.groups.join(join, &self.ledger).await)?;
        Ok(Response::new(session::start(member, grants.open(), requests, retiring, self.ledger.clone(), place)))
    }
}
