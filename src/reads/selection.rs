//! The selections of a typed interface. They can express more than the apiserver's parameters, with the same selectors
//! and fields.

use std::collections::HashMap;
use std::sync::Arc;

use crate::codec::{Format, Shape};
use crate::informer::{Asked, Use};
use crate::meta::{Encoding, FieldTable, Gvr, Resource, Scope};
use crate::selector::{self, Clause, FieldSelector, LabelSelector, Predicate, ValueSet};

use super::resolved::Resolved;
use super::service::answered_as;
use super::{ForwardReason, ProtobufReads, Reads, Refusal};

/// A part of one resource: the objects that match any of the filters, or all objects if there is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub gvr: Gvr,
    pub filters: Vec<Filter>,
    /// Full, unless only the metadata is requested. Metadata may be available in encodings in which the whole object is
    /// not.
    pub shape: Shape,
    pub encoding: WantedEncoding,
    /// Its client has an identity, on which the answer of an aggregated API server may depend.
    pub identified: bool,
}

/// The requested encoding of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedEncoding {
    Only(Encoding),
    /// Any encoding that is already held, or JSON if none is.
    Any,
}

/// Conditions that must all hold. Selectors have the same syntax as in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub namespace: Option<Arc<str>>,
    /// Any name if empty.
    pub names: Vec<String>,
    pub label_selector: String,
    pub field_selector: String,
    pub index: Vec<(IndexKey, Vec<String>)>,
}

/// The key by which objects are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexKey {
    Namespace,
    OwnerUid,
    Label(String),
    Field(String),
}

// === impl Reads ===

impl Reads {
    pub(super) async fn select(&self, selection: &Selection) -> Result<Resolved, Refusal> {
        let gvr = &selection.gvr;
        if self.factory.excludes(gvr) {
            return Err(ForwardReason::Excluded.into());
        }
        let resource = match self.factory.resource(gvr).await {
            Ok(Some(resource)) => resource,
            Ok(None) => return Err(self.unknown(&gvr.group, Some(&gvr.version), selection.identified)),
            Err(error) => return Err(Refusal::Unreachable(error.to_string())),
        };
        if !(resource.verbs.list && resource.verbs.watch) {
            return Err(ForwardReason::NotReadable.into());
        }
        let proof = self.shareable(&resource, selection.identified).await?;
        let table = selector::field_table(&resource);
        // A filter of many namespaces is one filter for each, with the same selectors.
        let mut labels = HashMap::new();
        let clauses = selection.filters.iter().map(|filter| {
            let parsed = match labels.get(filter.label_selector.as_str()) {
                Some(parsed) => Arc::clone(parsed),
                None => Arc::new(LabelSelector::parse(&filter.label_selector)?),
            };
            labels.insert(filter.label_selector.as_str(), Arc::clone(&parsed));
            clause(filter, parsed, &resource, &table)
        });
        let clauses = clauses.collect::<Result<Vec<_>, String>>().map_err(Refusal::Invalid)?;
        let predicate = Predicate::union(clauses);
        let floor = self.factory.floor(gvr);
        let unknown = floor.uncovered();
        let modes = self.modes(gvr);
        let shape = selection.shape;
        let (encoding, converted) = match selection.encoding {
            WantedEncoding::Any if modes.protobuf == ProtobufReads::Serve => {
                (self.factory.held(&resource, &predicate), false)
            }
            WantedEncoding::Any => (Encoding::Json, false),
            WantedEncoding::Only(encoding) => {
                let asked = Format { encoding, shape, json_fallback: None };
                let (kept, converted) = answered_as(asked, &resource, modes.protobuf).ok_or(ForwardReason::Encoding)?;
                (kept.encoding, converted)
            }
        };
        Ok(Resolved {
            resource,
            encoding,
            shape,
            json_fallback: None,
            converted,
            predicate,
            shard: None,
            selectors: None,
            rows: Use { must: true, ..Use::default() },
            floor,
            arrived: Asked::now(),
            unknown,
            consistent: modes.consistent,
            proof,
            local: true,
            own_credentials: false,
            gzip: false,
            stale: false,
            patience: std::time::Duration::MAX,
            until: None,
        })
    }
}

/// # Errors
/// The apiserver's own message for selectors, one sentence for other errors.
fn clause(
    filter: &Filter,
    labels: Arc<LabelSelector>,
    resource: &Resource,
    table: &FieldTable,
) -> Result<Clause, String> {
    if filter.namespace.is_some() && !resource.namespaced {
        return Err(format!("{} has no namespaces, but a filter names one", resource.gvr.group_resource()));
    }
    let mut fields = FieldSelector::parse(&filter.field_selector)?;
    let mut sets = Vec::new();
    if !filter.names.is_empty() {
        sets.push(ValueSet::names(filter.names.iter().cloned()));
    }
    for (key, values) in &filter.index {
        let all = values.iter().cloned();
        match (key, values.as_slice()) {
            (_, []) => return Err("an index term has no values".to_owned()),
            // An exact term can use the apiserver's own index, and the informers with that field selector.
            (IndexKey::Field(field), [only]) => fields = fields.and_equals(field, only),
            (IndexKey::Field(field), _) => sets.push(ValueSet::field(resource, table, field, all)?),
            (IndexKey::Namespace, _) => sets.push(ValueSet::namespaces(all)),
            (IndexKey::OwnerUid, _) => sets.push(ValueSet::owner_uids(all)),
            (IndexKey::Label(label), _) => sets.push(ValueSet::label(label, all)),
        }
    }
    let scope = Scope { namespace: filter.namespace.clone(), name: None };
    Ok(Clause::new(scope, labels, fields.compile(resource, table)?, sets))
}
