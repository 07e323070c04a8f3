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
use super::call::{Error, Grants, Retiring, Verb, access, refused};
use super::messages::select;
use super::pb::v1::queue_server::Queue as QueueService;
use super::pb::v1::work_request::Action;
use super::pb::v1::{WorkRequest, WorkResponse};
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
        let Some(Action::Join(mut asked)) = first else {
            return Err(Error::invalid("the first request of a worker is join").into());
        };
        request::check(&asked)?;
        let (mut wanted, mut grants) = (Vec::new(), Vec::new());
        for sent in &mut asked.selections {
            let selected = select(self.groups.reads(), &self.ledger, &caller, Verb::Watch, Some(sent)).await?;
            wanted.push((Wanted::new(sent, selected.selection, selected.rendering), selected.held));
            grants.push(selected.grants);
        }
        let grants = Grants::join(grants);
        let mut join = match request::join(&asked, wanted) {
            Ok(join) => join,
            Err(error) => return Err(refused(grants, error)),
        };
        join.owner = grants.username().unwrap_or_default().to_owned();
        let Ok(place) = self.ledger.lasting(session::PLACE) else {
            return Err(refused(grants, Error::no_memory("there is no memory for one more worker")));
        };
        if let Err(error) = caller.charge(&place) {
            return Err(refused(grants, error));
        }
        match self.groups.join(join, &self.ledger).await {
            Ok(member) => {
                Ok(Response::new(session::start(member, grants.open(), requests, retiring, self.ledger.clone(), place)))
            }
            Err(error) => Err(refused(grants, error)),
        }
    }
}
