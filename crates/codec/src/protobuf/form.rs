//! The prefixes of the responses of one resource. They are built once, here, and all responses share them.

use std::sync::Arc;

use crate::Shape;
use crate::unshown::unshown;

use super::envelope::Lead;
use super::without::Without;

/// The form of one resource in protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    pub(super) object: Leads,
    pub(super) list: Leads,
    /// The parts of the metadata that the partial shapes omit.
    pub(super) unshown: Without,
    /// The objects are stored as JSON, so only their partial shapes can be written.
    pub(super) of_json: bool,
}

/// The prefix for each shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leads([Lead; 3]);

// === impl Form ===

impl Form {
    pub fn new(api_version: &str, kind: &str, list_kind: &str) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            list_kind: list_kind.into(),
            object: Leads::new(api_version, kind, "PartialObjectMetadata"),
            list: Leads::new(api_version, list_kind, "PartialObjectMetadataList"),
            unshown: Without { annotations: unshown(api_version, kind), ..Without::default() },
            of_json: false,
        }
    }

    /// The form that writes the metadata of objects that are stored as JSON.
    pub fn of_json(api_version: &str, kind: &str, list_kind: &str) -> Self {
        Self { of_json: true, ..Self::new(api_version, kind, list_kind) }
    }
}

// === impl Leads ===

impl Leads {
    fn new(api_version: &str, kind: &str, partial: &str) -> Self {
        let partial = |version| Lead::new(version, partial);
        Self([Lead::new(api_version, kind), partial("meta.k8s.io/v1"), partial("meta.k8s.io/v1beta1")])
    }

    pub(super) fn of(&self, shape: Shape) -> &Lead {
        let [full, v1, v1beta1] = &self.0;
        match shape {
            Shape::Full | Shape::Table(_) => full,
            Shape::PartialObjectMetadata => v1,
            Shape::PartialObjectMetadataV1beta1 => v1beta1,
        }
    }
}
