//! Selectors, tokens, configurations and tables.

use informerd::config::SETTINGS;

use super::choices::Choices;
use super::json;

fn join(choices: &mut Choices<'_>, most: usize, parts: &[&str], between: &str) -> String {
    choices.some(most, |choices| choices.of(parts)).join(between)
}

pub(super) fn selectors(choices: &mut Choices<'_>) -> String {
    let labels = choices.some(4, |choices| {
        let key = choices.of(&["a", "b", "in", "x/y", "notin", "-"]);
        let value = choices.of(&["", "a", "5", "-3", "in", "a.b", "é"]);
        match choices.below(6) {
            0 => key.to_owned(),
            1 => format!("!{key}"),
            2 => format!("{key} {} ({value},{})", choices.of(&["in", "notin"]), choices.of(&["", "a", "5"])),
            _ => format!("{key}{}{value}", choices.of(&["=", "==", "!=", ">", "<"])),
        }
    });
    let fields = choices.some(3, |choices| {
        let field =
            choices.of(&["metadata.name", "metadata.namespace", "spec.nodeName", "spec.host", "status.phase", "a"]);
        let value = choices.of(&["", "p", "n", r"a\,b", r"a\=", "\\", "p=q"]);
        format!("{field}{}{value}", choices.of(&["=", "==", "!="]))
    });
    let object = join(choices, 4, &["a=a", "b=5", "in=in", "x/y=", "a=-3", "b=x"], " ");
    let place = [["", "n", "p"], ["p", "n", "q"], ["", "n", "p"]].map(|of| choices.of(&of)).join("\n");
    format!("{}\n{}\n{object}\n{place}", labels.join(","), fields.join(","))
}

pub(super) fn paths(choices: &mut Choices<'_>) -> String {
    let path = |choices: &mut Choices<'_>| {
        let sign = choices.of(&["", "", "-"]);
        let names = ["metadata", "labels", "a", "spec", "status", "podIPs", "ip", "managedFields", "name", ""];
        format!("{sign}{}", join(choices, 4, &names, "."))
    };
    choices.some(4, path).join(" ") + "\n" + &json::item(choices)
}

pub(super) fn continue_token(choices: &mut Choices<'_>) -> String {
    let members = [
        format!(r#""v":"{}""#, choices.of(&["meta.k8s.io/v1", "meta.k8s.io/v1", "v1"])),
        format!(
            r#""rv":{}"#,
            choices.of(&["7", "-1", "0", "\"7\"", "9223372036854775807", "9223372036854775808", "1.0"])
        ),
        format!(r#""start":"{}\u0000""#, choices.of(&["/a/b", "a", "/a", "a//b", "../a", "", "/", "a\\\"\\u003c"])),
    ];
    let mut members = members.to_vec();
    if choices.one_in(6) {
        members.push(members[choices.below(3)].clone());
    }
    if choices.one_in(4) {
        members.reverse();
    }
    format!("{{{}}}", members.join(","))
}

pub(super) fn configuration(choices: &mut Choices<'_>) -> String {
    let mut out = String::new();
    for _ in 0..choices.below(5) {
        let setting = SETTINGS[choices.below(SETTINGS.len())];
        let value = match choices.below(6) {
            0 => choices.of(&["", "\"\"", "~", "[a, b]", "{a: 1}", "|\n  x", "&a 5", "*a", "'$(X)'", "- x"]),
            1 => {
                choices.of(&["5", "5s", "1m30s", "1Gi", "true", "0600", "a.b.c", "127.0.0.1:0", "unix:/x", "/x", "1e3"])
            }
            _ => setting.default,
        };
        let mut depth = 0;
        let mut parts = setting.key.split('.').peekable();
        while let Some(part) = parts.next() {
            out += &format!("{}{part}:", " ".repeat(depth));
            depth += 2;
            if parts.peek().is_some() {
                out.push('\n');
            }
        }
        out += &format!(" {value}\n");
    }
    out
}

pub(super) fn kubeconfig(choices: &mut Choices<'_>) -> String {
    let name = |choices: &mut Choices<'_>| choices.of(&["a", "b", "\"\"", "5"]);
    let cluster = |choices: &mut Choices<'_>| {
        let server = choices.of(&["https://h:1", "http://[::1]", "h", "\"\"", "https://h/p", "unix:///x"]);
        let more = choices.of(&["", "", ", proxy-url: 'http://p'", ", insecure-skip-tls-verify: true", ", x: [1]"]);
        format!("- {{name: {}, cluster: {{server: '{server}'{more}}}}}\n", name(choices))
    };
    let user = |choices: &mut Choices<'_>| {
        let more = choices.of(&["", "token: t", "username: u, password: p", "as: x", "client-certificate-data: eA=="]);
        format!("- {{name: {}, user: {{{more}}}}}\n", name(choices))
    };
    let context = |choices: &mut Choices<'_>| {
        format!("- {{name: {}, context: {{cluster: {}, user: {}}}}}\n", name(choices), name(choices), name(choices))
    };
    let (clusters, users, contexts) = (choices.some(3, cluster), choices.some(2, user), choices.some(3, context));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {}\nclusters:\n{}users:\n{}contexts:\n{}",
        name(choices),
        clusters.concat(),
        users.concat(),
        contexts.concat()
    )
}

