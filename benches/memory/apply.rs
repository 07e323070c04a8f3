//! Applies manifests to the kube-apiserver.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::{Connection, Target};
use super::manifests::{self, Copies, Manifest};
use super::pods;
use super::world::{CONNECTIONS, MERGE, REQUESTS, at_once, connections};

/// What became of the manifests.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) manifests: usize,
    /// Documents that are no manifests.
    pub(crate) others: usize,
    pub(crate) written: usize,
    /// There was the very same manifest already, or another definition of the resource.
    pub(crate) same: usize,
    /// Pods that were made of the templates of workloads.
    pub(crate) pods: usize,
    pub(crate) refused: BTreeMap<String, usize>,
    /// The kinds that were written.
    pub(crate) resources: BTreeSet<Resource>,
}

/// A resource in the preferred version of its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    /// Its name in rules.
    pub(crate) name: String,
    /// All of its objects.
    pub(crate) path: String,
}

/// How objects of a kind are written.
#[derive(Clone, Debug)]
struct Kind {
    resource: Resource,
    /// The path of the group and version that the manifest names.
    root: String,
    plural: String,
    is_namespaced: bool,
}

struct Applier {
    connections: Vec<Connection>,
    kinds: HashMap<[String; 2], Kind>,
    applied: Mutex<Applied>,
}

/// All groups, versions and resources, in one answer.
#[derive(Deserialize)]
struct Discovery {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Name,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Found>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    resource: String,
    response_kind: ResponseKind,
    scope: String,
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    kind: String,
}

const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];

/// They decide about the writes of others, or ask servers that do not run here.
const INTERFERING: [&str; 2] = ["admissionregistration.k8s.io", "apiregistration.k8s.io"];

/// The kube-apiserver itself renews some all the time, so they cannot be compared.
const RENEWED: &str = "leases.coordination.k8s.io";

/// Definitions are served within this time.
const SERVED: Duration = Duration::from_secs(60);

/// How often what the server cannot do yet is tried.
const ATTEMPTS: usize = 5;

/// Applies what is below a directory: definitions first, then namespaces, then the rest, and pods last.
pub(crate) async fn apply(apiserver: &Target, dir: &Path) -> anyhow::Result<Applied> {
    let (manifests, others) = manifests::read(dir)?;
    let applied = Applied { manifests: manifests.len(), others, ..Applied::default() };
    let connections = connections(apiserver).await?;
    let mut applier = Applier { connections, kinds: HashMap::new(), applied: Mutex::new(applied) };
    applier.discover().await?;
    let (definitions, rest): (Vec<_>, Vec<_>) = manifests.into_iter().partition(Manifest::is_definition);
    let definitions = applier.tell_apart(definitions);
    let written = applier.apply_all(&definitions).await?;
    applier.wait_until_served(&written).await?;

    let rest = applier.tell_apart(rest);
    let names: BTreeSet<&str> = rest.iter().map(|manifest| manifest.metadata("namespace")).collect();
    let bare: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).map(Manifest::namespace).collect();
    applier.apply_all(&bare).await?;
    let is_namespace = |manifest: &Manifest| manifest.kind() == ["v1", "Namespace"];
    let (namespaces, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_namespace);
    applier.apply_all(&namespaces).await?;
    let written = applier.apply_all(&rest).await?;
    let pods: Vec<Manifest> = written.into_iter().flat_map(pods::of_workload).collect();
    applier.applied.get_mut().pods = pods.len();
    applier.apply_all(&pods).await?;
    let mut applied = applier.applied.into_inner();
    applied.resources.retain(|resource| resource.name != RENEWED);
    Ok(applied)
}

// === impl Applier ===

impl Applier {
    /// Learns which kinds are served.
    async fn discover(&mut self) -> anyhow::Result<()> {
        self.kinds.clear();
        for root in ["/api", "/apis"] {
            let mut connection = self.connections[0].share()?;
            let answer = connection.send(Method::GET, root, &[("accept", DISCOVERY)], String::new()).await?;
            let found: Discovery = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
            for group in &found.items {
                group.kinds(root, &mut self.kinds);
            }
        }
        Ok(())
    }

