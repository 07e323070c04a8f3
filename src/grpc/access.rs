//! Who calls, and what it may read: asked before anything is looked up, by the same decisions as over HTTP.

use std::sync::Arc;

use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use tonic::{Request, Status};

use super::status::Error;
use crate::auth::{self, Access, Attributes, Grant, Lease, Mode, Verdict};
use crate::meta;
use crate::reads::Selection;

/// A filter with more names is authorized as one of its whole scope.
const MAX_NAMES: usize = 16;

/// Whoever calls. The wiring puts it into a request's extensions.
#[derive(Clone, Debug)]
pub struct Caller {
    access: Access,
    mode: Mode,
    certificates: Option<Arc<[CertificateDer<'static>]>>,
    headers: HeaderMap,
}

/// The kind of read, as an authorizer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
}

/// The right to a read, one for each part of its selection.
#[derive(Debug)]
pub(super) struct Grants(Vec<Grant>);

/// The one place where a call's identity is found.
///
/// # Errors
/// UNAUTHENTICATED: nobody has said who calls.
pub(super) fn authenticate<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Error::status(meta::errors::unauthorized()).into())
}

/// The one place where a selection is authorized, before any lookup: every part of a union must be allowed.
///
/// # Errors
/// UNAUTHENTICATED, PERMISSION_DENIED, and UNAVAILABLE where nobody can say.
pub(super) async fn authorize(caller: &Caller, verb: Verb, selection: &Selection) -> Result<Grants, Status> {
    let verb = match verb {
        Verb::Get => meta::Verb::Get,
        Verb::List => meta::Verb::List,
        Verb::Watch => meta::Verb::Watch,
    };
    let mut grants = Vec::new();
    for filter in &selection.filters {
        let any = [String::new()];
        let names = if filter.names.is_empty() || filter.names.len() > MAX_NAMES { &any[..] } else { &filter.names };
        for name in names {
            let namespace = filter.namespace.as_deref().unwrap_or_default();
            let (labels, fields) = (&filter.label_selector, &filter.field_selector);
            let wish = Arc::new(Attributes::read(verb, &selection.gvr, namespace, name, labels, fields));
            let asking = auth::Caller {
                mode: caller.mode,
                certificates: caller.certificates.as_ref(),
                headers: &caller.headers,
            };
            match caller.access.check(&asking, &wish).await {
                Verdict::Allowed(grant) => grants.push(grant),
                // Nothing is forwarded from here.
                Verdict::Refused { status, .. } | Verdict::Forward(status) => return Err(Error::status(*status).into()),
            }
        }
    }
    if grants.is_empty() {
        // No part was asked about, so nothing was allowed.
        return Err(Error::invalid("the selection selects nothing").into());
    }
    Ok(Grants(grants))
}

// === impl Caller ===

impl Caller {
    pub fn new(access: Access, caller: &auth::Caller<'_>) -> Self {
        let auth::Caller { mode, certificates, headers } = *caller;
        Self { access, mode, certificates: certificates.cloned(), headers: headers.clone() }
    }
}

// === impl Grants ===

impl Grants {
    /// To be polled while a stream is open: the end of one right is the end of all.
    pub(super) fn lease(self) -> Lease {
        Lease::all(self.0.into_iter().map(Grant::lease))
    }
}
