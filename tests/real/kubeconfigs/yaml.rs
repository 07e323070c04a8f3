//! What YAML says: informerd must read it as kubectl does, or refuse what kubectl refuses.

use std::path::{Path, PathBuf};

use informerd::apiserver::client::ConfigSource;
use serde_json::Value;

use super::kubectl;

/// Values of an extension, which kubectl shows as JSON. They stand behind `extension: `.
const VALUES: &[&str] = &[
    // Booleans and null are these words, in these cases only.
    "[y, Y, yes, Yes, YES, yEs, n, N, no, nO, on, On, ON, oN, off, OFF, oFF, true, TRUE, tRUE, False, fALSE]",
    "[~, null, Null, NULL, nULL, '', , 'null']",
    "{y: 1, oN: 2, 1.10: 3, 0x10: 4, 1e6: 5, 0.00001: 6, 123456.5: 7, .inf: 8, -010: 9, True: 10, 2001-01-01: 11}",
    // Numbers.
    "[12e4567, 1e400, -1e400, 1e-400, 1e3, 1E+3, 1.e5, .5, -.5, +.5, 1., 1.0, -0.0, 1e20, 1e21, 0.1, ., -, +, .5.5]",
    "[0, -0, 00, 010, 08, 0o17, 0O17, 0o8, 0x10, 0Xff, 0xg, 0x, 0b11, 0b12, -0x10, +0x10, -0b11, 0x+1, +1, --1]",
    "[1_000, 0x_ff, 1_, _1, 1__0, 1_e3, -1_0.5, 190:20, 1:2, 1-1, 2001-01-01, 2001-12-14t21:59:43.1Z, 0x1p4, nan, inf]",
    "[9223372036854775807, 9223372036854775808, 18446744073709551615, 18446744073709551616, -9223372036854775809]",
    "[0xffffffffffffffff, +9223372036854775808, 12345678901234567890123]",
    ".nan",
    "[-.inf]",
    // Keys.
    "{~: 1}",
    "{18446744073709551615: 1}",
    "{? [a] : 1}",
    "{a: 1, a: 2, 'a': 3}",
    "{a, b: , 'c':1, \"d\": 2}",
    // Tags.
    "[!!str 1, !!int '1', !!float 1, !!bool 'yes', !!null '', !x 1, !!x 1, ! 1, ! 'a', !!binary aGk=, !!str ]",
    "!!int a",
    "!!bool 1",
    "!!float yes",
    "!!binary '*'",
    // Merges: their place decides.
    "{a: &x {b: 1}, c: {b: 2, <<: *x}, d: {<<: *x, b: 2}, e: {<<: [*x, {b: 3, f: 4}]}, g: {'<<': 5}, h: {! '<<': *x}}",
    "{<<: 1}",
    "{<<: [1]}",
    // Anchors and aliases.
    "{a: &x [1, &y z], b: *x, *y : *y, c: &x 2, d: *x}",
    "&x [*x]",
    "[*x]",
    // Escapes, and lines of quoted texts.
    r#"["\x41\u00e9\U0001F600\t\0\e\_\N", 'a''b', "a\"b"]"#,
    r#""\q""#,
    "\"a\nb\n\n  c\\\n\td\"",
    "'a\n\tb\nc'",
    "|-\n        a\n          b\n\n        c",
    ">\n        a\n        b\n\n          c\n",
    "plain # comment\n        goes on: x",
    "plain\n        text",
    // Between brackets.
    "[-, -c, --x, -]",
    "{a: -, b: [-]}#c",
    "[\n\t1,\n\t{a: 2\n\t}\n\t]",
    "{a: [\n1,\n], }",
    "{http://a: b, c: d:e, f: g#h, 'i':'j'}",
    "[a, , b]",
    "{a: b",
    "\n\t- a",
    "a: b",
    "@a",
    "`a",
    "%a",
    "[a]: b",
    "\u{7}",
];

