//! What the calls of `informerd.v1.Objects` share.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::grpc::messages::SharedEvents;
use crate::grpc::metrics::GrpcMetrics;
use crate::lifecycle::drain::DrainWatch;
use crate::memory::Ledger;
use crate::reads::Reads;

/// Identifies the cluster, for resume tokens.
pub trait Cluster: Send + Sync + 'static {
    /// Returns an id that is the same for every replica of one cluster. It is empty while the cluster is not known.
    fn id(&self) -> Pin<Box<dyn Future<Output = Arc<str>> + Send + '_>>;
}

/// The service. Cloning shares it.
#[derive(Clone)]
pub(in crate::grpc) struct Objects(Arc<Parts>);

#[cfg_attr(test, derive(Clone))]
pub(in crate::grpc) struct Parts {
    pub(in crate::grpc) reads: Reads,
    pub(in crate::grpc) cluster: Arc<dyn Cluster>,
    pub(in crate::grpc) drain: DrainWatch,
    /// The period over which the ends of open watches are spread when a drain starts.
    pub(in crate::grpc) drain_spread: Duration,
    /// Accounts for the messages that clients have not read yet.
    pub(in crate::grpc) ledger: Ledger,
    pub(in crate::grpc) shared: SharedEvents,
    pub(in crate::grpc) metrics: Arc<GrpcMetrics>,
}

// === impl Objects ===

impl Objects {
    pub(in crate::grpc) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Objects {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
