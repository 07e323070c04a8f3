//! Which server serves a resource: built in, by a definition, or by an aggregated API server.

use std::sync::Arc;

use serde::Deserialize;
use tokio::time::Instant;

use super::Discovery;
use super::built_in::is_built_in;
use crate::meta::{Gvr, Origin, PrinterColumn};
use crate::upstream::error::UpstreamError;

#[derive(Deserialize)]
struct Definition {
    #[serde(default)]
    metadata: DefinitionMetadata,
    spec: DefinitionSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionMetadata {
    uid: String,
    /// Changes with every change of the spec.
    generation: i64,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    name: String,
    #[serde(default = "served")]
    served: bool,
    #[serde(default)]
    selectable_fields: Vec<SelectableField>,
    #[serde(default)]
    additional_printer_columns: Vec<Column>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Column {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    json_path: String,
}

// === impl Discovery ===

impl Discovery {
    /// Which server serves a resource, and until when the answer is valid.
    pub(super) async fn origin(&self, gvr: &Gvr) -> Result<(Origin, Option<Instant>), UpstreamError> {
        // Even if there is a definition as well: the APIService decides.
        if self.inner.servers.is_aggregated(gvr) {
            return Ok((Origin::Unknown, None));
        }
        if is_built_in(gvr) {
            return Ok((Origin::BuiltIn, None));
        }
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}", gvr.resource, gvr.group);
        let retry = || Some(Instant::now() + self.inner.config.retry_definition);
        match self.get::<Definition>(&path, "application/json").await {
            Ok(definition) => {
                let mut versions = definition.spec.versions.into_iter();
                // Another version of the group may be of another server, with the same resources.
                let version = versions.find(|version| version.served && *version.name == *gvr.version);
                Ok((version.map_or(Origin::Unknown, |version| version.into_origin(&definition.metadata)), None))
            }
            Err(error) if error.code() == Some(404) => Ok((Origin::Unknown, None)),
            Err(error) if error.code() == Some(403) => Ok((Origin::Unknown, retry())),
            Err(error) => Err(error),
        }
    }
}

fn served() -> bool {
    true
}

// === impl DefinitionVersion ===

impl DefinitionVersion {
    fn into_origin(self, definition: &DefinitionMetadata) -> Origin {
        let path = |field: SelectableField| Arc::from(field.json_path.trim_start_matches('.'));
        Origin::Custom {
            selectable: self.selectable_fields.into_iter().map(path).collect(),
            columns: self.additional_printer_columns.into_iter().map(PrinterColumn::from).collect(),
            definition: format!("{}/{}", definition.uid, definition.generation).into(),
        }
    }
}

// === impl Column ===

impl From<Column> for PrinterColumn {
    fn from(column: Column) -> Self {
        Self { name: column.name.into(), kind: column.kind.into(), json_path: column.json_path.into() }
    }
}
