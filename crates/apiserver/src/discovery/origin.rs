//! Which server serves a resource: built in, by a definition, or by an aggregated API server.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Discovery;
use super::built_in::is_built_in;
use super::definitions::{Known, State, accepted_kind};
use super::parse::ApiResource;
use crate::error::UpstreamError;
use crate::lenient::{nullable, readable};
use crate::metadata::Metadata;
use informerd_meta::{Origin, PrinterColumn};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Definition {
    #[serde(deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    spec: DefinitionSpec,
    status: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionSpec {
    #[serde(deserialize_with = "nullable")]
    scope: String,
    #[serde(deserialize_with = "readable")]
    versions: Vec<DefinitionVersion>,
}

/// A version that cannot be read is unknown as a whole: without one of its columns or fields, another one would be described.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    #[serde(default, deserialize_with = "nullable")]
    name: String,
    #[serde(default = "served")]
    served: bool,
    #[serde(default, deserialize_with = "nullable")]
    selectable_fields: Vec<SelectableField>,
    #[serde(default, deserialize_with = "nullable")]
    additional_printer_columns: Vec<Column>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Column {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    json_path: String,
}

// === impl Discovery ===

impl Discovery {
    /// Which server serves a resource that discovery has, and until when the answer is valid. The definition decides what its
    /// scope and its kind are.
    pub(super) async fn origin(&self, found: &mut ApiResource) -> Result<(Origin, Option<Instant>), UpstreamError> {
        let gvr = &found.gvr;
        if !is_built_in(&gvr.group) {
            self.inner.servers.known().await;
        }
        // Even if there is a definition as well: the APIService decides.
        if self.inner.servers.is_aggregated(gvr) {
            return Ok((Origin::Unknown, None));
        }
        if is_built_in(&gvr.group) {
            return Ok((Origin::BuiltIn, None));
        }
        let name = format!("{}.{}", gvr.resource, gvr.group);
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let retry = || Some(Instant::now() + self.inner.config.retry_definition);
        match self.get::<Definition>(&path, "application/json").await {
            Ok(definition) => {
                let Metadata { uid, generation, resource_version, .. } = &definition.metadata;
                let state = State::of_definition(definition.status.as_deref());
                self.learn(&name, Known::new(uid, *generation, resource_version, Some(state)));
                let mut versions = definition.spec.versions.into_iter();
                // Another version of the group may be of another server, with the same resources.
                let version = versions.find(|version| version.served && *version.name == *gvr.version);
                let Some(version) = version else { return Ok((Origin::Unknown, None)) };
                // An apiserver that lags may still describe another definition of this name in discovery.
                if !definition.spec.scope.is_empty() {
                    found.namespaced = definition.spec.scope == "Namespaced";
                }
                let kind = accepted_kind(definition.status.as_deref());
                if !kind.is_empty() {
                    found.kind = kind;
                }
                Ok((version.into_origin(&definition.metadata), None))
            }
            Err(error) if error.code() == Some(404) => {
                self.inner.definitions.lock().is_gone(&name);
                Ok((Origin::Unknown, None))
            }
            Err(error) if error.code() == Some(403) => Ok((Origin::Unknown, retry())),
            // What cannot be understood is forwarded, or cached without its fields.
            Err(UpstreamError::Decode(cause)) => {
                tracing::warn!(definition = name, %cause, "a definition cannot be read");
                Ok((Origin::Unknown, retry()))
            }
            Err(error) => Err(error),
        }
    }
}

fn served() -> bool {
    true
}

// === impl DefinitionVersion ===

impl DefinitionVersion {
    fn into_origin(self, definition: &Metadata) -> Origin {
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