/// Other ways to write one file. The first is a pattern of the others.
fn files() -> Vec<Vec<u8>> {
    let text = file("[ä, {b: c}]");
    let bytes = |text: &str| text.as_bytes().to_vec();
    let units = |start: char, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("{start}{text}").encode_utf16().flat_map(bytes).collect()
    };
    let json = serde_saphyr::from_str::<Value>(&text).expect("YAML");
    let pretty = serde_json::to_string_pretty(&json).expect("JSON");
    let little = units('\u{feff}', u16::to_le_bytes);
    vec![
        bytes(&text),
        bytes(&format!("\u{feff}{text}")),
        [little.as_slice(), b"a"].concat(),
        little,
        units('\u{feff}', u16::to_be_bytes),
        [text.as_bytes(), b"\xff"].concat(),
        bytes(&text.replace('\n', "\r\n")),
        bytes(&format!("# c\n---\n{text}---\na: [")),
        bytes(&format!("{text}...\n")),
        bytes(&json.to_string()),
        bytes(&pretty.replace("  ", "\t")),
        bytes(&format!("{text}current-context: c\n")),
        bytes(&format!("{text}Users: []\nx: [null]\npreferences: null\n")),
        bytes(&text.replace("  cluster", "\tcluster")),
    ]
}

/// A kubeconfig with an extension, which a plugin is told.
fn file(value: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: NAME, user: u}}}}]\nusers: [{{name: u, user: {{exec: \
         {{command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, provideClusterInfo: true}}}}}}]\n\
         clusters:\n- name: NAME\n  cluster:\n    server: https://h\n    extensions:\n    - name: client.authentication.k8s.io/exec\n      \
         extension: {value}\n"
    )
}

async fn informerd(path: &Path) -> Result<Option<Value>, String> {
    let source = ConfigSource::Kubeconfig { paths: vec![path.into()], context: None, cluster: None, user: None };
    let config = source.read().await.map_err(|error| error.to_string())?;
    Ok(config.auth_info.exec.and_then(|exec| exec.cluster).and_then(|cluster| cluster.config))
}

#[tokio::test(flavor = "multi_thread")]
async fn yaml_is_read_as_kubectl_reads_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut texts: Vec<_> = VALUES.iter().map(|value| file(value).into_bytes()).collect();
    texts.extend(files());
    let name = |number: usize| format!("k{number:03}");
    let paths: Vec<_> = (0..texts.len()).map(|number| directory.path().join(name(number))).collect();
    for (number, (path, text)) in paths.iter().zip(&texts).enumerate() {
        // In UTF-16, all have the name of the pattern.
        let named = String::from_utf8(text.clone()).map(|text| text.replace("NAME", &name(number)).into_bytes());
        std::fs::write(path, named.as_ref().unwrap_or(text)).expect("written");
    }
    const VIEW: [&str; 3] = ["config", "view", "--raw"];
    let refused = kubectl(&paths, directory.path(), &VIEW).await.expect_err("some are refused");
    let is_refused = |path: &PathBuf| refused.contains(&format!("{:?}", path.display().to_string()));
    let (no, yes): (Vec<PathBuf>, Vec<PathBuf>) = paths.iter().cloned().partition(is_refused);
    assert!(no.len() > 15 && yes.len() > 25, "{} are refused, {} are not", no.len(), yes.len());
    let view = kubectl(&yes, directory.path(), &VIEW).await.expect("none is refused");
    let mut wrong = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let ours = informerd(path).await;
        let text = String::from_utf8_lossy(&texts[number]);
        let name = if text.contains("NAME") { name(number) } else { "NAME".to_owned() };
        let shown = view["clusters"].as_array().expect("clusters").iter().find(|cluster| cluster["name"] == *name);
        let theirs =
            (!is_refused(path)).then(|| shown.expect("a cluster")["cluster"]["extensions"][0]["extension"].clone());
        match (&theirs, &ours) {
            (Some(theirs), Ok(Some(ours))) if theirs == ours => {}
            (None, Err(message)) if message.lines().count() == 1 => {}
            _ => wrong.push(format!("{text}\n  kubectl: {theirs:?}\n  informerd: {ours:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}\n{refused}", wrong.join("\n"));
}
