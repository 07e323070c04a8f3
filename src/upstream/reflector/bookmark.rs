//! Learns the form of bookmarks for tables if their state is read by a list.
//!
//! A whole table costs the apiserver less than the same number of events of one row each. Lists are compressed, so a
//! table also takes only a fifth of the bytes. But bookmarks occur only in watches. So the reflector opens a watch that
//! selects nothing and begins with its bookmark, and then closes it.

use std::time::Duration;

use tokio::time::Instant;

use super::Reflector;
use super::stream::EventStream;
use crate::apiserver::client::RequestVerb;
use crate::codec::json::WatchFrame;
use crate::meta::ObjectKey;

/// An object with this name would do no harm.
const NOBODY: &str = "informerd-selects-nothing";

/// The bookmark comes at once. Otherwise the reflector goes on without it until the next one.
const TIMEOUT: Duration = Duration::from_secs(3);

// === impl Reflector ===

impl Reflector {
    pub(super) async fn learn_bookmark(&mut self) {
        let group = &self.lister.resource.gvr.group;
        let nobody = self.lister.only(&ObjectKey::new("", NOBODY));
        let Some(nobody) = nobody.filter(|_| !self.upstream.refuses_watch_list(group, self.config.refused_for)) else {
            return;
        };
        let options = self.lister.options(RequestVerb::Probe);
        let path = nobody.watch_list_path(TIMEOUT.as_secs());
        let until = Instant::now() + TIMEOUT;
        let opened = EventStream::open(&self.upstream, &nobody, &self.config, &path, TIMEOUT, options).await;
        let Ok(mut stream) = opened else { return };
        while let Ok(Some(frame)) = stream.next(until).await {
            if let WatchFrame::Bookmark { object, .. } = frame {
                return self.writer.set_bookmark_template(object);
            }
        }
    }
}
