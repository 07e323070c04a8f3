//! The controllers that keep the cluster running: a kubelet for all nodes, a scheduler, the deployment and endpoint
//! controllers, and a source of mishaps that give them work.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::deployments::Seen;
use super::render;
use super::{DemoConfig, micro_now};
use crate::store::Store;
use crate::stored::Stored;
use crate::types::{EventType, ObjectKey};
use crate::write::{mix, now};

const TICK: Duration = Duration::from_millis(50);
/// How often a node renews its lease. It updates its status every [`STATUS`].
const LEASE: Duration = Duration::from_secs(10);
const STATUS: Duration = Duration::from_secs(60);
/// The most events to keep. It has the effect of a short time to live.
const EVENTS: usize = 1000;
/// The most deployments to reconcile in one tick.
const RECONCILES: usize = 50;

/// A later step in the life of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Schedule,
    Run,
    Recover,
    Remove,
}

pub(super) struct Controllers {
    pub(super) store: Arc<Store>,
    config: DemoConfig,
    pub(super) random: u64,
    /// Live pods by `namespace/replicaset`.
    pub(super) pods_of: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Replica sets by deployment.
    pub(super) sets_of: BTreeMap<ObjectKey, BTreeSet<String>>,
    pub(super) deployments: Vec<ObjectKey>,
    /// All changes up to this revision were processed.
    pods_seen: u64,
    deployments_seen: u64,
    dirty: BTreeSet<ObjectKey>,
    steps: BinaryHeap<Reverse<(Instant, ObjectKey, Step)>>,
    /// The state of each pod as the deployment controller last saw it, so that it reads only changed pods.
    pub(super) seen: HashMap<ObjectKey, Arc<Seen>>,
    pub(super) events: VecDeque<ObjectKey>,
    addresses: u64,
    allowance: f64,
    heartbeats: usize,
    statuses: usize,
    began: Instant,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owned {
    #[serde(default)]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    name: String,
}

// === impl Controllers ===

impl Controllers {
    /// Reads the existing objects. Later changes are handled once it runs.
    pub(super) fn new(store: Arc<Store>, config: DemoConfig) -> Self {
        let mut controllers = Self {
            random: mix(config.seed ^ 0xc0de),
            addresses: config.pods as u64,
            store,
            config,
            pods_of: BTreeMap::new(),
            sets_of: BTreeMap::new(),
            deployments: Vec::new(),
            pods_seen: 0,
            deployments_seen: 0,
            dirty: BTreeSet::new(),
            steps: BinaryHeap::new(),
            seen: HashMap::new(),
            events: VecDeque::new(),
            allowance: 0.0,
            heartbeats: 0,
            statuses: 0,
            began: Instant::now(),
        };
        controllers.learn();
        controllers
    }

    pub(super) async fn run(mut self) {
        self.began = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = self.store.revision();
        loop {
            ticks.tick().await;
            self.observe();
            self.heartbeat();
            self.take_steps();
            self.reconcile();
            let written = self.store.revision().saturating_sub(last);
            last += written;
            let rate = self.config.churn;
            let earned = rate * TICK.as_secs_f64();
            self.allowance = (self.allowance + earned - written as f64).clamp(-2.0 * rate, rate.max(1.0));
            while self.allowance >= 1.0 {
                self.mishap();
                let written = self.store.revision().saturating_sub(last);
                last += written;
                self.allowance -= written.max(1) as f64;
            }
        }
    }

    /// Reads the whole state: at the start, and whenever changes were missed.
    fn learn(&mut self) {
        self.pods_of.clear();
        self.sets_of.clear();
        // Read the revisions before the objects. A change in between is seen twice, which is harmless.
        (self.pods_seen, self.deployments_seen) = (self.store.revision(), self.store.revision());
        for pod in self.store.objects("pods").values() {
            self.saw_pod(pod, false);
        }
        for set in self.store.objects("replicasets").values() {
            self.saw_set(set);
        }
        self.deployments = self.store.objects("deployments").keys().cloned().collect();
    }

