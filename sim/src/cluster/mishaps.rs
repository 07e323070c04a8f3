//! Events that give the controllers work: crashes, evictions, rollouts, scaling.

use serde_json::{Value, json};

use super::controllers::{Controllers, Step};
use super::render;
use crate::types::ObjectKey;
use crate::write::now;

// === impl Controllers ===

impl Controllers {
    /// Triggers one random event of a cluster's daily life.
    pub(super) fn mishap(&mut self) {
        if self.deployments.is_empty() {
            return;
        }
        let index = self.pick_index(self.deployments.len());
        let deployment = self.deployments[index].clone();
        match self.pick(100) {
            0..40 => self.restart(&deployment),
            40..65 => {
                if let Some(pod) = self.any_pod(&deployment) {
                    self.terminate(&pod);
                }
            }
            65..80 => {
                let up = self.pick(2) == 0;
                let _ = self.store.modify("deployments", &deployment, |deployment| {
                    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
                    // Keep the size roughly constant: scale small deployments up and large ones down.
                    let up = if replicas <= 1 { true } else { up && replicas < 40 };
                    deployment["spec"]["replicas"] = json!(if up { replicas + 1 } else { replicas - 1 });
                    Ok(())
                });
            }
            80..83 => {
                let tag = self.pick(1000);
                let _ = self.store.modify("deployments", &deployment, |deployment| {
                    if let Some(image) = deployment.pointer_mut("/spec/template/spec/containers/0/image") {
                        let name = image.as_str().and_then(|image| Some(image.rsplit_once(':')?.0.to_owned()));
                        *image = json!(format!("{}:2.{tag}", name.unwrap_or_default()));
                    }
                    Ok(())
                });
            }
            83..92 => self.turn_widget(),
            _ => self.repeat_event(),
        }
    }

    fn restart(&mut self, deployment: &ObjectKey) {
        let Some(key) = self.any_pod(deployment) else { return };
        let at = now();
        let restarted = self.store.modify("pods", &key, |pod| {
            // A pod that waits to be scheduled has no container that could crash.
            if let Some(container) = container(pod) {
                let count = container["restartCount"].as_u64().unwrap_or(0);
                container["restartCount"] = json!(count + 1);
                container["ready"] = json!(false);
                let since = container["state"]["running"]["startedAt"].clone();
                container["lastState"] =
                    json!({"terminated": {"exitCode": 1, "reason": "Error", "startedAt": since, "finishedAt": at}});
                container["state"] = json!({"waiting": {"reason": "CrashLoopBackOff",
                    "message": "back-off 10s restarting failed container"}});
                set_ready(pod, "False", &at);
            }
            Ok(())
        });
        if let Ok(pod) = restarted {
            self.event("v1", "Pod", &pod, "BackOff", "Back-off restarting failed container", "kubelet");
            self.later(2_000, &key, Step::Recover);
        }
    }

    fn turn_widget(&mut self) {
        let widgets: Vec<ObjectKey> = self.store.objects("widgets").keys().cloned().collect();
        if widgets.is_empty() {
            return;
        }
        let color = render::COLORS[self.pick_index(render::COLORS.len())];
        let index = self.pick_index(widgets.len());
        let _ = self.store.modify("widgets", &widgets[index], |widget| {
            widget["spec"]["color"] = json!(color);
            widget["metadata"]["labels"]["color"] = json!(color);
            widget["status"]["turns"] = json!(widget["status"]["turns"].as_u64().unwrap_or(0) + 1);
            Ok(())
        });
    }

    fn repeat_event(&mut self) {
        let recent = self.pick_index(self.events.len());
        if let Some(key) = self.events.get(recent) {
            let _ = self.store.modify("events", key, |event| {
                event["count"] = json!(event["count"].as_u64().unwrap_or(0) + 1);
                event["lastTimestamp"] = json!(now());
                Ok(())
            });
        }
    }

    /// Completes a restart.
    pub(super) fn recover(&mut self, key: &ObjectKey) {
        let at = now();
        let _ = self.store.modify("pods", key, |pod| {
            if let Some(container) = container(pod) {
                container["ready"] = json!(true);
                container["state"] = json!({"running": {"startedAt": at}});
                set_ready(pod, "True", &at);
            }
            Ok(())
        });
    }

    fn any_pod(&mut self, deployment: &ObjectKey) -> Option<ObjectKey> {
        let sets = self.sets_of.get(deployment)?;
        let ids = sets.iter().map(|name| format!("{}/{name}", deployment.namespace()));
        let pods: Vec<ObjectKey> = ids.filter_map(|id| self.pods_of.get(&id)).flatten().cloned().collect();
        let at = self.pick_index(pods.len());
        pods.get(at).cloned()
    }
}

/// The status of a pod's first container. Indexing would panic if there is none.
fn container(pod: &mut Value) -> Option<&mut Value> {
    pod.pointer_mut("/status/containerStatuses/0").filter(|status| status.is_object())
}

fn set_ready(pod: &mut Value, status: &str, at: &str) {
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
            condition["status"] = json!(status);
            condition["lastTransitionTime"] = json!(at);
        }
    }
}
