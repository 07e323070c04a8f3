//! Holds docs/metrics.md, the dashboard and the alerts to the metrics that there are. `tests/data/metrics.txt` lists those,
//! and is itself held to a running daemon.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::read;

const METRICS: &str = include_str!("../../data/metrics.txt");
const PAGE: &str = "docs/metrics.md";
const BEGIN: &str = "<!-- metrics: held to the code by tests/rules/docs.rs -->";
const END: &str = "<!-- end of metrics -->";
const RULES: &str = "manifests/components/prometheus-rule/rules.yaml";
const DASHBOARD: &str = "manifests/components/dashboard/informerd.json";

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

#[test]
fn every_metric_is_documented() {
    let page = read(PAGE);
    let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
    let mut documented = BTreeMap::new();
    for row in table.unwrap_or_else(|| panic!("{PAGE} has no table between the two comments")).lines() {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        if let [_, name, kind, labels, meaning, _] = cells[..]
            && let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'))
        {
            assert!(!labels.is_empty() && meaning.len() > 3, "{row}");
            documented.insert(name.to_owned(), kind.to_owned());
        }
    }
    let known = known();
    let lacks: Vec<_> = known.iter().filter(|(name, kind)| documented.get(*name).is_none_or(|k| k != **kind)).collect();
    let stale: Vec<_> = documented.keys().filter(|name| !known.contains_key(*name)).collect();
    assert!(lacks.is_empty() && stale.is_empty(), "{PAGE} lacks {lacks:#?}\nand should not have {stale:#?}");
}

#[test]
fn every_query_names_metrics_that_exist() {
    let mut known = series();
    let rules: Value = serde_saphyr::from_str(&read(RULES)).expect("YAML");
    let rules = rules["spec"]["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules").to_vec());
    let rules: Vec<_> = rules.collect();
    known.extend(rules.iter().filter_map(|rule| rule["record"].as_str()).map(str::to_owned));
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let mut queries: Vec<_> = rules.iter().map(|rule| rule["expr"].as_str().expect("a query").to_owned()).collect();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("queries") {
            queries.push(target["expr"].as_str().expect("a query").to_owned());
        }
    }
    assert!(queries.len() > 25, "only {} queries found", queries.len());
    for query in &queries {
        let names = metric_names(query);
        assert!(!names.is_empty(), "no metric in {query}");
        for name in names {
            assert!(known.contains(&name), "there is no {name}, of which asks {query}");
        }
        let balanced = [('(', ')'), ('{', '}'), ('[', ']')];
        for (open, close) in balanced {
            assert_eq!(query.matches(open).count(), query.matches(close).count(), "{query}");
        }
    }
}

#[test]
fn every_alarm_is_explained() {
    let page = read("docs/operations.md");
    let rules = read(RULES);
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5, "only {alerts:?} found");
    for alert in alerts {
        assert!(page.contains(&format!("**{alert}**")), "docs/operations.md does not explain {alert}");
    }
}

#[test]
fn names_are_found_in_queries() {
    for (query, names) in [
        ("up == 1", vec!["up"]),
        (
            r#"sum by (instance, verb) (rate(a_total{code=~"5..|b",verb!="c"}[5m])) / on (x) group_left (y) b:c > 0.05 and d"#,
            vec!["a_total", "b:c", "d"],
        ),
        ("max without(pod) (a offset 5m) or vector(0)", vec!["a"]),
        (r#"{__name__="x"} unless bool"#, vec![]),
    ] {
        assert_eq!(metric_names(query), names, "{query}");
    }
}

/// The metrics a PromQL expression selects by name.
fn metric_names(query: &str) -> Vec<String> {
    const KEYWORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"];
    const LABEL_LISTS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
    let mut names = Vec::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        if matches!(first, '"' | '\'') {
            rest = after(&rest[1..], first);
        } else if first == '{' {
            rest = after_braces(&rest[1..]);
        } else if first == '[' {
            rest = after(rest, ']');
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if first.is_ascii_alphabetic() || first == '_' || first == ':' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let (word, next) = rest.split_at(end);
            let next = next.trim_start();
            rest = next;
            if LABEL_LISTS.contains(&word) {
                rest = if next.starts_with('(') { after(next, ')') } else { next };
            } else if word == "sum" || word == "min" || word == "max" || word == "count" || word == "avg" {
                // An aggregation, whose labels may stand in front of what it is of.
            } else if !next.starts_with('(') && !KEYWORDS.contains(&word) {
                names.push(word.to_owned());
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    names
}

fn after(text: &str, end: char) -> &str {
    text.find(end).map_or("", |at| &text[at + end.len_utf8()..])
}

/// Matchers may hold braces in their strings.
fn after_braces(mut text: &str) -> &str {
    while let Some(at) = text.find(['}', '"']) {
        if text[at..].starts_with('}') {
            return &text[at + 1..];
        }
        text = after(&text[at + 1..], '"');
    }
    ""
}
