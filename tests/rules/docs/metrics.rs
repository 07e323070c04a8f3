//! Holds docs/metrics.md, docs/runbooks.md, the dashboard and the alerts to the metrics that there are.
//! `tests/data/metrics.txt` lists those, and is itself held to a running daemon.

mod query;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::query::{Name, names};
use super::{pages, read, table};

const METRICS: &str = include_str!("../../data/metrics.txt");
const PAGE: &str = "docs/metrics.md";
const RULES: &str = "manifests/components/prometheus-rule/rules.yaml";
const DASHBOARD: &str = "manifests/components/dashboard/informerd.json";
const RUNBOOKS: &str = "docs/runbooks.md";
/// What Prometheus adds to each series, and what a bucket of a histogram has.
const ADDED_LABELS: &[&str] = &["instance", "job", "namespace", "pod", "container", "le"];

/// The metrics with their types, counters as they are queried.
fn known() -> BTreeMap<String, &'static str> {
    let full = |(name, kind): (&str, &'static str)| match kind {
        "counter" => (format!("{name}_total"), kind),
        "info" => (format!("{name}_info"), kind),
        _ => (name.to_owned(), kind),
    };
    METRICS.lines().filter_map(|line| line.split_once(' ')).map(full).collect()
}

/// What a query may name.
fn series() -> BTreeSet<String> {
    let of = |(name, kind): (String, &str)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).into(),
        _ => vec![name],
    };
    known().into_iter().flat_map(of).collect()
}

/// The rows of the page: type and labels of each metric.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut documented = BTreeMap::new();
    for row in table(PAGE, "metrics").lines() {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        if let [_, name, kind, labels, meaning, _] = cells[..]
            && let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'))
        {
            assert!(!labels.is_empty() && meaning.len() > 3, "{row}");
            let labels = labels.split(", ").filter(|label| *label != "–").map(str::to_owned).collect();
            documented.insert(name.to_owned(), (kind.to_owned(), labels));
        }
    }
    documented
}

fn rules() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read(RULES)).expect("YAML");
    let groups = rules["spec"]["groups"].as_array().expect("groups");
    groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").to_vec()).collect()
}

/// The panels of the dashboard, without the rows that only group them.
fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().filter(|panel| panel["type"] != "row").cloned().collect()
}

fn targets(panel: &Value) -> impl Iterator<Item = (&str, &str)> {
    panel["targets"]
        .as_array()
        .expect("queries")
        .iter()
        .map(|target| (target["expr"].as_str().expect("a query"), target["legendFormat"].as_str().expect("a legend")))
}

#[test]
fn every_metric_is_documented() {
    let (known, documented) = (known(), documented());
    let is_wrong = |(name, kind): &(&String, &&str)| documented.get(*name).is_none_or(|(found, _)| found != *kind);
    let lacks: Vec<_> = known.iter().filter(is_wrong).collect();
    let stale: Vec<_> = documented.keys().filter(|name| !known.contains_key(*name)).collect();
    assert!(lacks.is_empty() && stale.is_empty(), "{PAGE} lacks {lacks:#?}\nand should not have {stale:#?}");
}

#[test]
fn every_query_names_metrics_and_labels_that_exist() {
    let (series, documented, rules) = (series(), documented(), rules());
    let recorded: BTreeSet<_> = rules.iter().filter_map(|rule| rule["record"].as_str()).collect();
    let mut queries: Vec<_> = rules.iter().map(|rule| rule["expr"].as_str().expect("a query").to_owned()).collect();
    queries.extend(
        panels().iter().flat_map(|panel| targets(panel).map(|(query, _)| query.to_owned()).collect::<Vec<_>>()),
    );
    assert!(queries.len() > 80, "only {} queries found", queries.len());
    let labels_of = |metric: &str| {
        let ends = ["_bucket", "_sum", "_count"].map(|end| metric.strip_suffix(end).unwrap_or(metric));
        ends.into_iter().find_map(|name| documented.get(name)).map(|(_, labels)| labels)
    };
    for query in &queries {
        let mut metrics = Vec::new();
        let mut listed = Vec::new();
        for name in names(query) {
            match name {
                Name::Metric(name) => {
                    let known = series.contains(&name) || recorded.contains(&*name);
                    assert!(known, "there is no metric {name}: {query}");
                    metrics.push(name);
                }
                Name::Matched(label) => {
                    let metric = metrics.last().unwrap_or_else(|| panic!("no metric before {label}: {query}"));
                    let has = labels_of(metric).is_some_and(|labels| labels.contains(&label));
                    assert!(has || ADDED_LABELS.contains(&&*label), "{metric} has no label {label}: {query}");
                }
                Name::Listed(label) => listed.push(label),
            }
        }
        assert!(!metrics.is_empty(), "no metric in {query}");
        for label in listed {
            let has = metrics.iter().filter_map(|metric| labels_of(metric)).any(|labels| labels.contains(&label));
            assert!(has || ADDED_LABELS.contains(&&*label), "no metric has the label {label}: {query}");
        }
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            assert_eq!(query.matches(open).count(), query.matches(close).count(), "{query}");
        }
    }
}

