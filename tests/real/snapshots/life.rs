//! A daemon that ends as a process does, the directory that outlives it, and a client of the apiserver to compare with.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::cluster::Cluster;
use crate::support::client::{Answer, Client, rv};
use crate::support::eventually;
pub(super) use crate::support::life::Life;
use http::HeaderMap;
use informerd::apiserver::client::ConfigSource;
use informerd::config::Config;
use tempfile::TempDir;

/// The directory of snapshots.
pub(super) struct Kept {
    root: TempDir,
}

/// The length of each file, and when it was written to.
pub(super) type Files = BTreeMap<String, (u64, SystemTime)>;

// === impl Life ===

impl Life {
    pub(super) async fn start(cluster: &Cluster, yaml: &str) -> Self {
        Self::of(ConfigSource::kubeconfig(cluster.admin()), yaml).await
    }

    /// The same, once it is ready.
    pub(super) async fn ready(cluster: &Cluster, yaml: &str) -> Self {
        let life = Self::start(cluster, yaml).await;
        life.through.ready().await;
        life
    }

    pub(super) async fn of(source: ConfigSource, yaml: &str) -> Self {
        // Reads are answered from caches however long that takes.
        let change = |config: &mut Config| {
            config.reads.freshness_timeout = Duration::from_secs(60);
            config.http.drain_spread = Duration::from_millis(100);
        };
        Self::begin(source, &format!("{yaml}{FROM_CACHES}"), change).await
    }

    /// Ends as a process that is told to.
    pub(super) async fn stop(self) {
        self.through.stop(Duration::from_secs(10)).await;
        self.kill().await;
    }

    /// How many snapshots were used, and how many could not be.
    pub(super) async fn snapshots(&self) -> (u64, u64) {
        let loaded = self.count("informerd_snapshots_loaded_total", &[]).await;
        (loaded, self.count("informerd_snapshots_unusable_total", &[]).await)
    }

    /// Whether a whole state of this resource was asked for.
    pub(super) async fn listed(&self, resource: &str) -> bool {
        let resource = format!("resource=\"{resource}\"");
        let mut lists = 0;
        for verb in ["verb=\"list\"", "verb=\"watchlist\""] {
            lists += self.count("informerd_upstream_requests_total", &[verb, &resource]).await;
        }
        lists > 0
    }

    /// An answer that did not come from the apiserver.
    pub(super) async fn own(&self, path: &str, accept: &str) -> Answer {
        let answer = self.get(path, accept).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_own(path, &answer.headers);
        answer
    }

    /// A list that did not come from the apiserver, in the words of [`sent`].
    pub(super) async fn sent(&self, path: &str) -> String {
        sent(&self.own(path, JSON).await)
    }
}

// === impl Kept ===

impl Kept {
    pub(super) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.root.path().join("snapshots")
    }

    /// A configuration that keeps snapshots here.
    pub(super) fn yaml(&self, resources: &str) -> String {
        format!("snapshots: {{dir: {}}}\nresources: {resources}\n", self.path().display())
    }

    /// The snapshots that are complete.
    pub(super) fn files(&self) -> Files {
        let mut files = Files::new();
        for entry in fs::read_dir(self.path()).into_iter().flatten() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            // A file that was removed meanwhile is none.
            if let (true, Ok(metadata)) = (name.ends_with(".snapshot"), entry.metadata()) {
                files.insert(name, (metadata.len(), metadata.modified().unwrap()));
            }
        }
        files
    }

    /// Waits until there are so many snapshots.
    pub(super) async fn written(&self, count: usize) -> Files {
        eventually("the snapshots are written", || self.files().len() == count).await;
        self.files()
    }

    /// Waits until each of these snapshots has been written to.
    pub(super) async fn appended(&self, before: &Files) -> Files {
        let is_another = |files: &Files| before.iter().all(|(name, was)| files.get(name).is_some_and(|is| is != was));
        eventually("the snapshots are written to", || is_another(&self.files())).await;
        self.files()
    }

    /// Cuts the end of each snapshot off, as if the machine had lost its power.
    pub(super) fn tear(&self) {
        for (name, (len, _)) in self.files() {
            let file = File::options().write(true).open(self.path().join(name)).unwrap();
            file.set_len(len - 3).unwrap();
        }
    }

    /// What all files of the directory show to a reader without the key: their names, their bytes, and what these have
    /// compressed.
    pub(super) fn readable(&self) -> Vec<u8> {
        let mut shown = Vec::new();
        for entry in fs::read_dir(self.path()).unwrap() {
            let entry = entry.unwrap();
            shown.extend(entry.file_name().into_encoded_bytes());
            let bytes = fs::read(entry.path()).unwrap();
            for at in memchr::memmem::find_iter(&bytes, &ZSTD) {
                let frame = zstd::Decoder::new(&bytes[at..]).unwrap().single_frame();
                // It may only look like the beginning of a frame.
                frame.take(1 << 20).read_to_end(&mut shown).ok();
            }
            shown.extend(bytes);
        }
        shown
    }
}

/// Reads are answered from caches, and answers say so.
const FROM_CACHES: &str = "
explainHeader: true
consistentReads: probe
notSynced: {wait: 60s}
";

/// The first bytes of what zstd has compressed.
const ZSTD: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

pub(super) const JSON: &str = "application/json";
pub(super) const PINNED: &str = "[{resource: configmaps, pin: true}]";
pub(super) use crate::world::PROTOBUF;

pub(super) fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// The apiserver itself, as the user who may do everything.
pub(super) fn direct(cluster: &Cluster) -> Client {
    Client::tls_prompt(&cluster.info.server, &cluster.info.ca, "admin-token")
}

/// Fails unless the answer comes from a cache.
pub(super) fn assert_own(path: &str, headers: &HeaderMap) {
    let plan = headers["x-informerd-plan"].to_str().unwrap();
    assert!(plan.starts_with("served") || plan.starts_with("waited"), "{path}: {plan}");
}

/// A list as it was sent, but for its own revision: that of the store, which other writes move.
pub(super) fn sent(list: &Answer) -> String {
    assert_eq!(list.status, 200, "{}", list.text());
    let text = list.text();
    let revision = format!("\"resourceVersion\":\"{}\"", rv(&list.json()));
    // A list of custom resources has its metadata after its items.
    let is_custom = text.starts_with("{\"apiVersion\"");
    let (before, after) = if is_custom { text.rsplit_once(&revision) } else { text.split_once(&revision) }.unwrap();
    format!("{before}{after}")
}
