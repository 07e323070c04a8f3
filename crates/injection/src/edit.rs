//! A value that is changed, and the same changes as a JSON patch (RFC 6902).

use serde_json::{Map, Value, json};

pub(super) struct Edit {
    pub(super) value: Value,
    pub(super) patch: Vec<Value>,
}

// === impl Edit ===

impl Edit {
    pub(super) fn new(value: Value) -> Self {
        Self { value, patch: Vec::new() }
    }

    /// Sets a member of the mapping at this path. The mapping is created if it is missing, and those around it.
    pub(super) fn set(&mut self, mapping: &str, key: &str, value: Value) {
        for end in mapping.match_indices('/').map(|(at, _)| at).skip(1).chain([mapping.len()]) {
            if !self.at(&mapping[..end]).is_object() {
                self.replace(&mapping[..end], Value::Object(Map::new()));
            }
        }
        self.replace(&format!("{mapping}/{}", key.replace('~', "~0").replace('/', "~1")), value);
    }

    /// Inserts an element into the list at this path. The list is created if it is missing. An index beyond the end
    /// appends.
    pub(super) fn insert(&mut self, list: &str, index: usize, value: Value) {
        let Some(elements) = self.value.pointer_mut(list).and_then(Value::as_array_mut) else {
            return self.replace(list, json!([value]));
        };
        let index = index.min(elements.len());
        elements.insert(index, value.clone());
        self.patch.push(operation("add", format!("{list}/{index}"), value));
    }

    pub(super) fn append(&mut self, list: &str, value: Value) {
        self.insert(list, usize::MAX, value);
    }

    pub(super) fn at(&self, path: &str) -> &Value {
        self.value.pointer(path).unwrap_or(&Value::Null)
    }

    /// Sets what is at this path. Its parent must exist; the path of a list names an existing element.
    pub(super) fn replace(&mut self, path: &str, value: Value) {
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        let kind = match self.value.pointer_mut(parent) {
            Some(Value::Object(members)) => {
                members.insert(key.replace("~1", "/").replace("~0", "~"), value.clone());
                // On a mapping, this also replaces.
                "add"
            }
            Some(Value::Array(elements)) => {
                let Some(element) = key.parse::<usize>().ok().and_then(|index| elements.get_mut(index)) else { return };
                *element = value.clone();
                "replace"
            }
            _ => return,
        };
        self.patch.push(operation(kind, path.to_owned(), value));
    }
}

fn operation(kind: &str, path: String, value: Value) -> Value {
    let members = [("op", kind.into()), ("path", path.into()), ("value", value)];
    Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
