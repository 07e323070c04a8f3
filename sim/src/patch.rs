//! The three kinds of patch.

use serde_json::{Value, json};

/// RFC 7386. With `strategic`, lists whose elements have names are merged by name; everything else is merged as
/// usual.
pub(super) fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    match (target, patch) {
        (target, Value::Object(patch)) => {
            if !target.is_object() {
                *target = json!({});
            }
            let Value::Object(target) = target else { return };
            for (name, value) in patch.iter().filter(|(name, _)| !(strategic && name.starts_with('$'))) {
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge(target.entry(name.as_str()).or_insert(Value::Null), value, strategic);
                }
            }
        }
        (Value::Array(target), Value::Array(patch))
            if strategic && patch.iter().all(|item| item["name"].is_string()) =>
        {
            for item in patch {
                let at = target.iter().position(|of| of["name"] == item["name"]);
                match at {
                    Some(at) if item["$patch"] == "delete" => {
                        target.remove(at);
                    }
                    Some(at) => merge(&mut target[at], item, true),
                    None => target.push(item.clone()),
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// RFC 6902 without move and copy. The error is the message of a 422.
pub(super) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), String> {
    for step in patch.as_array().ok_or("a json patch is a list")? {
        let (op, path) = (step["op"].as_str().unwrap_or_default(), step["path"].as_str().unwrap_or_default());
        let missing = || format!("{op} operation does not apply: doc is missing path: {path}");
        let (parent, name) = path.rsplit_once('/').ok_or_else(missing)?;
        let name = name.replace("~1", "/").replace("~0", "~");
        if op == "test" {
            if target.pointer(path) == Some(&step["value"]) {
                continue;
            }
            return Err(format!("testing value {path} failed"));
        }
        match (target.pointer_mut(parent).ok_or_else(missing)?, op) {
            (Value::Object(members), "add" | "replace") => {
                if op == "replace" && !members.contains_key(&name) {
                    return Err(missing());
                }
                members.insert(name, step["value"].clone());
            }
            (Value::Object(members), "remove") => {
                members.remove(&name).ok_or_else(missing)?;
            }
            (Value::Array(items), "add") => {
                let at = if name == "-" { items.len() } else { name.parse().map_err(|_| missing())? };
                if at > items.len() {
                    return Err(missing());
                }
                items.insert(at, step["value"].clone());
            }
            (Value::Array(items), "replace" | "remove") => {
                let at = name.parse().ok().filter(|at| *at < items.len()).ok_or_else(missing)?;
                if op == "remove" {
                    items.remove(at);
                } else {
                    items[at] = step["value"].clone();
                }
            }
            _ => return Err(format!("unexpected kind: {op}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges() {
        let start = json!({"a": {"b": 1, "c": 2}, "list": [{"name": "x", "v": 1}, {"name": "y"}], "plain": [1, 2]});
        let patch = json!({"a": {"b": null}, "$order": [], "list": [{"name": "x", "w": 2}, {"name": "y", "$patch": "delete"}], "plain": [3]});
        let mut target = start.clone();
        merge(&mut target, &patch, true);
        assert_eq!(target, json!({"a": {"c": 2}, "list": [{"name": "x", "v": 1, "w": 2}], "plain": [3]}));
        let mut target = start;
        merge(&mut target, &json!({"list": [{"name": "z"}]}), false);
        assert_eq!(target["list"], json!([{"name": "z"}]));
    }

    #[test]
    fn patches() {
        let mut target = json!({"a/b": 1, "list": [1, 2]});
        let patch = json!([{"op": "test", "path": "/a~1b", "value": 1}, {"op": "replace", "path": "/a~1b", "value": 5},
            {"op": "add", "path": "/list/-", "value": 3}, {"op": "remove", "path": "/list/0"}, {"op": "add", "path": "/c", "value": {}}]);
        json_patch(&mut target, &patch).unwrap();
        assert_eq!(target, json!({"a/b": 5, "list": [2, 3], "c": {}}));
        assert!(json_patch(&mut target, &json!([{"op": "remove", "path": "/none"}])).is_err());
        assert!(json_patch(&mut target, &json!([{"op": "test", "path": "/c", "value": 1}])).is_err());
    }
}
