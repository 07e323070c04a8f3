//! Whether an informer covers a read, and why none does.

use std::sync::Arc;

use super::Informer;

/// Whether a request lies inside an informer's scope.
#[derive(Debug)]
pub enum Coverage {
    /// The informer is synced or syncing.
    By(Arc<Informer>),
    None(NoCoverage),
}

/// Why no informer covers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCoverage {
    Excluded,
    NotReadable,
    OutOfScope,
    Forbidden,
    /// The apiserver does not support the encoding for this type.
    Encoding,
    /// The limit on informers is reached.
    TooMany,
    /// The caches have no memory for it.
    Memory,
    /// An object cannot be decoded.
    Undecodable,
    /// It is read too rarely in this form for an informer of its own.
    Seldom,
    /// Its tables have cells that cannot be printed again here.
    Cells,
    /// Its objects have no revisions that can be compared.
    Unversioned,
    /// The definition of the resource has changed since the read looked it up.
    Outdated,
}

// === impl Coverage ===

impl Coverage {
    /// Replaces an informer that cannot be used with the reason.
    pub(super) fn usable(self) -> Self {
        match self {
            Self::By(informer) if informer.reflector.is_unacceptable() => Self::None(NoCoverage::Encoding),
            Self::By(informer) if informer.reflector.is_too_large() && !informer.cache.is_ready() => {
                Self::None(NoCoverage::Memory)
            }
            Self::By(informer) if informer.reflector.is_undecodable() && !informer.cache.is_ready() => {
                Self::None(NoCoverage::Undecodable)
            }
            coverage => coverage,
        }
    }
}
