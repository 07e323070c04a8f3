//! Equal reads of clients of which one has its share.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::uri::PathAndQuery;
use tokio::sync::Semaphore;

use super::super::read::Otherwise;
use super::tests::{LOCAL, Script, forward_to, get, json, lend_all, serve, text};
use super::*;
use crate::http::testing::until;
use crate::lifecycle::spawn;
use crate::memory::Pressure;

const ONE: Client = Client::Connection(1);
const OTHER: Client = Client::Connection(2);

/// What a client gets.
async fn read(forward: Forward, client: Client) -> Result<String, ForwardError> {
    let info = RequestInfo::parse("GET", "/api/v1/pods", "");
    let sender = Sender { client, ..LOCAL };
    let answer = forward.forward(get("/api/v1/pods"), &info, sender).await?;
    Ok(text(answer.response).await)
}

#[tokio::test]
async fn a_client_that_has_its_share_neither_fails_nor_holds_up_the_equal_read_of_another() {
    for is_memory in [true, false] {
        let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, wait) = (Arc::clone(&asked), Arc::clone(&gate));
        let script: Script = Arc::new(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let wait = Arc::clone(&wait);
            Box::pin(async move {
                wait.acquire().await.unwrap().forget();
                json("{}")
            })
        });
        let ledger = Ledger::new(if is_memory { 16_000 } else { usize::MAX }, Pressure::default());
        let window = is_memory.then_some(1000);
        let (forward, _) = forward_to(serve(script).await, ForwardConfig { ledger, window, ..lend_all() }).await;
        // Both join the batch that waits for this.
        let first = spawn("first", read(forward.clone(), Client::Connection(3)));
        until(|| asked.load(Ordering::SeqCst) == 1).await;
        let places = &forward.inner.admission.pace.places;
        // While others have something, a client has half of all.
        let another = places.take(&Client::Connection(4), false).unwrap();
        let held = is_memory.then(|| places.hold(&ONE, false, 9000).unwrap());
        let taken: Vec<_> = std::iter::from_fn(|| places.take(&ONE, false).ok().filter(|_| !is_memory)).collect();
        let one = spawn("one", read(forward.clone(), ONE));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let other = spawn("other", read(forward.clone(), OTHER));
        tokio::time::sleep(Duration::from_millis(50)).await;
        gate.add_permits(100);
        let other = tokio::time::timeout(Duration::from_secs(60), other).await.expect("it waits for the first only");
        assert_eq!(other.unwrap().unwrap(), "{}");
        assert_eq!(first.await.unwrap().unwrap(), "{}");
        if is_memory {
            assert!(matches!(one.await.unwrap(), Err(ForwardError::Memory { .. })));
        } else {
            assert!(!one.is_finished(), "it waits for a place");
            drop(taken);
            assert_eq!(one.await.unwrap().unwrap(), "{}");
        }
        drop((held, another));
        assert!(places.is_empty());
    }
}

#[tokio::test]
async fn a_read_that_is_sent_once_more_needs_one_place() {
    let script: Script = Arc::new(|request| {
        let is_first = request.uri().query().is_some();
        Box::pin(async move {
            let mut response = json("{}");
            if is_first {
                *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
            }
            response
        })
    });
    let (forward, observer) = forward_to(serve(script).await, lend_all()).await;
    let places = &forward.inner.admission.pace.places;
    let _another = places.take(&OTHER, false).unwrap();
    let mut taken: Vec<_> = std::iter::from_fn(|| places.take(&ONE, false).ok()).collect();
    taken.pop();
    let mut request = get("/api/v1/pods?resourceVersion=9");
    let otherwise = Otherwise { target: PathAndQuery::from_static("/api/v1/pods"), codes: &[504] };
    request.extensions_mut().insert(otherwise);
    let info = RequestInfo::parse("GET", "/api/v1/pods", "resourceVersion=9");
    let answered = forward.forward(request, &info, Sender { client: ONE, ..LOCAL });
    let answer = tokio::time::timeout(Duration::from_secs(60), answered).await.expect("it needs no second place");
    let response = answer.unwrap().response;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, "{}");
    let unreached = observer.0.lock().iter().filter(|told| told.ends_with("did not get there")).count();
    assert_eq!((unreached, forward.metrics().given_up.get()), (1, 0));
}
