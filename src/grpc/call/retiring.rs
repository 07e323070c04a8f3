//! Notifies the calls of a connection that it must end. When a connection reaches its maximum age, its streams say
//! goodbye.

use tonic::Extensions;

use crate::lifecycle::drain::{DrainSignal, DrainWatch};

/// Tells the streams of one connection to end. The wiring code inserts it into the extensions of a request.
#[derive(Clone, Debug)]
pub struct Retiring(pub DrainWatch);

// === impl Retiring ===

impl Retiring {
    /// The signal for a call, from its request. A request without one gets a signal that never fires.
    pub(in crate::grpc) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_else(|| Self(DrainWatch::never()))
    }

    /// Waits until the streams must end.
    pub(in crate::grpc) fn wait(&self) -> DrainSignal {
        self.0.signal()
    }
}
