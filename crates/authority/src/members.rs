//! Objects whose members stay text. So an object takes little more than its bytes, however deep it is nested, and what
//! informerd does not know of it is written back as it was.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// The members of an object by name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Members(BTreeMap<String, Box<RawValue>>);

// === impl Members ===

impl Members {
    /// The value of a member.
    ///
    /// # Errors
    /// It is missing, or of another type.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> serde_json::Result<T> {
        serde_json::from_str(self.0.get(name).map_or("null", |value| value.get()))
    }

    /// The value of a member; the default one if it is missing or of another type.
    pub(super) fn get<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        self.read(name).unwrap_or_default()
    }

    /// # Errors
    /// The value cannot be written as JSON.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.0.insert(name.to_owned(), to_raw_value(value)?);
        Ok(())
    }

    /// Without the managed fields. They are the largest part of many objects, and the apiserver keeps them if a write
    /// does not have them.
    pub(super) fn without_managed_fields(mut self) -> Self {
        if let Ok(mut metadata) = self.read::<Self>("metadata")
            && metadata.0.remove("managedFields").is_some()
        {
            self.set("metadata", &metadata).ok();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_written_back_as_it_was() {
        let deep = format!("{}1{}", "{\"f:a\":".repeat(5000), "}".repeat(5000));
        let text = format!(
            r#"{{"data":{{"a":"b"}},"metadata":{{"managedFields":[{deep}],"name":"x"}},"new":{deep},"number":1.10}}"#
        );
        let mut object = serde_json::from_str::<Members>(&text).unwrap().without_managed_fields();
        let mut data: Members = object.get("data");
        data.set("a", &"c").unwrap();
        object.set("data", &data).unwrap();
        let expected = format!(r#"{{"data":{{"a":"c"}},"metadata":{{"name":"x"}},"new":{deep},"number":1.10}}"#);
        assert_eq!(serde_json::to_string(&object).unwrap(), expected);
        assert!(object.get::<String>("none").is_empty() && object.read::<String>("number").is_err());
    }
}
