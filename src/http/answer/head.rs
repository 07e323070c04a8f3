//! The memory of a request's head, and of what is made of it before the request is authorized.

use std::sync::Arc;

use http::Uri;
use http::request::Parts;

use super::error::short;
use crate::auth::Client;
use crate::http::door::{HEADER_COST, head_size};
use crate::memory::{Ledger, Level, Reservation};
use crate::meta::{Query, RequestInfo, Status, Verb, fields_fit, labels_fit, selectors_cost};

/// A head of this size needs no account of its own: it takes no more than the rest of a request.
const SMALL: usize = 4 << 10;
/// Usual requests have fewer headers. The memory of each further one is more than its bytes, and over HTTP/2 it may have
/// come as one byte.
const FEW_HEADERS: usize = 32;

/// Reserves the memory of a request. `info`: of a request that may have selectors. `None` if it takes little. What lasts
/// as long as a stream is kept of the head needs the reservation as long, so it counts in the share of the client.
///
/// # Errors
/// There is not enough memory, or the client has its share.
pub(in crate::http) async fn room<F: Future<Output = Client>>(
    ledger: &Ledger,
    head: &Parts,
    info: Option<&RequestInfo>,
    client: impl FnOnce() -> F,
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
    let Ok(reserved) = ledger.lasting(needs) else { return Err(Box::new(short())) };
    // Boxed: few requests take much, and each has room for what it waits for.
    if reserved.charge(Box::pin(client()).await.with_share()).is_err() {
        ledger.count_refused();
        return Err(Box::new(short()));
    }
    Ok(Some(Arc::new(reserved)))
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
    use crate::memory::Pressure;

    fn of(query: &str) -> usize {
        selectors(&format!("/api/v1/pods?{query}").parse().unwrap())
    }

    #[tokio::test]
    async fn watches_of_one_client_with_large_selectors_stop_at_its_share_and_others_go_on() {
        let ledger = Ledger::new(16 << 20, Pressure::default());
        let uri = format!("/api/v1/namespaces/a/pods?watch=1&labelSelector=x+notin+({})", vec!["b"; 1000].join(","));
        let query = uri.split_once('?').unwrap().1;
        let info = RequestInfo::parse("GET", "/api/v1/namespaces/a/pods", query);
        let (head, ()) = http::Request::get(&uri).body(()).unwrap().into_parts();
        let open = async |client: Client| {
            let mut watches = Vec::new();
            while let Ok(room) = room(&ledger, &head, Some(&info), || std::future::ready(client.clone())).await {
                watches.push(room.expect("it takes much"));
            }
            watches
        };
        let address = |n: u8| Client::Address([10, 0, 0, n].into());
        let first = open(address(1)).await;
        assert!((5 << 20..=6 << 20).contains(&ledger.used()), "three eighths: {}", ledger.used());
        assert_eq!(ledger.refused(), 1);
        let second = open(address(2)).await;
        assert!(ledger.used() <= 10 << 20 && second.len() < first.len(), "five eighths: {}", ledger.used());
        assert!(!open(address(3)).await.is_empty(), "who has little goes on");
        let most = first.len();
        drop((first, second));
        assert!(open(Client::Connection(1)).await.len() > most, "who is trusted has no share");
        assert_eq!(ledger.used(), 0);
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
