//! Learns the form of bookmarks if the state is read by a list: of tables at once, and of objects when a watch first wants
//! one.
//!
//! A whole table costs the apiserver less than the same number of events of one row each. Lists are compressed, so a
//! table also takes only a fifth of the bytes. But bookmarks occur only in watches. So the reflector opens a watch that
//! selects nothing and begins with its bookmark, and then closes it.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::config::ReflectorConfig;
use super::stream::EventStream;
use super::{ListerWatcher, Reflector};
use crate::apiserver::client::{RequestVerb, Upstream};
use crate::codec::json::WatchFrame;

/// The bookmark comes at once. Otherwise the reflector goes on without it until the next one.
const TIMEOUT: Duration = Duration::from_secs(3);

// === impl Reflector ===

impl Reflector {
    pub(super) async fn learn_bookmark(&mut self) {
        if let Some(object) = read_bookmark(&self.upstream, &self.lister, &self.config).await {
            self.writer.set_bookmark_template(object);
        }
    }
}

/// Reads the object of a bookmark. `None` if the server does not support watch-lists, or does not answer.
pub(in crate::upstream) async fn read_bookmark(
    upstream: &Upstream,
    lister: &ListerWatcher,
    config: &ReflectorConfig,
) -> Option<Bytes> {
    if upstream.refuses_watch_list(&lister.resource.gvr.group, config.refused_for) {
        return None;
    }
    let nobody = lister.nothing();
    let (path, options) = (nobody.watch_list_path(TIMEOUT.as_secs()), lister.options(RequestVerb::Probe));
    let until = Instant::now() + TIMEOUT;
    let open = EventStream::open(upstream, &nobody, config, &path, TIMEOUT, options);
    let mut stream = timeout_at(until, open).await.ok()?.ok()?;
    loop {
        if let WatchFrame::Bookmark { object, .. } = stream.next(until).await.ok()?? {
            return Some(object);
        }
    }
}
