//! The head of an answer over HTTP/2, as HTTP requires it of a server.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http_body::Body as _;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::http::answer::Body;

/// Headers of a connection. They have no place in HTTP/2 (RFC 9113, section 8.2.2).
const OF_CONNECTION: [HeaderName; 5] = [
    TRANSFER_ENCODING,
    UPGRADE,
    TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

thread_local! {
    /// The last date, and the second that it names.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// Adds what is missing, and removes what belongs to a connection.
pub(super) fn complete(head: &mut Parts, body: &Body) {
    let headers = &mut head.headers;
    if let Some(named) = headers.remove(CONNECTION) {
        for name in named.to_str().unwrap_or_default().split(',') {
            headers.remove(name.trim());
        }
    }
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
    if !headers.contains_key(DATE) {
        headers.extend(now().map(|date| (DATE, date)));
    }
    if let Some(length) = body.size_hint().exact().filter(|_| !body.is_end_stream()) {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}

/// The date as headers have it (RFC 9110, section 5.6.7). It is printed once a second.
fn now() -> Option<HeaderValue> {
    let second = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    LAST.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|(of, _)| *of != second) {
            let date = Timestamp::from_second(second.try_into().ok()?).ok()?;
            let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&date).ok()?;
            *last = Some((second, HeaderValue::from_str(&text).ok()?));
        }
        last.as_ref().map(|(_, date)| date.clone())
    })
}