    async fn wait_until_served(&mut self, definitions: &[&Manifest]) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            self.discover().await?;
            let is_served = |definition: &Manifest| {
                let spec = &definition.object["spec"];
                self.kinds.keys().any(|[version, kind]| {
                    let group = version.rsplit_once('/').map(|(group, _)| group);
                    spec["group"].as_str() == group && spec["names"]["kind"] == **kind
                })
            };
            let missing = definitions.iter().filter(|it| !is_served(it)).count();
            if missing == 0 || begun.elapsed() > SERVED {
                eprintln!("{} definitions, {missing} of them are not served", definitions.len());
                return Ok(());
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Leaves out what cannot be applied.
    fn tell_apart(&mut self, manifests: Vec<Manifest>) -> Vec<Manifest> {
        let (mut copies, applied) = (Copies::default(), self.applied.get_mut());
        let mut kept = Vec::new();
        for mut manifest in manifests {
            let kind = self.kinds.get(&manifest.kind().map(str::to_owned));
            let why = match kind {
                _ if INTERFERING.iter().any(|group| manifest.kind()[0].starts_with(group)) => "left out, interferes",
                None => "kind is not served",
                Some(_) if manifest.metadata("name").is_empty() => "has no name",
                Some(kind) if copies.tell_apart(&mut manifest, kind.is_namespaced) => {
                    kept.push(manifest);
                    continue;
                }
                Some(_) => {
                    applied.same += 1;
                    continue;
                }
            };
            *applied.refused.entry(why.to_owned()).or_default() += 1;
        }
        kept
    }

    /// Returns those that were written.
    async fn apply_all<'a>(&self, manifests: &'a [Manifest]) -> anyhow::Result<Vec<&'a Manifest>> {
        let written = at_once(manifests.len(), REQUESTS, async |i| {
            let is_written = self.apply(&manifests[i], &self.connections[i % CONNECTIONS]).await?;
            Ok(is_written.then_some(i))
        });
        Ok(written.await?.into_iter().flatten().map(|i| &manifests[i]).collect())
    }

    async fn apply(&self, manifest: &Manifest, connection: &Connection) -> anyhow::Result<bool> {
        let Some(kind) = self.kinds.get(&manifest.kind().map(str::to_owned)) else { return Ok(false) };
        let path = kind.path(manifest);
        let [manager, status_manager] = manifest.managers;
        let to = format!("{path}?fieldManager={manager}&force=true");
        let answer = request(connection, &to, &APPLY, &manifest.object).await?;
        let (outcome, mut status_outcome) = (answer, Ok(()));
        if outcome.is_ok() && manifest.status.is_object() {
            let status = json!({"status": manifest.status});
            let to = format!("{path}/status?fieldManager={status_manager}");
            status_outcome = request(connection, &to, &MERGE, &status).await?;
        }
        let mut applied = self.applied.lock();
        if let Err(why) = status_outcome {
            *applied.refused.entry(format!("status, {why}, {}", kind.resource.name)).or_default() += 1;
        }
        match &outcome {
            Ok(()) => {
                applied.written += 1;
                applied.resources.insert(kind.resource.clone());
            }
            Err(why) => *applied.refused.entry(format!("{why}, {}", kind.resource.name)).or_default() += 1,
        }
        Ok(outcome.is_ok())
    }
}

/// A patch, tried again while the server is not ready for it. The error inside is the server's reason.
async fn request(
    connection: &Connection,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> anyhow::Result<Result<(), String>> {
    let mut attempts = 1;
    loop {
        let answer = connection.share()?.request(Method::PATCH, path, headers, body.to_string()).await?;
        let status = answer.status();
        let text = answer.into_body().collect().await?.to_bytes();
        if status.is_success() {
            return Ok(Ok(()));
        }
        let is_later = status.as_u16() == 429 || status.is_server_error();
        if !is_later || attempts == ATTEMPTS {
            let said: Value = serde_json::from_slice(&text).unwrap_or_default();
            return Ok(Err(said["reason"].as_str().map_or_else(|| status.to_string(), str::to_owned)));
        }
        attempts += 1;
        sleep(Duration::from_secs(1)).await;
    }
}

// === impl Kind ===

impl Kind {
    fn path(&self, manifest: &Manifest) -> String {
        let part = |name| utf8_percent_encode(manifest.metadata(name), NON_ALPHANUMERIC);
        let (namespace, name) = (part("namespace"), part("name"));
        if self.is_namespaced {
            format!("{}/namespaces/{namespace}/{}/{name}", self.root, self.plural)
        } else {
            format!("{}/{}/{name}", self.root, self.plural)
        }
    }
}

// === impl Group ===

impl Group {
    /// Adds its kinds that can be listed and watched, by group, version and kind.
    fn kinds(&self, root: &str, kinds: &mut HashMap<[String; 2], Kind>) {
        let (group, mut preferred) = (&self.metadata.name, HashMap::new());
        for version in &self.versions {
            let slash = if group.is_empty() { "" } else { "/" };
            let api_version = format!("{group}{slash}{}", version.version);
            let root = format!("{root}/{api_version}");
            let can =
                |found: &&Found| ["list", "watch", "patch"].iter().all(|verb| found.verbs.iter().any(|it| it == verb));
            for found in version.resources.iter().filter(can) {
                let dot = if group.is_empty() { "" } else { "." };
                let name = format!("{}{dot}{group}", found.resource);
                let path =
                    preferred.entry(name.clone()).or_insert_with(|| format!("{root}/{}", found.resource)).clone();
                let kind = Kind {
                    resource: Resource { name, path },
                    root: root.clone(),
                    plural: found.resource.clone(),
                    is_namespaced: found.scope == "Namespaced",
                };
                kinds.insert([api_version.clone(), found.response_kind.kind.clone()], kind);
            }
        }
    }
}
