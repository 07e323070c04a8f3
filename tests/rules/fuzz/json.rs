//! Objects, lists and streams in JSON.

use super::choices::Choices;

const TEXTS: &[&str] =
    &["\"a\"", "\"\"", "\"Running\"", "\"a/b\"", r#""\u0061""#, r#""\ud83d""#, r#""é\"\\n""#, r#""\ud83d\ude00<""#];
const VALUES: &[&str] = &[
    "null",
    "{}",
    "[]",
    "0",
    "-1.5e3",
    "true",
    "false",
    "[[],{}]",
    "1e999",
    r#"{"a":[1,"]}"]}"#,
    "12345678901234567890",
];
const REVISIONS: &[&str] = &["\"7\"", "\"18446744073709551615\"", "\"007\"", r#""\u0037""#, "\"x\"", "null", "7"];
const SPACES: &[&str] = &["", "", "", "", " ", "\n", "\t\r "];

fn text(choices: &mut Choices<'_>) -> &'static str {
    choices.of(TEXTS)
}

fn value(choices: &mut Choices<'_>) -> &'static str {
    if choices.one_in(2) { choices.of(VALUES) } else { text(choices) }
}

fn object(choices: &mut Choices<'_>, members: &[(&str, String)]) -> String {
    let mut out = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        let space = choices.of(SPACES);
        let comma = if index > 0 { "," } else { "" };
        out += &format!("{comma}{space}\"{name}\"{space}:{value}{space}");
    }
    out + "}"
}

fn metadata(choices: &mut Choices<'_>) -> String {
    let mut members = vec![("name", "\"a\"".to_owned()), ("resourceVersion", "\"5\"".to_owned())];
    for _ in 0..choices.below(6) {
        let member = match choices.below(8) {
            0 => ("namespace", text(choices).to_owned()),
            1 => ("uid", text(choices).to_owned()),
            2 => {
                let labels =
                    choices.some(4, |choices| (choices.of(&["b", "a", "c", r"\u0061"]), text(choices).to_owned()));
                ("labels", object(choices, &labels))
            }
            3 => {
                let name = choices.of(&["k8s.io/initial-events-end", "a"]);
                let value = choices.of(&["\"true\"", r#""tru\u0065""#, "\"\"", "true"]).to_owned();
                ("annotations", object(choices, &[(name, value)]))
            }
            4 => ("resourceVersion", choices.of(REVISIONS).to_owned()),
            5 => (choices.of(&["name", "labels", "annotations", "namespace"]), value(choices).to_owned()),
            6 => ("managedFields", format!("[{}]", value(choices))),
            _ => ("ownerReferences", format!("[{{\"uid\":{}}}]", value(choices))),
        };
        if members.iter().any(|(name, _)| *name == member.0) && !choices.one_in(8) {
            members.retain(|(name, _)| *name != member.0);
        }
        members.insert(choices.below(members.len() + 1), member);
    }
    object(choices, &members)
}

pub(super) fn item(choices: &mut Choices<'_>) -> String {
    let mut members = Vec::new();
    if choices.one_in(2) {
        members = vec![("kind", "\"Pod\"".to_owned()), ("apiVersion", "\"v1\"".to_owned())];
    }
    members.push(("metadata", metadata(choices)));
    for _ in 0..choices.below(4) {
        let member = match choices.below(6) {
            0 | 1 => {
                let names = ["nodeName", "hostNetwork", "serviceAccountName", "serviceAccount", "x"];
                let spec = choices.some(3, |choices| (choices.of(&names), value(choices).to_owned()));
                ("spec", object(choices, &spec))
            }
            2 => {
                let ips = choices.some(3, |choices| format!("{{\"ip\":{}}}", value(choices)));
                let phase = value(choices).to_owned();
                ("status", object(choices, &[("podIPs", format!("[{}]", ips.join(","))), ("phase", phase)]))
            }
            3 => (choices.of(&["kind", "apiVersion"]), value(choices).to_owned()),
            4 => (choices.of(&["spec", "status", "metadata"]), value(choices).to_owned()),
            _ => (r"x\n", value(choices).to_owned()),
        };
        members.insert(choices.below(members.len() + 1), member);
    }
    object(choices, &members)
}

pub(super) fn list(choices: &mut Choices<'_>) -> String {
    let items = choices.some(5, item);
    let mut meta = vec![("resourceVersion", "\"9\"".to_owned())];
    for _ in 0..choices.below(3) {
        meta.push(match choices.below(3) {
            0 => ("continue", value(choices).to_owned()),
            1 => ("remainingItemCount", choices.of(&["3", "null", "-1", "1.5", "\"1\"", "1e3"]).to_owned()),
            _ => ("resourceVersion", choices.of(REVISIONS).to_owned()),
        });
    }
    let mut members = vec![
        ("kind", "\"PodList\"".to_owned()),
        ("apiVersion", "\"v1\"".to_owned()),
        ("metadata", object(choices, &meta)),
        ("items", format!("[{}]", items.join(choices.of(&[",", ",\n", " , "])))),
    ];
    for _ in 0..choices.below(2) {
        let member = (choices.of(&["x", "items", "kind", "columnDefinitions"]), value(choices).to_owned());
        members.insert(choices.below(members.len() + 1), member);
    }
    if choices.one_in(4) {
        members.remove(choices.below(members.len()));
    }
    if choices.one_in(4) {
        members.reverse();
    }
    object(choices, &members) + choices.of(SPACES)
}

pub(super) fn stream(choices: &mut Choices<'_>) -> String {
    let frames = choices.some(4, |choices| {
        let kind = choices.of(&["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "BOOKMARK", "ERROR", "PATCHED"]);
        let inner = match kind {
            "ERROR" => format!("{{\"code\":{},\"message\":{}}}", choices.of(&["410", "-1", "70000"]), text(choices)),
            _ => item(choices),
        };
        let mut members = vec![("type", format!("\"{kind}\"")), ("object", inner)];
        if choices.one_in(6) {
            members.push((choices.of(&["type", "object", "x"]), value(choices).to_owned()));
        }
        if choices.one_in(4) {
            members.reverse();
        }
        object(choices, &members) + choices.of(&["\n", "\n", "", " \r\n", "\n\n"])
    });
    frames.concat()
}