const AGES: &[&str] = &["365d", "0s", "5m", "1y", "<invalid>", r"\u003cinvalid\u003e", "31s", "", "2d", r"36\u0035d"];

/// Moments, and what cells say of them at the time at which tables are printed.
const TIMES: &[(&str, &str)] = &[
    ("2025-01-01T00:00:00Z", "365d"),
    ("2026-01-01T00:00:00Z", "0s"),
    ("2025-12-31T23:55:00Z", "5m"),
    ("2025-12-31T23:59:29Z", "31s"),
    ("2026-02-01T00:00:00Z", r"\u003cinvalid\u003e"),
    ("x", ""),
];

fn time(choices: &mut Choices<'_>) -> (&'static str, &'static str) {
    let (moment, said) = choices.of(TIMES);
    (moment, if choices.one_in(4) { choices.of(AGES) } else { said })
}

/// A digit that chooses the columns, and the table. Its objects have one time wherever a column looks for one.
pub(super) fn table(choices: &mut Choices<'_>) -> String {
    let pods = '1';
    let first = choices.of(&[pods, '2', '3', '4', '5', '6', '7']);
    let rows = choices.some(4, |choices| {
        let ((created, age), (at, ago)) = (time(choices), time(choices));
        let last = match choices.below(4) {
            0 => "0".to_owned(),
            _ if first == pods => format!("{} ({ago} ago)", choices.of(&["3", r"\u0033", "é", ""])),
            _ => ago.to_owned(),
        };
        let (new, ended) = (choices.of(&["x", "5m", "", "<none>"]), choices.of(&["null", "null", "null", "\"x\""]));
        let metadata = format!(r#"{{"name":"p","resourceVersion":"5","creationTimestamp":"{created}"}}"#);
        let conditions = format!(r#"[{{"type":"Complete","status":"True","lastTransitionTime":"{at}"}}]"#);
        let containers = format!(r#"[{{"lastState":{{"terminated":{{"finishedAt":"{at}"}}}}}}]"#);
        let spec = format!(r#"{{"taint":{{"timeAdded":"{at}"}},"since":"{at}"}}"#);
        let status = format!(
            r#"{{"containerStatuses":{containers},"conditions":{conditions},"startTime":"{at}","completionTime":{ended},"lastScheduleTime":"{at}"}}"#
        );
        format!(
            r#"{{"cells":["p","1/1","{last}","{age}","{new}"],"object":{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"firstTimestamp":"{created}","lastTimestamp":"{at}","spec":{spec},"status":{status}}}}}"#
        )
    });
    let columns = choices.of(&["", r#""columnDefinitions":[],"#, r#""columnDefinitions":null,"#]);
    format!(
        r#"{first}{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"9"}},{columns}"rows":[{}]}}"#,
        rows.join(choices.of(&[",", ", "]))
    )
}
