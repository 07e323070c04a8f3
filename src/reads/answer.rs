//! The answers of the read path.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::cache::{CacheWatcher, StateId, Walk, WatchCache, WatcherEvent};
use crate::codec::{Form, ListMetaOut, Shape};
use crate::meta::{Damaged, Encoding, Object, ObjectKey, Status, errors};
use crate::selector::Predicate;

use super::{Rent, Served, Shareable};

/// Serve from a cache, forward to the apiserver with the reason, or refuse.
#[derive(Debug)]
pub enum Outcome<T> {
    Serve(T),
    Forward(ForwardReason),
    Refuse(Box<Status>),
}

/// Why a read was not served from a cache. The labels are a contract of `informerd_reads_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardReason {
    /// A read of the newest state in the mode `upstream`.
    Consistent,
    /// An exact revision or continue token that the window does not hold.
    OutsideWindow,
    /// Options that the apiserver should refuse with its own message.
    Invalid,
    /// An encoding or transform that no cache holds.
    Encoding,
    /// Not a resource in discovery, or one without list and watch.
    NotReadable,
    /// An aggregated API server serves it, or may do so, and its answers may depend on who asks.
    Aggregated,
    /// Excluded by configuration.
    Excluded,
    /// Outside of the configured scopes of the resource.
    OutOfScope,
    /// The limit on informers is reached.
    TooManyInformers,
    /// The daemon's own identity may not list it.
    Forbidden,
    /// The caches have no memory for the resource.
    Memory,
    /// An object of the resource cannot be decoded, so no cache holds it for now.
    Undecodable,
    /// A form of a resource, such as its tables, that is read too rarely for an informer of its own.
    Seldom,
    /// A table with cells that only the apiserver can print.
    TableCells,
    /// Its revisions are no numbers, so no cache can hold it.
    Unversioned,
    /// The informer is not synced, and did not sync within the wait.
    NotSynced,
    /// The cache could not be proved fresh enough in time.
    NotFresh,
    /// A parameter that this version does not evaluate, impersonation by a trusted client, or an upgrade to anything
    /// but a watch.
    Unsupported,
    /// Only the apiserver can decide whether the client may read it.
    Unauthorized,
}

/// An object that was found.
#[derive(Debug)]
pub struct GetAnswer {
    pub form: Arc<Form>,
    pub shape: Shape,
    pub object: Arc<Object>,
    pub served: Served,
    pub rent: Option<Rent>,
}

/// A list that is not yet written.
#[derive(Debug)]
pub struct ListAnswer {
    pub form: Arc<Form>,
    pub shape: Shape,
    /// Its revision is that of the snapshot, or the one that an exact read asked for.
    pub meta: ListMetaOut,
    pub items: ListItems,
    pub served: Served,
    pub rent: Option<Rent>,
    pub identity: ListIdentity,
}

/// Determines which objects are in a list: lists with the same identity have the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListIdentity {
    pub state: StateId,
    pub predicate: Predicate,
    /// The start of a page, and its maximum number of objects.
    pub after: Option<ObjectKey>,
    pub limit: Option<usize>,
}

/// The items of a list: the matching objects of a snapshot, or the first of them. They are found while they are written, so
/// that a list of any length holds no objects.
#[derive(Clone, Debug)]
pub struct ListItems {
    walk: Walk,
    /// The most that may follow.
    left: usize,
}

/// An open watch that is not yet written.
#[derive(Debug)]
pub struct WatchAnswer {
    pub form: Arc<Form>,
    pub shape: Shape,
    pub source: WatchSource,
    pub served: Served,
    pub rent: Option<Rent>,
    /// The watch must end when this does not hold any more.
    pub proof: Option<Shareable>,
}

/// The source of a watch's events.
#[derive(Debug)]
pub enum WatchSource {
    /// A registered watcher, and its cache for the bookmark template.
    Cache { watcher: CacheWatcher, cache: WatchCache },
    /// The watch consists only of this error event. This is how the apiserver answers once it has parsed the options.
    Error(Option<Box<Status>>),
}

// === impl Outcome ===

impl<T> Outcome<T> {
    /// Converts a served answer into something else.
    pub async fn then<U, F: Future<Output = U>>(self, make: impl FnOnce(T) -> F) -> Outcome<U> {
        match self {
            Self::Serve(answer) => Outcome::Serve(make(answer).await),
            Self::Forward(reason) => Outcome::Forward(reason),
            Self::Refuse(status) => Outcome::Refuse(status),
        }
    }

    /// The same for what is written from objects. It may have to be refused: one of them is damaged, or memory is short.
    pub async fn written<U, F>(self, write: impl FnOnce(T) -> F) -> Outcome<U>
    where
        F: Future<Output = Result<U, Box<Status>>>,
    {
        match self.then(write).await {
            Outcome::Serve(Ok(answer)) => Outcome::Serve(answer),
            Outcome::Serve(Err(refused)) => Outcome::Refuse(refused),
            Outcome::Forward(reason) => Outcome::Forward(reason),
            Outcome::Refuse(status) => Outcome::Refuse(status),
        }
    }
}

