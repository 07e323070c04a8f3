//! Manifests as text: several YAML documents, of which those that change are written anew.

use serde_json::Value;

use super::review::visible;
use super::{Injector, Meta, Mode, Origin, inject, wanted};

/// Manifests after the change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// What a person should know: objects that stay as they are although they were to change, and containers of others.
    pub(crate) notes: Vec<String>,
}

/// Where the pod is in objects of these kinds.
const KINDS: &[(&str, &[&str], &str)] = &[
    ("v1", &["Pod"], ""),
    ("v1", &["PodTemplate"], "/template"),
    ("v1", &["ReplicationController"], "/spec/template"),
    ("apps/v1", &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"], "/spec/template"),
    ("batch/v1", &["Job"], "/spec/template"),
    ("batch/v1", &["CronJob"], "/spec/jobTemplate/spec/template"),
];

/// Changes the pods in these manifests. A document without a change keeps its bytes.
///
/// `default`: the mode of pods without a label.
///
/// # Errors
/// A document is not YAML.
pub(crate) fn rewrite(text: &str, default: Option<Mode>, injector: &Injector) -> Result<Rewritten, String> {
    let mut done = Rewritten { text: String::with_capacity(text.len()), notes: Vec::new() };
    for (number, (separator, document)) in split(text).into_iter().enumerate() {
        let failed = |error: &dyn std::fmt::Display| format!("document {}: {error}", number + 1);
        let mut value: Value = parse(document).map_err(|error| failed(&error))?;
        done.text.push_str(separator);
        if change(&mut value, default, injector, &mut done.notes) {
            done.text.push_str(&render(document, &value).map_err(|error| failed(&error))?);
        } else {
            done.text.push_str(document);
        }
    }
    Ok(done)
}

/// As kubectl reads it, which is YAML 1.1: `0444` is octal, and `yes` is a boolean.
fn parse(document: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    Ok(serde_saphyr::from_str_with_options::<Option<Value>>(document, options)?.unwrap_or_default())
}

/// In the form of the original: JSON or YAML. Comments above the first key stay.
fn render(original: &str, value: &Value) -> Result<String, String> {
    if original.trim_start().starts_with('{') {
        return serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string());
    }
    let is_comment = |line: &&str| line.trim().is_empty() || line.starts_with('#');
    let mut text: String = original.split_inclusive('\n').take_while(is_comment).collect();
    text.push_str(&serde_saphyr::to_string(value).map_err(|error| error.to_string())?);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The documents of a stream, each with the line that separates it from the one before.
fn split(text: &str) -> Vec<(&str, &str)> {
    let mut documents = Vec::new();
    let (mut separator, mut start, mut at) = ("", 0, 0);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if line.trim_end() == "---" || line.starts_with("--- ") {
            documents.push((separator, &text[start..at]));
            // What follows on the same line belongs to the document.
            separator = if line.trim_end() == "---" { line } else { "" };
            start = if separator.is_empty() { at } else { end };
        }
        at = end;
    }
    documents.push((separator, &text[start..]));
    documents
}

/// Changes an object, or the objects of a list. Returns whether anything has changed.
fn change(object: &mut Value, default: Option<Mode>, injector: &Injector, notes: &mut Vec<String>) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind.ends_with("List") {
        let items = object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
        // All of them, not only the first that changes.
        return items.fold(false, |changed, item| change(item, default, injector, notes) | changed);
    }
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let known = KINDS.iter().find(|(of, kinds, _)| *of == version && kinds.contains(&&*kind));
    let Some((_, _, path)) = known else { return false };
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text("name"), text("namespace"));
    let origin = Origin { namespace: &namespace, default, admitted: false };
    let Some(pod) = object.pointer_mut(path).filter(|pod| pod.is_object()) else { return false };
    let metadata = pod.get("metadata").cloned().unwrap_or_default();
    let changed = serde_json::from_value::<Option<Meta>>(metadata).map_err(|error| format!("metadata: {error}"));
    let changed = changed.and_then(|meta| match wanted(&meta.unwrap_or_default(), &origin)? {
        Some(wanted) => {
            injector.check(&wanted)?;
            inject(pod.clone(), &wanted, &origin, injector).map(Some)
        }
        None => Ok(None),
    });
    let what = format!("{}/{name}", kind.to_lowercase());
    let mut note = |text: String| notes.push(visible(&text).collect());
    match changed {
        Ok(Some(change)) => {
            *pod = change.pod;
            change.warnings.into_iter().for_each(|warning| note(format!("{what}: {warning}")));
            true
        }
        Ok(None) => false,
        Err(reason) => {
            note(format!("{what} stays as it is: {reason}"));
            false
        }
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
