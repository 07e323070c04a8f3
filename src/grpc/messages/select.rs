//! The selection of a call, on its way to its state: it is bounded and accounted for, then authorized, and only then looked
//! up. So a caller without rights learns nothing about what there is, and causes no read of the apiserver but reviews.

use tonic::Status;

use super::convert;
use super::render::Rendering;
use crate::grpc::call::{Caller, Error, Grants, access};
use crate::grpc::pb::v1;
use crate::memory::{Ledger, Reservation};
use crate::meta::{Gvr, Verb};
use crate::reads::{Reads, Selection};

/// A selection that the caller may read.
pub(in crate::grpc) struct Selected {
    pub(in crate::grpc) selection: Selection,
    pub(in crate::grpc) rendering: Rendering,
    pub(in crate::grpc) grants: Grants,
    /// The memory of the selection. To be held as long as it.
    pub(in crate::grpc) held: Reservation,
}

/// The version in questions to authorizers about a resource that is not known, as in a SubjectAccessReview of all versions.
const ANY_VERSION: &str = "*";

/// Authorizes a selection. Writes the version that the apiserver prefers into a resource without one: everything after this,
/// such as tokens and the comparison of workers, sees a request that names its version.
///
/// # Errors
/// INVALID_ARGUMENT, RESOURCE_EXHAUSTED, or the error of the authorizer. For a resource without a version also NOT_FOUND, if
/// the apiserver does not have it, and UNAVAILABLE.
pub(in crate::grpc) async fn select(
    reads: &Reads,
    ledger: &Ledger,
    caller: &Caller,
    verb: Verb,
    mut sent: Option<&mut v1::Selection>,
) -> Result<Selected, Status> {
    let (mut selection, rendering, held) = convert::selection(sent.as_deref(), ledger)?;
    caller.charge(&held)?;
    let named = selection.gvr.clone();
    let Gvr { group, version, resource } = &named;
    if !version.is_empty() {
        let grants = access::authorize(caller, verb, &mut selection).await?;
        return Ok(Selected { selection, rendering, grants, held });
    }
    let before = reads.last_preferred(group, resource);
    selection.gvr = before.unwrap_or_else(|| Gvr::new(group, ANY_VERSION, resource));
    let mut grants = access::authorize(caller, verb, &mut selection).await?;
    let now = reads.preferred(group, resource, selection.identified).await;
    let now = grants.recorded(now.map_err(|refusal| Error::refusal(&named, refusal)))?;
    if let Some(resource) = sent.as_mut().and_then(|sent| sent.resource.as_mut()) {
        resource.version = now.version.to_string();
    }
    if selection.gvr != now {
        // An authorizer may tell versions apart.
        selection.gvr = now;
        grants = access::authorize(caller, verb, &mut selection).await?;
    }
    Ok(Selected { selection, rendering, grants, held })
}