// === impl ForwardReason ===

impl ForwardReason {
    pub const ALL: [Self; 19] = [
        Self::Consistent,
        Self::OutsideWindow,
        Self::Invalid,
        Self::Encoding,
        Self::NotReadable,
        Self::Aggregated,
        Self::Excluded,
        Self::OutOfScope,
        Self::TooManyInformers,
        Self::Forbidden,
        Self::Memory,
        Self::Undecodable,
        Self::Seldom,
        Self::TableCells,
        Self::Unversioned,
        Self::NotSynced,
        Self::NotFresh,
        Self::Unsupported,
        Self::Unauthorized,
    ];

    /// Whether a cache could have served the read, had that been worth it.
    pub fn is_of_cost(self) -> bool {
        use ForwardReason::{Consistent, NotFresh, NotSynced, OutsideWindow, Seldom, TooManyInformers};
        matches!(self, Consistent | OutsideWindow | TooManyInformers | Seldom | NotSynced | NotFresh)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consistent => "consistent",
            Self::OutsideWindow => "outside_window",
            Self::Invalid => "invalid",
            Self::Encoding => "encoding",
            Self::NotReadable => "not_readable",
            Self::Aggregated => "aggregated",
            Self::Excluded => "excluded",
            Self::OutOfScope => "out_of_scope",
            Self::TooManyInformers => "too_many_informers",
            Self::Forbidden => "forbidden",
            Self::Memory => "memory",
            Self::Undecodable => "undecodable",
            Self::Seldom => "seldom",
            Self::TableCells => "table_cells",
            Self::Unversioned => "unversioned",
            Self::NotSynced => "not_synced",
            Self::NotFresh => "not_fresh",
            Self::Unsupported => "unsupported",
            Self::Unauthorized => "unauthorized",
        }
    }
}

// === impl ListItems ===

impl ListItems {
    /// All objects of the walk, or as many as a page has.
    pub fn new(walk: Walk, limit: Option<usize>) -> Self {
        Self { walk, left: limit.unwrap_or(usize::MAX) }
    }

    /// Total size of all encoded items in bytes, for [`ListMetaOut::items_len`].
    ///
    /// # Errors
    /// The bytes of an object are damaged.
    pub(super) async fn measure(&self, form: &Form, shape: Shape) -> Result<u64, Damaged> {
        let (mut rest, mut sum) = (self.clone(), Ok(0));
        let mut more = form.encoding() == Encoding::Protobuf;
        while more {
            more = rest.step(usize::MAX, |object| {
                if let Ok(before) = sum {
                    sum = form.item_len(object, shape).map(|len| before + len);
                }
            });
            tokio::task::yield_now().await;
        }
        sum
    }

    /// Appends up to `max` more objects; fewer, or even none, if finding them takes long. Returns false once there are
    /// no more.
    pub fn next(&mut self, max: usize, into: &mut Vec<Arc<Object>>) -> bool {
        self.step(max, |object| into.push(object.clone()))
    }

    fn step(&mut self, max: usize, mut each: impl FnMut(&Arc<Object>)) -> bool {
        let left = &mut self.left;
        let more = self.walk.step(max.min(*left), |object| {
            *left -= 1;
            each(object);
        });
        more && self.left > 0
    }
}

// === impl WatchSource ===

impl WatchSource {
    /// Polls the next event; `None` is the clean end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatcherEvent>> {
        match self {
            Self::Cache { watcher, .. } => {
                let next = ready!(watcher.poll_next(cx));
                // A client continues after the last event that it got. Here that would be a loss, so it has to list.
                let Some(rv) = watcher.cut_short_at().filter(|_| next.is_none()) else { return Poll::Ready(next) };
                *self = Self::Error(None);
                Poll::Ready(Some(WatcherEvent::Error(Box::new(errors::expired_watch(rv.get(), rv.get())))))
            }
            Self::Error(status) => Poll::Ready(status.take().map(WatcherEvent::Error)),
        }
    }

    /// The watcher that delivers its events; `None` once only an error is left.
    pub fn watcher(&self) -> Option<&CacheWatcher> {
        match self {
            Self::Cache { watcher, .. } => Some(watcher),
            Self::Error(_) => None,
        }
    }

    /// Asks the watch to end: it delivers what is pending, then a last bookmark if the client accepts bookmarks, then
    /// nothing.
    pub fn end(&mut self) {
        if let Self::Cache { watcher, .. } = self {
            watcher.end(true);
        }
    }

    /// A bookmark object of this type in the apiserver's encoding.
    pub fn bookmark_template(&self) -> Option<Bytes> {
        match self {
            Self::Cache { cache, .. } => cache.bookmark_template(),
            Self::Error(_) => None,
        }
    }
}