    fn observe(&mut self) {
        let pods = self.store.changes("pods", self.pods_seen);
        let deployments = self.store.changes("deployments", self.deployments_seen);
        let (Some(pods), Some(deployments)) = (pods, deployments) else {
            self.learn();
            self.dirty = self.deployments.iter().cloned().collect();
            return;
        };
        for change in pods {
            self.pods_seen = change.rv;
            let deployment = self.saw_pod(&change.object, change.kind == EventType::Deleted);
            self.dirty.extend(deployment);
        }
        for change in deployments {
            self.deployments_seen = change.rv;
            let key = change.object.key.clone();
            match change.kind {
                EventType::Added => self.deployments.push(key.clone()),
                EventType::Deleted => self.deployments.retain(|of| *of != key),
                EventType::Modified => {}
            }
            self.dirty.insert(key);
        }
    }

    /// Records a pod and returns its deployment.
    fn saw_pod(&mut self, pod: &Stored, deleted: bool) -> Option<ObjectKey> {
        let owned: Owned = serde_json::from_slice(pod.metadata()).ok()?;
        let key = &pod.key;
        if !deleted {
            let (node, phase) = (pod.attributes.field(0), pod.attributes.field(5));
            if owned.deletion_timestamp.is_some() {
                self.later(1_500, key, Step::Remove);
            } else if node.is_empty() {
                self.later(300, key, Step::Schedule);
            } else if phase == "Pending" {
                self.later(1_200, key, Step::Run);
            }
        }
        let owner = owned.owner_references.iter().find(|owner| owner.kind == "ReplicaSet")?;
        let set = format!("{}/{}", key.namespace(), owner.name);
        let pods = self.pods_of.entry(set).or_default();
        if deleted || owned.deletion_timestamp.is_some() {
            pods.remove(key);
            self.seen.remove(key);
        } else {
            pods.insert(key.clone());
        }
        let (deployment, _) = owner.name.rsplit_once('-')?;
        Some(ObjectKey::new(key.namespace(), deployment))
    }

    pub(super) fn saw_set(&mut self, set: &Stored) {
        if let Ok(owned) = serde_json::from_slice::<Owned>(set.metadata())
            && let Some(owner) = owned.owner_references.first()
        {
            let deployment = ObjectKey::new(set.key.namespace(), &owner.name);
            self.sets_of.entry(deployment).or_default().insert(set.key.name().to_owned());
        }
    }

    pub(super) fn later(&mut self, milliseconds: u64, pod: &ObjectKey, step: Step) {
        let wait = milliseconds / 2 + self.pick(milliseconds);
        self.steps.push(Reverse((Instant::now() + Duration::from_millis(wait), pod.clone(), step)));
    }