#[test]
fn every_panel_is_described_and_has_its_place() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let all = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut titles, mut taken) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in all {
        let title = panel["title"].as_str().expect("a title");
        assert!(titles.insert(title), "two panels are called {title}");
        assert!(ids.insert(panel["id"].as_u64()), "{title} has the id of another panel");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        assert!(at("x") + at("w") <= 24, "{title} is wider than the dashboard");
        for place in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title} covers another panel");
        }
    }
    let panels = panels();
    assert!(panels.len() > 40 && all.len() - panels.len() > 5, "{} panels", panels.len());
    for panel in &panels {
        let title = &panel["title"];
        let description = panel["description"].as_str().unwrap_or_default();
        assert!(description.len() > 20 && description.ends_with('.'), "{title} has no description: {description:?}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        let drawn = panel["type"] == "timeseries";
        for (query, legend) in targets(panel) {
            assert!(!drawn || !legend.is_empty(), "{title}: a line without a legend");
            // What the legend shows is a label that the result has.
            let names = names(query);
            let aggregated = names.iter().any(|name| matches!(name, Name::Listed(_))) || query.starts_with("sum");
            for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
                let shown = if aggregated {
                    names.contains(&Name::Listed(label.to_owned()))
                } else {
                    ADDED_LABELS.contains(&label)
                };
                assert!(shown, "{title}: {query} has no label {label} for its legend");
            }
        }
    }
}

#[test]
fn no_page_names_a_metric_that_does_not_exist() {
    let mut known = series();
    known.extend(self::known().into_keys());
    known.extend(rules().iter().filter_map(|rule| rule["record"].as_str()).map(str::to_owned));
    let (mut named, mut stale) = (0, Vec::new());
    for page in pages() {
        let text = read(&page);
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '*'))) {
            let is_metric = ["informerd_", "workqueue_", "process_"].iter().any(|start| word.starts_with(start));
            // The crate for clients in Rust.
            if !is_metric || word.starts_with("informerd_client") {
                continue;
            }
            named += 1;
            let exists = match word.strip_suffix('*') {
                Some(start) => known.iter().any(|name| name.starts_with(start)),
                None => known.contains(word),
            };
            if !exists {
                stale.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(stale.is_empty(), "there is no such metric: {stale:#?}");
    assert!(named > 200, "only {named} names found");
}

#[test]
fn every_alert_has_its_runbook() {
    const PARTS: &[&str] = &["**Meaning.** ", "**Impact.** ", "**Diagnosis.**", "**Causes and fixes.**"];
    let page = read(RUNBOOKS);
    let sections: BTreeMap<_, _> = page
        .split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .filter(|(title, _)| *title != "Before you start")
        .collect();
    let rules = rules();
    let alerts: BTreeMap<_, _> = rules.iter().filter_map(|rule| Some((rule["alert"].as_str()?, rule))).collect();
    assert!(alerts.len() > 5, "only {alerts:?} found");
    assert_eq!(sections.keys().collect::<Vec<_>>(), alerts.keys().collect::<Vec<_>>(), "the sections of {RUNBOOKS}");
    for (alert, rule) in alerts {
        let link = format!("{RUNBOOKS}#{}", alert.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], *link, "{alert}");
        let places: Vec<_> = PARTS.iter().map(|part| sections[alert].find(&format!("\n{part}"))).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{alert} lacks one of {PARTS:?}: {places:?}");
    }
}
