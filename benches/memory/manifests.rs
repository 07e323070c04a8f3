//! Manifests that are read from files, instead of objects that are made.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

/// An object as it is applied.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) object: Value,
    /// Null if it has none.
    pub(crate) status: Value,
    /// Who writes the object, and who writes its status.
    pub(crate) managers: [&'static str; 2],
}

/// Tells apart the manifests with one name.
#[derive(Default)]
pub(crate) struct Copies {
    seen: HashSet<String>,
    counts: HashMap<[String; 4], usize>,
}

/// What only the server sets.
const OF_SERVER: [&str; 7] =
    ["managedFields", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "selfLink"];

const DEFINITION: &str = "CustomResourceDefinition";

/// All manifests below a directory, in the order of their paths, and the number of documents that are none.
pub(crate) fn read(dir: &Path) -> anyhow::Result<(Vec<Manifest>, usize)> {
    let (mut paths, mut manifests, mut others) = (BTreeSet::new(), Vec::new(), 0);
    find(dir, &mut paths)?;
    for path in paths {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let documents: Vec<Option<Value>> = if is_json {
            vec![serde_json::from_str(&text).ok()]
        } else {
            text.split("\n---").map(|document| serde_saphyr::from_str(document).ok()).collect()
        };
        for document in documents {
            match document.filter(|document| document["kind"].is_string() && document["apiVersion"].is_string()) {
                Some(document) => flatten(document, &mut manifests),
                None => others += 1,
            }
        }
    }
    Ok((manifests, others))
}

fn find(dir: &Path, paths: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let (file_type, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        if file_type?.is_dir() {
            find(&path, paths)?;
        } else if path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|it| extension == *it)) {
            paths.insert(path);
        }
    }
    Ok(())
}

/// A list stands for its items.
fn flatten(mut document: Value, manifests: &mut Vec<Manifest>) {
    if let Some(items) = document.get_mut("items").and_then(Value::as_array_mut) {
        std::mem::take(items).into_iter().for_each(|item| flatten(item, manifests));
        return;
    }
    let status = document.as_object_mut().and_then(|object| object.remove("status")).unwrap_or_default();
    if let Some(metadata) = document["metadata"].as_object_mut() {
        metadata.retain(|name, _| !OF_SERVER.contains(&name.as_str()));
    }
    // Versions are converted by a webhook that does not run here.
    if document["kind"] == DEFINITION
        && let Some(spec) = document["spec"].as_object_mut()
    {
        spec.remove("conversion");
    }
    manifests.push(Manifest { status, ..Manifest::new(document) });
}

// === impl Manifest ===

impl Manifest {
    pub(crate) fn new(object: Value) -> Self {
        Self { object, status: Value::Null, managers: ["kubectl", "controller"] }
    }

    pub(crate) fn namespace(name: &str) -> Self {
        Self::new(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    }

    /// The group and version, and the kind.
    pub(crate) fn kind(&self) -> [&str; 2] {
        ["apiVersion", "kind"].map(|name| self.object[name].as_str().unwrap_or_default())
    }

    pub(crate) fn is_definition(&self) -> bool {
        self.object["kind"] == DEFINITION
    }

    pub(crate) fn metadata(&self, name: &str) -> &str {
        self.object["metadata"][name].as_str().unwrap_or_default()
    }
}

// === impl Copies ===

impl Copies {
    /// Gives a manifest whose name is taken another namespace, or another name if it has no namespace. Returns false if
    /// there is the very same manifest already, or another definition of the same resource.
    pub(crate) fn tell_apart(&mut self, manifest: &mut Manifest, is_namespaced: bool) -> bool {
        if is_namespaced && manifest.metadata("namespace").is_empty() {
            manifest.object["metadata"]["namespace"] = "default".into();
        }
        if !self.seen.insert(manifest.object.to_string()) {
            return false;
        }
        let [version, kind] = manifest.kind();
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let key = [group, kind, manifest.metadata("namespace"), manifest.metadata("name")].map(str::to_owned);
        let count = self.counts.entry(key).or_default();
        *count += 1;
        if *count > 1 && manifest.is_definition() {
            return false;
        }
        if *count > 1 {
            let part = if is_namespaced { "namespace" } else { "name" };
            manifest.object["metadata"][part] = format!("{}-{count}", manifest.metadata(part)).into();
        }
        true
    }
}
