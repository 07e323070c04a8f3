//! What is read of a resource.

use crate::{Error, v1};

/// What narrows a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    /// Empty for all namespaces.
    pub namespace: String,
    /// None for any name.
    pub names: Vec<String>,
    /// A label selector.
    pub labels: String,
    /// A field selector.
    pub fields: String,
    /// Objects without spec and status.
    pub metadata_only: bool,
    /// Leaves out `metadata.managedFields`. Such an object must not be written back with an update.
    pub without_managed_fields: bool,
}

/// Reads `GROUP/VERSION/RESOURCE`, without `GROUP/` for the core group, or `RESOURCE.GROUP` as in kubectl for the version
/// that the cluster prefers.
fn resource(text: &str) -> Result<v1::Resource, Error> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version, resource) = match *parts.as_slice() {
        [name] => match name.split_once('.') {
            Some((resource, group)) => (Some(group), None, resource),
            None => (None, None, name),
        },
        [version, resource] => (None, Some(version), resource),
        [group, version, resource] => (Some(group), Some(version), resource),
        _ => (None, None, ""),
    };
    if group == Some("") || version == Some("") || resource.is_empty() || resource.contains('.') {
        let message =
            format!("{text:?} is no resource: want one such as v1/pods, apps/v1/deployments or deployments.apps");
        return Err(Error::Invalid(message));
    }
    let owned = |part: Option<&str>| part.unwrap_or_default().to_owned();
    Ok(v1::Resource { group: owned(group), version: owned(version), resource: resource.to_owned() })
}

pub(crate) fn selection(of: &str, selected: Selected) -> Result<v1::Selection, Error> {
    let Selected { namespace, names, labels, fields, metadata_only, without_managed_fields } = selected;
    let shape = if metadata_only { v1::Shape::MetadataOnly } else { v1::Shape::Unspecified };
    Ok(v1::Selection {
        resource: Some(resource(of)?),
        filters: vec![v1::Filter {
            namespace,
            names,
            label_selector: labels,
            field_selector: fields,
            ..Default::default()
        }],
        shape: shape.into(),
        drop: without_managed_fields.then(|| v1::Drop::ManagedFields.into()).into_iter().collect(),
        ..Default::default()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_resource_needs_no_version() {
        for (text, group, version, plural) in [
            ("pods", "", "", "pods"),
            ("v1/pods", "", "v1", "pods"),
            ("apps/v1/deployments", "apps", "v1", "deployments"),
            ("leases.coordination.k8s.io", "coordination.k8s.io", "", "leases"),
        ] {
            let found = resource(text).unwrap();
            assert_eq!((&*found.group, &*found.version, &*found.resource), (group, version, plural), "{text}");
        }
        for wrong in ["", "v1/", "/v1/pods", "a/b/c/d", ".apps", "pods.", "v1/pods.apps"] {
            assert!(resource(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn it_says_what_was_selected() {
        let selected = Selected {
            namespace: "n".into(),
            names: vec!["a".into()],
            labels: "app=web".into(),
            fields: "spec.nodeName=node".into(),
            metadata_only: true,
            without_managed_fields: true,
        };
        let made = selection("v1/pods", selected).unwrap();
        let filter = v1::Filter {
            namespace: "n".into(),
            names: vec!["a".into()],
            label_selector: "app=web".into(),
            field_selector: "spec.nodeName=node".into(),
            index: vec![],
        };
        assert_eq!(made.filters, [filter]);
        assert_eq!((made.shape(), made.drop), (v1::Shape::MetadataOnly, vec![v1::Drop::ManagedFields.into()]));
    }
}
