//! Settings of a reflector, and how it reads a saved state.

use std::pin::Pin;
use std::time::Duration;

use crate::apiserver::client::UpstreamError;
use crate::cache::Restoration;
use crate::lifecycle::backoff::BackoffConfig;

/// Settings of a reflector.
#[derive(Clone, Debug)]
pub struct ReflectorConfig {
    /// Watches ask for a random time between this and twice this, so that the watches of many reflectors do not end
    /// together.
    pub watch_timeout: Duration,
    /// How long after its requested time a watch that has not ended counts as dead.
    pub grace: Duration,
    /// How long a watch-list may be silent before its end. The server sends the state as fast as it can.
    pub initial_idle: Duration,
    /// How long the bookmark at the end of a watch-list may take after the last object that is expected. A server from
    /// before KEP-3157 ignores the parameter, and never sends it.
    pub initial_end: Duration,
    /// Number of objects in one page, for servers that refuse watch-lists.
    pub page_size: u32,
    /// How long a server's refusal of watch-lists is remembered, for all reflectors of its API group.
    pub refused_for: Duration,
    /// Maximum size of an object or event, in bytes.
    pub max_object: usize,
    pub backoff: BackoffConfig,
    /// When a state that was given up is read again.
    pub room: BackoffConfig,
}

/// Reads a saved state. `None` if there is none that can be used.
///
/// # Errors
/// The apiserver does not say now which cluster it belongs to.
pub type LoadSaved = Box<dyn FnMut(Restoration) -> Pin<Box<Loading>> + Send>;

type Loading = dyn Future<Output = Result<Option<Restoration>, UpstreamError>> + Send;

// === impl ReflectorConfig ===

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            watch_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(15),
            initial_idle: Duration::from_secs(15),
            initial_end: Duration::from_secs(2),
            page_size: 500,
            refused_for: Duration::from_secs(600),
            max_object: 16 << 20,
            backoff: BackoffConfig::default(),
            room: BackoffConfig {
                initial: Duration::from_secs(30),
                max: Duration::from_secs(600),
                reset_after: Duration::from_secs(600),
                ..BackoffConfig::default()
            },
        }
    }
}
