//! The deployment, replica set and endpoint controllers in one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::controllers::Controllers;
use super::render::{self, Pod};
use super::template_hash;
use crate::stored::Stored;
use crate::types::ObjectKey;
use crate::write::{mix, now, suffix};

/// The data of a pod that its deployment needs.
#[derive(Debug)]
pub(super) struct Seen {
    rv: u64,
    name: String,
    uid: String,
    ip: String,
    node: String,
    ready: bool,
}

// === impl Controllers ===

impl Controllers {
    /// Reconciles the pods of a deployment with its spec, a few at a time. Every change of a pod triggers this again.
    pub(super) fn roll(&mut self, key: &ObjectKey, deployment: &Value) {
        let template = &deployment["spec"]["template"];
        if !template["metadata"]["labels"].is_object() {
            return;
        }
        let hash = template_hash(template);
        let set_name = format!("{}-{hash}", key.name());
        let wanted =
            usize::try_from(deployment["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX).min(1000);
        let set_key = ObjectKey::new(key.namespace(), &set_name);
        let set = match self.store.objects("replicasets").get(&set_key).cloned() {
            Some(set) => set,
            None => match self.store.create(render::replica_set(deployment, &set_name, &hash, 0)) {
                Ok(set) => {
                    self.saw_set(&set);
                    set
                }
                Err(_) => return,
            },
        };
        let sets = self.sets_of.get(key).cloned().unwrap_or_default();
        let current = self.pods(key, &set_name);
        let old: Vec<ObjectKey> =
            sets.iter().filter(|name| **name != set_name).flat_map(|name| self.pods(key, name)).collect();
        let objects = self.store.objects("pods");
        let all = current.iter().chain(&old);
        let live: Vec<Arc<Seen>> = all.filter_map(|key| Some(self.seen(objects.get(key)?))).collect();
        let ready = live.iter().filter(|pod| pod.ready).count();
        let surge = (wanted / 4).max(1);
        let room = (wanted + surge).saturating_sub(current.len() + old.len());
        for _ in 0..wanted.saturating_sub(current.len()).min(room) {
            self.create_pod(key, deployment, &set, &set_name, &hash);
        }
        let mut doomed: Vec<&ObjectKey> = Vec::new();
        doomed.extend(current.iter().skip(wanted));
        doomed.extend(old.iter().take(ready.saturating_sub(wanted)));
        if wanted == 0 {
            doomed.extend(&old);
        }
        for pod in doomed {
            self.terminate(pod);
        }
        self.report(key, &set_name, &current, &live);
    }

    /// Writes the observed state to the statuses and the endpoints.
    fn report(&self, key: &ObjectKey, set_name: &str, current: &[ObjectKey], live: &[Arc<Seen>]) {
        let sets = self.sets_of.get(key).cloned().unwrap_or_default();
        let set_key = ObjectKey::new(key.namespace(), set_name);
        let ready = live.iter().filter(|pod| pod.ready).count();
        let at = now();
        let _ = self.store.modify("replicasets", &set_key, |set| {
            set["spec"]["replicas"] = json!(current.len());
            for field in ["replicas", "fullyLabeledReplicas"] {
                set["status"][field] = json!(current.len());
            }
            for field in ["readyReplicas", "availableReplicas"] {
                set["status"][field] = json!(ready.min(current.len()));
            }
            Ok(())
        });
        for name in sets.iter().filter(|name| **name != set_name) {
            let count = self.pods(key, name).len();
            let _ = self.store.modify("replicasets", &ObjectKey::new(key.namespace(), name), |set| {
                set["spec"]["replicas"] = json!(count);
                set["status"] = json!({"replicas": count, "observedGeneration": set["metadata"]["generation"]});
                Ok(())
            });
        }
        let _ = self.store.modify("deployments", key, |deployment| {
            let generation = deployment["metadata"]["generation"].as_u64().unwrap_or(1);
            let mut status = render::deployment_status(generation, live.len(), current.len(), ready, &at);
            if deployment["status"]["conditions"].is_array() {
                status["conditions"] = deployment["status"]["conditions"].clone();
            }
            deployment["status"] = status;
            Ok(())
        });
        let placed = live.iter().filter(|pod| !pod.ip.is_empty());
        let endpoints: Vec<Value> =
            placed.map(|pod| render::endpoint(&pod.name, &pod.uid, &pod.ip, &pod.node, pod.ready)).collect();
        let slice = ObjectKey::new(key.namespace(), &format!("{}-slice", key.name()));
        if let Some(service) = self.store.objects("services").get(key)
            && !self.store.objects("endpointslices").contains_key(&slice)
        {
            let slice = render::endpoint_slice(key.namespace(), key.name(), &service.attributes.uid, &at);
            let _ = self.store.create(slice);
        }
        let _ = self.store.modify("endpointslices", &slice, |slice| {
            slice["endpoints"] = endpoints.into();
            Ok(())
        });
    }

    /// The live pods of one of a deployment's replica sets.
    fn pods(&self, deployment: &ObjectKey, set: &str) -> Vec<ObjectKey> {
        let pods = self.pods_of.get(&format!("{}/{set}", deployment.namespace()));
        pods.into_iter().flatten().cloned().collect()
    }

    fn create_pod(&mut self, key: &ObjectKey, deployment: &Value, set: &Stored, set_name: &str, hash: &str) {
        self.random = mix(self.random);
        let name = format!("{set_name}-{}", suffix(self.random));
        let template = &deployment["spec"]["template"]["spec"];
        let image = template["containers"][0]["image"].as_str().unwrap_or("scratch");
        let app = deployment["spec"]["selector"]["matchLabels"]["app"].as_str().unwrap_or(key.name());
        let pod = Pod {
            namespace: key.namespace(),
            name: &name,
            app,
            owner: set_name,
            owner_uid: &set.attributes.uid,
            hash,
            image,
            created: &now(),
            placed: None,
            seed: self.random,
        };
        let Ok(pod) = serde_json::from_str(&render::pod(&pod, 0)) else { return };
        if self.store.create(pod).is_ok() {
            self.event(
                "apps/v1",
                "ReplicaSet",
                set,
                "SuccessfulCreate",
                &format!("Created pod: {name}"),
                "replicaset-controller",
            );
        }
    }

    /// Deletes the dependents of a deleted deployment.
    pub(super) fn collect(&mut self, key: &ObjectKey) {
        for name in self.sets_of.remove(key).unwrap_or_default() {
            for pod in self.pods_of.remove(&format!("{}/{name}", key.namespace())).unwrap_or_default() {
                self.terminate(&pod);
            }
            let _ = self.store.delete("replicasets", &ObjectKey::new(key.namespace(), &name));
        }
    }

    fn seen(&mut self, pod: &Stored) -> Arc<Seen> {
        if let Some(seen) = self.seen.get(&pod.key).filter(|seen| seen.rv == pod.rv) {
            return seen.clone();
        }
        let object = pod.value();
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let seen = Arc::new(Seen {
            rv: pod.rv,
            name: pod.key.name().to_owned(),
            uid: pod.attributes.uid.to_owned(),
            ip: text("/status/podIP"),
            node: text("/spec/nodeName"),
            ready: object["status"]["containerStatuses"][0]["ready"] == true,
        });
        self.seen.insert(pod.key.clone(), seen.clone());
        seen
    }
}
