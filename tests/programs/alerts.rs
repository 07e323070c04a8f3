//! The alerts, read and tried by Prometheus's own promtool (see tests/clients/prepare). That every query names a metric that
//! exists is held by tests/rules/docs.rs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

use crate::process;
use crate::support::{file, read, tied};
use serde_json::{Value, json};

const RULES: &str = "manifests/components/prometheus-rule/rules.yaml";
const TRIED: &str = "tests/data/alerts.yaml";

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs promtool, which must find nothing wrong.
pub(super) fn promtool(arguments: &[&str]) -> String {
    let output = tied::blocking(process::tool("promtool")).args(arguments).output().expect("promtool runs");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "promtool {}: {said}", arguments.join(" "));
    said
}

/// A file of rules for Prometheus, which takes JSON for YAML.
pub(super) fn write(directory: &Path, name: &str, value: &Value) -> String {
    file(directory, name, value.to_string()).display().to_string()
}

#[test]
fn the_rules_are_rules() {
    let directory = tempfile::tempdir().unwrap();
    let rules = write(directory.path(), "rules.yaml", &yaml(RULES)["spec"]);
    let said = promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules]);
    assert!(said.contains("SUCCESS: "), "{said}");
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    let (rules, mut tried) = (yaml(RULES), yaml(TRIED));
    let alerts = |of: &Value| -> Vec<String> {
        of.as_array().unwrap().iter().filter_map(|rule| rule["alert"].as_str()).map(str::to_owned).collect()
    };
    let alerts = alerts(&rules["spec"]["groups"][0]["rules"]);
    assert!(alerts.len() >= 10, "{alerts:?}");
    for alert in &alerts {
        let tests = tried["tests"].as_array().unwrap().iter().filter_map(|test| test["alert_rule_test"].as_array());
        let of_it: Vec<_> = tests.flatten().filter(|test| test["alertname"] == alert.as_str()).collect();
        let fires = |test: &&Value| test["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
        assert!(of_it.iter().any(fires), "{TRIED} has no case in which {alert} fires");
        assert!(of_it.iter().any(|test| !fires(test)), "{TRIED} has no case in which {alert} does not fire");
    }
    let directory = tempfile::tempdir().unwrap();
    tried["rule_files"] = json!([write(directory.path(), "rules.yaml", &rules["spec"])]);
    let tests = write(directory.path(), "tests.yaml", &tried);
    let said = promtool(&["test", "rules", &tests]);
    assert!(said.contains("SUCCESS"), "{said}");
}
