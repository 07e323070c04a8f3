//! Why no informer covers a read.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoCoverage {
    Excluded,
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
