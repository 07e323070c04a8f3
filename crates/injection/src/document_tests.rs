use serde_json::{Value, json};

use super::super::tests::injector;
use super::*;

const PLAIN: &str = "\
# A list of things.
apiVersion: v1
kind: ConfigMap   # stays as it is
metadata: {name: a}
data: {mode: 0444, answer: yes}
";

fn pod(kind: &str, version: &str, path: &str) -> Value {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "a"}]}});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
    if path.is_empty() {
        object["spec"] = template["spec"].clone();
        return object;
    }
    let mut at = &mut object;
    for key in path.split('/').skip(1) {
        at = &mut at[key];
    }
    *at = template;
    object
}

fn rewritten(text: &str, mode: Option<Mode>) -> Rewritten {
    rewrite(text, mode, &injector()).unwrap()
}

#[test]
fn every_kind_with_pods_is_changed() {
    let mut seen = 0;
    for (version, kinds, path) in KINDS {
        for kind in *kinds {
            let object = pod(kind, version, path);
            let done = rewritten(&serde_saphyr::to_string(&object).unwrap(), Some(Mode::Tier));
            let after: Value = serde_saphyr::from_str(&done.text).unwrap();
            let injected = after.pointer(&format!("{path}/metadata/annotations/informerd.io~1injected"));
            assert_eq!((injected, done.notes), (Some(&json!("tier")), vec![]), "{kind}");
            seen += 1;
        }
    }
    assert_eq!(seen, 9);
    // Lists, also within lists; what is no pod, and unknown versions, stay.
    let deployment = pod("Deployment", "apps/v1", "/spec/template");
    let inner = json!({"apiVersion": "v1", "kind": "List", "items": [deployment, {"kind": "Service"}]});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [inner, pod("Pod", "v1", ""), pod("Deployment", "apps/v2", "/spec/template")]});
    let done = rewritten(&list.to_string(), Some(Mode::Sidecar));
    assert!(done.text.starts_with("{\n"), "JSON stays JSON");
    assert_eq!(done.text.matches("\"informerd.io/injected\": \"sidecar\"").count(), 2, "{}", done.text);
}

#[test]
fn what_does_not_change_keeps_its_bytes() {
    let deployment = serde_saphyr::to_string(&pod("Deployment", "apps/v1", "/spec/template")).unwrap();
    let text = format!("{PLAIN}---\n# The program.\n\n{deployment}---\n{PLAIN}--- # the end\n---\n");
    assert_eq!(rewritten(&text, None).text, text, "nothing is asked for");
    let done = rewritten(&text, Some(Mode::NodeAgent));
    let parts: Vec<_> = done.text.split("---\n").collect();
    assert_eq!((parts[0], parts[2]), (PLAIN, &*format!("{PLAIN}--- # the end\n")));
    assert!(parts[1].starts_with("# The program.\n\napiVersion: apps/v1\nkind: Deployment\n"), "{}", parts[1]);
    // Once, and no more.
    assert_eq!(rewritten(&done.text, Some(Mode::NodeAgent)), done);
    assert_eq!(rewritten(&done.text, Some(Mode::Sidecar)), done);
}

/// kubectl reads YAML 1.1.
#[test]
fn values_mean_the_same_to_kubectl() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: x
  annotations: {version: '1.10', answer: 'yes', empty: '', date: '2026-01-01', tilde: '~', octal: '010', long: 'a: b #c'}
spec:
  shareProcessNamespace: yes
  containers:
  - name: a
    image: a
    args: ['on', '0x10', '1e3', 'null', '1_000', '12:30:45', \"a\\nb\\n\", '- x', '*']
  volumes:
  - name: v
    secret: {secretName: s, defaultMode: 0440}
";
    let done = rewritten(text, Some(Mode::Tier));
    let after: Value =
        serde_saphyr::from_str_with_options(&done.text, serde_saphyr::options! { legacy_octal_numbers: true }).unwrap();
    assert_eq!(
        (&after["spec"]["shareProcessNamespace"], &after["spec"]["volumes"][0]["secret"]["defaultMode"]),
        (&json!(true), &json!(0o440))
    );
    let before: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(after["spec"]["containers"][0]["args"], before["spec"]["containers"][0]["args"]);
    for word in ["on", "0x10", "1e3", "null", "1_000", "12:30:45", "- x", "*"] {
        assert!(
            done.text.contains(&format!("'{word}'")) || done.text.contains(&format!("\"{word}\"")),
            "{word}: {}",
            done.text
        );
    }
    for (key, value) in before["metadata"]["annotations"].as_object().unwrap() {
        assert_eq!(after["metadata"]["annotations"][key], *value, "{key}");
    }
}

#[test]
fn notes_tell_what_was_not_done() {
    let mut object = pod("Deployment", "apps/v1", "/spec/template");
    object["metadata"]["namespace"] = "kube-system".into();
    let done = rewritten(&object.to_string(), Some(Mode::Tier));
    assert_eq!(done.notes, ["deployment/x stays as it is: pods of the namespace kube-system are never changed"]);
    assert_eq!(done.text, object.to_string());
    object["metadata"]["name"] = "x\u{1b}[2J".into();
    let notes = rewritten(&object.to_string(), Some(Mode::Tier)).notes;
    assert!(notes[0].starts_with("deployment/x [2J stays"), "a terminal obeys no name: {notes:?}");
    let wrong = rewrite("a: b\n---\na: {\n", None, &injector()).unwrap_err();
    assert!(wrong.starts_with("document 2: ") && wrong.lines().count() == 1, "{wrong}");
}
