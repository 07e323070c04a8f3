//! The memory of a request's head, and of what is made of it before the request is authorized.

use std::sync::Arc;

use http::Uri;
use http::request::Parts;

use super::error::short;
use crate::http::door::{HEADER_COST, head_size};
use crate::memory::{Ledger, Level, Reservation};
use crate::meta::{Query, RequestInfo, Status, Verb, fields_fit, labels_fit, selectors_cost};

/// A head of this size needs no account of its own: it takes no more than the rest of a request.
const SMALL: usize = 4 << 10;
/// Usual requests have fewer headers. The memory of each further one is more than its bytes, and over HTTP/2 it may have
/// come as one byte.
const FEW_HEADERS: usize = 32;

/// Reserves the memory of a request. `info`: of a request that may have selectors. `None` if it takes little. What lasts
/// as long as a stream is kept of the head needs the reservation as long.
///
/// # Errors
/// There is not enough memory.
pub(in crate::http) fn room(
    ledger: &Ledger,
    head: &Parts,
    info: Option<&RequestInfo>,
) -> Result<Option<Arc<Reservation>>, Box<Status>> {
    let takes_much = info.is_some_and(|info| info.is_resource && matches!(info.verb, Verb::List | Verb::Watch));
    if takes_much && ledger.pressure().level() == Level::Short {
        ledger.note_refused();
        return Err(Box::new(short()));
    }
    let further = head.headers.len().saturating_sub(FEW_HEADERS) * HEADER_COST;
    let needs =
        head_size::bytes(&head.headers, &head.uri) + further + if takes_much { selectors(&head.uri) } else { 0 };
    if needs <= SMALL {
        return Ok(None);
    }
    match ledger.lasting(needs) {
        Ok(reservation) => Ok(Some(Arc::new(reservation))),
        Err(_) => Err(Box::new(short())),
    }
}

/// The most that becomes of the selectors in a query, as everything after this reads it: names may be escaped, and other
/// parameters may have as many commas. Nothing is made of selectors that are too large to be read here.
fn selectors(uri: &Uri) -> usize {
    let Some(query) = uri.query() else { return 0 };
    let query = Query::parse(query);
    let text = |name| query.text(name).unwrap_or_default();
    let (labels, fields) = (text("labelSelector"), text("fieldSelector"));
    if labels_fit(&labels) && fields_fit(&fields) { selectors_cost(&labels, &fields) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> usize {
        selectors(&format!("/api/v1/pods?{query}").parse().unwrap())
    }

    #[test]
    fn selectors_count_however_they_are_written() {
        let many = |separator: &str| vec!["a"; 1000].join(separator);
        let (plain, escaped) = (many(","), many("%2C"));
        let one = of(&format!("labelSelector={plain}"));
        assert!(one >= 500_000, "{one}");
        for query in [
            format!("labelSelector={escaped}"),
            format!("labelSelector={}", many("%2c")),
            format!("label%53elector={plain}"),
            format!("%6CabelSelector={escaped}"),
            format!("fieldSelector={plain}"),
            format!("field%53elector={escaped}"),
            format!("labelSelector={plain}&x={}", ",".repeat(5000)),
            format!("x={}&labelSelector={plain}", "%2C".repeat(5000)),
            format!("labelSelector={plain}&labelSelector=b"),
        ] {
            assert_eq!(of(&query), one, "{}", &query[..40]);
        }
        let both = format!("labelSelector={plain}&fieldSelector={escaped}&x={}", ",".repeat(4000));
        assert_eq!(of(&both), 2 * one);
    }

    #[test]
    fn what_nothing_is_made_of_counts_nothing() {
        let more = vec!["a"; 1001].join(",");
        for query in [
            &*format!("labelSelector={more}"),
            &format!("labelSelector=a&fieldSelector={more}"),
            "limit=5",
            "x=,,,",
            "",
        ] {
            assert_eq!(of(query), 0, "{}", &query[..query.len().min(40)]);
        }
    }
}