    fn take_steps(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, ..))) = self.steps.peek()
            && *at <= now
        {
            let Some(Reverse((_, pod, step))) = self.steps.pop() else { return };
            match step {
                Step::Schedule => self.schedule(&pod),
                Step::Run => self.run_pod(&pod),
                Step::Recover => self.recover(&pod),
                Step::Remove => {
                    let _ = self.store.delete("pods", &pod);
                }
            }
        }
    }

    fn schedule(&mut self, key: &ObjectKey) {
        let node = render::node_name(self.pick_index(self.config.nodes));
        let at = now();
        let scheduled = self.store.modify("pods", key, |pod| {
            if pod["spec"]["nodeName"].is_null() {
                pod["spec"]["nodeName"] = json!(node);
                pod["status"]["conditions"] =
                    json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": at}]);
            }
            Ok(())
        });
        if let Ok(pod) = scheduled {
            let message = format!("Successfully assigned {} to {node}", key.as_str());
            self.event("v1", "Pod", &pod, "Scheduled", &message, "default-scheduler");
        }
    }

    fn run_pod(&mut self, key: &ObjectKey) {
        self.addresses += 1;
        let (ip, at) = (render::pod_ip(self.addresses), now());
        let ran = self.store.modify("pods", key, |pod| {
            if pod["status"]["phase"] != "Pending" || !pod["metadata"]["deletionTimestamp"].is_null() {
                return Ok(());
            }
            let condition = |of: &str| {
                json!({"type": of, "status": "True", "lastProbeTime": null, "lastTransitionTime": at})
            };
            let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
            let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let container = |container: &Value| {
                json!({"name": container["name"], "state": {"running": {"startedAt": at}}, "lastState": {}, "ready": true,
                    "restartCount": 0, "image": container["image"], "imageID": container["image"],
                    "containerID": format!("containerd://{}", super::super::write::uid(mix(at.len() as u64))), "started": true})
            };
            pod["status"] = json!({
                "phase": "Running", "hostIP": "192.168.0.2", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": at,
                "conditions": conditions,
                "containerStatuses": containers.iter().map(container).collect::<Vec<_>>(), "qosClass": "Burstable",
            });
            Ok(())
        });
        if let Ok(pod) = ran {
            self.event("v1", "Pod", &pod, "Started", "Started container", "kubelet");
        }
    }

    fn heartbeat(&mut self) {
        let elapsed = Instant::now() - self.began;
        let due = |every: Duration, count: usize| (elapsed.as_secs_f64() / every.as_secs_f64() * count as f64) as usize;
        let nodes = self.config.nodes;
        for index in self.heartbeats..due(LEASE, nodes) {
            let key = ObjectKey::new("kube-node-lease", &render::node_name(index % nodes));
            let _ = self.store.modify("leases", &key, |lease| {
                lease["spec"]["renewTime"] = json!(micro_now());
                Ok(())
            });
            self.heartbeats = index + 1;
        }
        for index in self.statuses..due(STATUS, nodes) {
            let key = ObjectKey::new("", &render::node_name(index % nodes));
            let at = now();
            let _ = self.store.modify("nodes", &key, |node| {
                for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    condition["lastHeartbeatTime"] = json!(at);
                }
                Ok(())
            });
            self.statuses = index + 1;
        }
    }

    fn reconcile(&mut self) {
        for _ in 0..RECONCILES {
            let Some(key) = self.dirty.pop_first() else { return };
            match self.store.objects("deployments").get(&key) {
                Some(deployment) => self.roll(&key, &deployment.value()),
                None => self.collect(&key),
            }
        }
    }

    pub(super) fn terminate(&mut self, key: &ObjectKey) {
        let marked = self.store.modify("pods", key, |pod| {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                pod["metadata"]["deletionTimestamp"] = json!(now());
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            }
            Ok(())
        });
        if let Ok(pod) = marked {
            self.event("v1", "Pod", &pod, "Killing", "Stopping container", "kubelet");
        }
    }

    pub(super) fn event(
        &mut self,
        version: &str,
        kind: &str,
        about: &Stored,
        reason: &str,
        message: &str,
        source: &str,
    ) {
        self.random = mix(self.random);
        let object = (version, kind, about.key.namespace(), about.key.name(), about.attributes.uid.as_str());
        if let Ok(event) = self.store.create(render::event(object, reason, message, source, self.random, &now())) {
            self.events.push_back(event.key.clone());
        }
        if self.events.len() > EVENTS
            && let Some(oldest) = self.events.pop_front()
        {
            let _ = self.store.delete("events", &oldest);
        }
    }

    pub(super) fn pick(&mut self, below: u64) -> u64 {
        self.random = mix(self.random);
        self.random % below.max(1)
    }

    pub(super) fn pick_index(&mut self, length: usize) -> usize {
        usize::try_from(self.pick(length as u64)).unwrap_or(0)
    }
}
