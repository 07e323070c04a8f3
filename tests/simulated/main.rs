//! The whole daemon before a simulated apiserver.

#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}})
}

mod away;
mod demo;
mod disk;
mod faults;
mod freshness;
mod history;
mod large;
mod look;
mod old_watches;
mod seeded;
mod start;
