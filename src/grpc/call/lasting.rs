//! Streams that anybody may open and that last as long as their client wants: health watches and reflection. They take
//! nothing of the memory for answers, so that they go on while there is none. Instead they are few.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::status::Error;
use crate::auth::Client;
use crate::grpc::metrics::GrpcMetrics;
use crate::memory::Ledger;

/// The open streams of all clients. Those of each kind may take as many bytes as a sixteenth of the memory for answers, and
/// those of one client half of that. Neither kind takes the place of the other. Cloning shares them.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Lasting {
    most: usize,
    watches: Arc<Streams>,
    reflections: Arc<Streams>,
    metrics: Arc<GrpcMetrics>,
}

/// The open streams of one kind.
#[derive(Debug)]
struct Streams {
    /// What each takes, in bytes.
    each: usize,
    taken: Mutex<TakenBytes>,
}

#[derive(Debug, Default)]
struct TakenBytes {
    bytes: usize,
    /// There is an entry for each that has a stream.
    by_client: HashMap<Client, usize>,
}

/// The place of a stream, until its answer ends.
#[derive(Debug)]
pub(in crate::grpc) struct Place {
    streams: Arc<Streams>,
    client: Client,
}

/// All streams of a kind together may take this part of the memory for answers.
const SHARE: usize = 16;
/// What a health watch takes, with its stream, in bytes.
const WATCH: usize = 8 << 10;
/// The same for reflection: an answer has up to 70 KB of descriptors, and is in memory twice.
const REFLECTION: usize = 160 << 10;

// === impl Lasting ===

impl Lasting {
    pub(in crate::grpc) fn new(ledger: &Ledger, metrics: Arc<GrpcMetrics>) -> Self {
        let [watches, reflections] =
            [WATCH, REFLECTION].map(|each| Arc::new(Streams { each, taken: Mutex::default() }));
        Self { most: ledger.limit() / SHARE, watches, reflections, metrics }
    }

    /// Takes a place for a call of this method. `None` if it needs none, because it ends by itself.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the client has as many streams open as it may, or all clients together have.
    pub(in crate::grpc) fn take(&self, client: &Client, method: &str) -> Result<Option<Place>, Error> {
        let streams = match method {
            "/grpc.health.v1.Health/Watch" => &self.watches,
            _ if method.starts_with("/grpc.reflection.") => &self.reflections,
            _ => return Ok(None),
        };
        let (bytes, mut taken) = (streams.each, streams.taken.lock());
        let own = taken.by_client.get(client).map_or(0, |bytes| *bytes);
        if own + bytes > self.most / 2 || taken.bytes + bytes > self.most {
            self.metrics.overflows.inc();
            return Err(Error::too_many("the client, or all clients together, have too many such streams open"));
        }
        taken.bytes += bytes;
        taken.by_client.insert(client.clone(), own + bytes);
        Ok(Some(Place { streams: Arc::clone(streams), client: client.clone() }))
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        let (bytes, mut taken) = (self.streams.each, self.streams.taken.lock());
        taken.bytes -= bytes;
        if let Some(own) = taken.by_client.get_mut(&self.client) {
            *own -= bytes;
            if *own == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pressure;

    #[test]
    fn streams_of_one_client_and_of_all_are_bounded() {
        let ledger = Ledger::new(16 << 20, Pressure::default());
        let lasting = Lasting::new(&ledger, Arc::default());
        let take = |client: Client, method: &str| -> Vec<_> {
            std::iter::from_fn(|| lasting.take(&client, method).ok()).take(1000).collect()
        };
        let (reflection, watch) =
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/grpc.health.v1.Health/Watch");
        let address = |n: u8| Client::Address([10, 0, 0, n].into());
        let mut first = take(address(1), reflection);
        assert_eq!(first.len(), 3, "half of a sixteenth");
        assert_eq!(take(address(1), "/grpc.health.v1.Health/Check").len(), 1000, "a probe ends by itself");
        let second = take(Client::Connection(1), watch);
        assert_eq!(second.len(), 64, "the same, in smaller ones");
        let third = take(address(2), watch);
        assert_eq!((third.len(), take(address(3), watch).len()), (64, 0), "all of a sixteenth");
        assert_eq!(take(address(3), reflection).len(), 3, "the kinds do not take from each other");
        first.pop();
        assert_eq!(take(address(1), reflection).len(), 1, "a stream has ended");
        drop((first, second, third));
        for streams in [&lasting.watches, &lasting.reflections] {
            assert!(streams.taken.lock().by_client.is_empty());
            assert_eq!(streams.taken.lock().bytes, 0);
        }
    }
}
