//! The memory of a request's head, and of what is made of it before the request is authorized.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Uri};

use super::error::short;
use super::service::Inner;
use crate::memory::{Level, Reservation};
use crate::meta::{MOST_REQUIREMENTS, RequestInfo, Status, Verb};

/// A head of this size needs no account of its own: it takes no more than the rest of a request.
const SMALL: usize = 4 << 10;
/// What becomes of a requirement of a selector or of one of its values: a part of the attributes, of their review, and of the
/// predicate.
const PIECE: usize = 512;
/// Selectors with more of them are too large to be parsed here, see [`crate::meta::labels_fit`].
const MOST_PIECES: usize = 4 * MOST_REQUIREMENTS;

// === impl Inner ===

impl Inner {
    /// Reserves the memory of a request. `info`: of a request that may have selectors. `None` if it takes little. What lasts
    /// as long as a stream is kept of the head needs the reservation as long.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn room(
        &self,
        head: &Parts,
        info: Option<&RequestInfo>,
    ) -> Result<Option<Arc<Reservation>>, Box<Status>> {
        let takes_much = info.is_some_and(|info| info.is_resource && matches!(info.verb, Verb::List | Verb::Watch));
        if takes_much && self.ledger.pressure().level() == Level::Short {
            self.ledger.note_refused();
            return Err(Box::new(short()));
        }
        let needs = bytes(&head.headers, &head.uri) + if info.is_some() { selectors(&head.uri) } else { 0 };
        if needs <= SMALL {
            return Ok(None);
        }
        match self.ledger.lasting(needs) {
            Ok(reservation) => Ok(Some(Arc::new(reservation))),
            Err(_) => Err(Box::new(short())),
        }
    }
}

/// The bytes of a head's text.
pub(super) fn bytes(headers: &HeaderMap, uri: &Uri) -> usize {
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() + target
}

/// The most that becomes of the selectors in a query. Their requirements and values stand between commas.
fn selectors(uri: &Uri) -> usize {
    let Some(query) = uri.query().filter(|query| query.contains("Selector")) else { return 0 };
    let query = query.as_bytes();
    let escaped = query.windows(3).filter(|part| part.eq_ignore_ascii_case(b"%2C")).count();
    let pieces = 1 + escaped + memchr::memchr_iter(b',', query).count();
    if pieces > MOST_PIECES { 0 } else { PIECE * pieces + 2 * query.len() }
}
