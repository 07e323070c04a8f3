//! Which cluster was seen last, and its resources: for a process that starts while the apiserver does not answer, and so
//! cannot ask.
//!
//! There is one file for each address and set of certificate authorities. It is written again when something in it
//! changes, so its age says nothing: each snapshot tells itself how old it is.

use std::io;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::block::{BlockReader, BlockWriter};
use super::header::{self, Cluster, hex, invalid, unique};
use super::load::LoadError;
use super::seal::Seal;
use super::shared::Inner;
use crate::meta::{Gvr, Origin, PrinterColumn, Resource, Verbs};

/// A cluster as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSeen {
    /// `host:port` of its apiserver.
    pub server: String,
    pub cluster: Cluster,
    /// The resources that can be listed and watched. Those of aggregated API servers are left out.
    pub resources: Vec<Resource>,
}

/// The header of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    server: String,
    authorities: String,
    /// Random, so that no two files have the same header.
    file: String,
    encrypted: bool,
}

/// The only block of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    cluster: Cluster,
    resources: Vec<SavedResource>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedResource {
    group: String,
    version: String,
    resource: String,
    kind: String,
    namespaced: bool,
    /// `None` for a built-in type.
    custom: Option<SavedDefinition>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedDefinition {
    definition: String,
    selectable: Vec<String>,
    /// The name, type and path of each.
    columns: Vec<[String; 3]>,
}

/// The first bytes of the file. They name the version of the format.
const MAGIC: &[u8] = b"informerd cluster 1\n";

/// Replaces the file. Returns whether that was done.
pub(super) fn save(inner: &Inner, seen: &LastSeen) -> bool {
    let name: Arc<str> = file_name(&seen.server, &seen.cluster.authorities).into();
    let saved = try_save(inner, seen, &name);
    if let Err(error) = &saved {
        // What is there may be of a cluster that is gone.
        inner.directory.remove(&name);
        inner.metrics.failed.inc();
        // Whatever hinders this hinders the snapshots, too, which warn.
        tracing::debug!(name = &*name, %error, "the cluster was not noted");
    }
    saved.is_ok()
}

fn try_save(inner: &Inner, seen: &LastSeen, name: &Arc<str>) -> io::Result<()> {
    let mut out = inner.directory.begin(name)?;
    let written = (|| {
        let header = Header {
            server: seen.server.clone(),
            authorities: seen.cluster.authorities.clone(),
            file: unique(),
            encrypted: inner.config.key.is_some(),
        };
        let header = header::to_bytes(MAGIC, &header)?;
        let content = Content {
            cluster: seen.cluster.clone(),
            resources: seen.resources.iter().filter_map(SavedResource::of).collect(),
        };
        out.write_all(&header)?;
        let bytes = BlockWriter::new(inner.seal(&header)?).write(&mut *out, &serde_json::to_vec(&content)?)?;
        inner.directory.reserve(bytes + header.len() as u64)?;
        out.sync()?;
        inner.directory.finish(name)
    })();
    if written.is_err() {
        inner.directory.give_up(name);
    }
    written
}

/// Reads the file, and logs why if it cannot be used.
pub(super) fn load(inner: &Inner, server: &str, authorities: &str) -> Option<LastSeen> {
    let name = file_name(server, authorities);
    let seen = try_load(inner, &name, server, authorities);
    if let Err(why) = &seen {
        if !matches!(why, LoadError::Io(error) if error.kind() == io::ErrorKind::NotFound) {
            inner.metrics.unusable.inc();
        }
        tracing::info!(name, %why, "the cluster is not known from snapshots, so none is served before the apiserver answers");
    }
    seen.ok()
}

fn try_load(inner: &Inner, name: &str, server: &str, authorities: &str) -> Result<LastSeen, LoadError> {
    let mut input = inner.directory.open(name)?;
    let (header, bytes) = header::read::<Header>(MAGIC, &mut input)?;
    if header.server != server || header.authorities != authorities {
        return Err(LoadError::Other);
    }
    let key = inner.config.key.as_ref();
    if header.encrypted != key.is_some() {
        return Err(LoadError::Encryption);
    }
    let mut blocks = BlockReader::new(Seal::new(key, &bytes).map_err(io::Error::other)?)?;
    let content = blocks.read(&mut *input)?.ok_or(LoadError::Incomplete)?;
    if input.read(&mut [0])? != 0 {
        return Err(invalid("something follows its content").into());
    }
    let Content { cluster, resources } = serde_json::from_slice(&content).map_err(io::Error::from)?;
    if cluster.authorities != authorities {
        return Err(LoadError::Other);
    }
    let resources = resources.into_iter().map(Resource::from).collect();
    Ok(LastSeen { server: server.to_owned(), cluster, resources })
}

fn file_name(server: &str, authorities: &str) -> String {
    let place = serde_json::to_vec(&[server, authorities]).unwrap_or_default();
    format!("{}.cluster", &hex(digest(&SHA256, &place).as_ref())[..24])
}

// === impl SavedResource ===

impl SavedResource {
    fn of(resource: &Resource) -> Option<Self> {
        let custom = match &resource.origin {
            Origin::BuiltIn => None,
            Origin::Custom { selectable, columns, definition } => Some(SavedDefinition {
                definition: definition.to_string(),
                selectable: selectable.iter().map(ToString::to_string).collect(),
                columns: columns
                    .iter()
                    .map(|column| [&column.name, &column.kind, &column.json_path].map(ToString::to_string))
                    .collect(),
            }),
            Origin::Unknown => return None,
        };
        let Resource { gvr, kind, namespaced, verbs, .. } = resource;
        (verbs.list && verbs.watch).then(|| Self {
            group: gvr.group.to_string(),
            version: gvr.version.to_string(),
            resource: gvr.resource.to_string(),
            kind: kind.to_string(),
            namespaced: *namespaced,
            custom,
        })
    }
}

impl From<SavedResource> for Resource {
    fn from(saved: SavedResource) -> Self {
        let column = |[name, kind, json_path]: [String; 3]| PrinterColumn {
            name: name.into(),
            kind: kind.into(),
            json_path: json_path.into(),
        };
        let origin = saved.custom.map_or(Origin::BuiltIn, |custom| Origin::Custom {
            selectable: custom.selectable.into_iter().map(Into::into).collect(),
            columns: custom.columns.into_iter().map(column).collect(),
            definition: custom.definition.into(),
        });
        Self {
            gvr: Gvr::new(&saved.group, &saved.version, &saved.resource),
            kind: saved.kind.into(),
            namespaced: saved.namespaced,
            verbs: Verbs { get: true, list: true, watch: true },
            origin,
        }
    }
}
