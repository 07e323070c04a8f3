//! The names in a PromQL expression.

/// A name, in the order of the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Metric(String),
    /// A label that the metric before it is selected by.
    Matched(String),
    /// A label of an aggregation or of a vector matching.
    Listed(String),
}

pub(super) fn names(query: &str) -> Vec<Name> {
    const KEYWORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"];
    const LABEL_LISTS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
    let mut names = Vec::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        if matches!(first, '"' | '\'') {
            rest = after(&rest[1..], first);
        } else if first == '{' {
            rest = matchers(&rest[1..], &mut names);
        } else if first == '[' {
            rest = after(rest, ']');
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if is_of_name(first) {
            let (word, next) = word(rest);
            rest = next.trim_start();
            if LABEL_LISTS.contains(&word) {
                if let Some(list) = rest.strip_prefix('(') {
                    let (labels, next) = list.split_once(')').unwrap_or((list, ""));
                    let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
                    names.extend(labels.map(|label| Name::Listed(label.to_owned())));
                    rest = next;
                }
            } else if ["sum", "min", "max", "count", "avg"].contains(&word) {
                // An aggregation, whose labels may stand in front of what it is of.
            } else if !rest.starts_with('(') && !KEYWORDS.contains(&word) {
                names.push(Name::Metric(word.to_owned()));
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    names
}

/// The labels between braces. Their values may hold braces, too.
fn matchers<'q>(mut rest: &'q str, names: &mut Vec<Name>) -> &'q str {
    while let Some(first) = rest.chars().next() {
        if first == '}' {
            return &rest[1..];
        } else if first == '"' {
            rest = after(&rest[1..], '"');
        } else if is_of_name(first) {
            let (label, next) = word(rest);
            names.push(Name::Matched(label.to_owned()));
            rest = next;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    ""
}

fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !is_of_name(c) && !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == ':'
}

fn after(text: &str, end: char) -> &str {
    text.find(end).map_or("", |at| &text[at + end.len_utf8()..])
}

#[test]
fn names_are_found_in_queries() {
    let written = |name: &Name| match name {
        Name::Metric(name) => name.clone(),
        Name::Matched(label) => format!("{{{label}}}"),
        Name::Listed(label) => format!("({label})"),
    };
    for (query, expected) in [
        ("up == 1", vec!["up"]),
        (
            r#"sum by (instance, verb) (rate(a_total{code=~"5..|b",verb!="c"}[5m])) / on (x) group_left (y) b:c > 0.05 and d"#,
            vec!["(instance)", "(verb)", "a_total", "{code}", "{verb}", "(x)", "(y)", "b:c", "d"],
        ),
        ("max without(pod) (a offset 5m) or vector(0)", vec!["(pod)", "a"]),
        (r#"a{b="}{",c=~"d,e"} * histogram_quantile(0.99, f)"#, vec!["a", "{b}", "{c}", "f"]),
    ] {
        assert_eq!(names(query).iter().map(written).collect::<Vec<_>>(), expected, "{query}");
    }
}
