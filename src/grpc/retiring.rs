//! The end of a connection, as its calls hear of it: a connection as old as it may become asks its streams for goodbye.

use std::future::Future;
use std::pin::Pin;

use tonic::Request;

use crate::lifecycle::drain::DrainWatch;

/// Tells the streams of one connection to end. The wiring puts it into a request's extensions.
#[derive(Clone, Debug)]
pub struct Retiring(pub DrainWatch);

// === impl Retiring ===

impl Retiring {
    /// The signal that reaches a call. A call without one is never told to end.
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(|| Self(DrainWatch::never()))
    }

    /// Waits until the streams are to end.
    pub(super) fn wait(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let drain = self.0.clone();
        Box::pin(async move { drain.draining().await })
    }
}
