//! The failures of the read path in the apiserver's own words. Texts, reasons and details are read by clients
//! (client-go decides by them whether to retry, relist or give up), so they are kept to the letter.

use std::fmt;
use std::time::Duration;

use super::{ContinueToken, Gvr, Status, StatusCause, StatusDetails};

/// 400 `BadRequest`.
pub fn bad_request(message: impl Into<String>) -> Status {
    Status::failure(400, "BadRequest", message)
}

/// 400: a watch by path names one object, its field selector another or none.
pub fn name_mismatch() -> Status {
    bad_request("fieldSelector metadata.name doesn't match requested name")
}

/// 400: `export=true` on a get.
pub fn export_not_supported() -> Status {
    bad_request("the export parameter, deprecated since v1.14, is no longer supported")
}

/// 401. The message never says why.
pub fn unauthorized() -> Status {
    Status::failure(401, "Unauthorized", "Unauthorized")
}

/// 403 for a resource; `name` is empty for collections. `detail` says who may not do what.
pub fn forbidden(gvr: &Gvr, name: &str, detail: impl fmt::Display) -> Status {
    let resource = gvr.group_resource();
    let message = if name.is_empty() {
        format!("{resource} is forbidden: {detail}")
    } else {
        format!("{resource} {} is forbidden: {detail}", quoted(name))
    };
    Status::failure(403, "Forbidden", message).with_details(about(gvr, name))
}

/// 404: the object does not exist.
pub fn not_found(gvr: &Gvr, name: &str) -> Status {
    Status::failure(404, "NotFound", format!("{} {} not found", gvr.group_resource(), quoted(name)))
        .with_details(about(gvr, name))
}

/// 404: nothing is served under this path of a known API.
pub fn resource_not_found() -> Status {
    Status::failure(404, "NotFound", "the server could not find the requested resource")
        .with_details(StatusDetails::default())
}

/// 405: the path is served, but not with this method.
pub fn method_not_allowed() -> Status {
    Status::failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        .with_details(StatusDetails::default())
}

/// 405: the resource can not be watched.
pub fn watch_not_supported(gvr: &Gvr) -> Status {
    let message = format!("watch is not supported on resources of kind {}", quoted(&gvr.group_resource()));
    Status::failure(405, "MethodNotAllowed", message).with_details(about(gvr, ""))
}

/// 406 of a handler: none of the media types that `accepted` lists (joined with `, `) was acceptable.
pub fn not_acceptable(accepted: &str) -> Status {
    Status::failure(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
}

/// 406 of the router, which compares literally.
pub fn not_acceptable_by_route(available: &str) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    Status::failure(406, "NotAcceptable", message).with_details(StatusDetails::default())
}

/// 410: a watch from before what the history still holds. `oldest_minus_1` is the revision before the oldest
/// deliverable event, the smallest one a watch could have started from.
pub fn expired_watch(rv: u64, oldest_minus_1: u64) -> Status {
    expired(format!("too old resource version: {rv} ({oldest_minus_1})"))
}

/// 410: an exact list at a revision that is not kept any more.
pub fn expired_list() -> Status {
    expired("The resourceVersion for the provided list is too old.")
}

/// 410: an exact list at a revision older than the snapshots of a cache that has no store behind it.
pub fn expired_snapshot(rv: u64) -> Status {
    expired(format!("too old resource version: {rv}"))
}

/// 410: the page's revision is gone. The Status carries a token that continues at the latest state instead.
pub fn expired_continue(token: &ContinueToken) -> Status {
    let mut status = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.metadata.continue_token = ContinueToken { rv: -1, start: token.start.clone() }.encode();
    status
}

/// 422 of [`super::ListOptions::validate`]. One error stands bare, several in brackets.
pub(super) fn invalid_list_options(causes: Vec<StatusCause>) -> Status {
    let mut errors: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let errors = if errors.len() == 1 { errors.remove(0) } else { format!("[{}]", errors.join(", ")) };
    Status::failure(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {errors}")).with_details(
        StatusDetails { group: "meta.k8s.io".into(), kind: "ListOptions".into(), causes, ..Default::default() },
    )
}

/// 429: to be asked again after `retry_after` seconds.
pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Status {
    Status::failure(429, "TooManyRequests", message).with_retry_after(retry_after)
}

/// 429: the cache of the resource is not synced. `why` is the last error of its reflector, if any; the longer the
/// cache is down, the later clients are asked to come back: 1 s at first, 30 s after a minute (KEP-4568).
pub fn not_ready(why: Option<&str>, down: Duration) -> Status {
    let message = match why {
        Some(why) => format!("storage is (re)initializing: {why}"),
        None => "storage is (re)initializing".into(),
    };
    too_many_requests(message, not_ready_retry_after(down))
}

/// 500: `error` is named as an internal error, with a cause.
pub fn internal_error(error: impl fmt::Display) -> Status {
    let message = error.to_string();
    let cause = StatusCause { message: message.clone(), ..Default::default() };
    Status::failure(500, "InternalError", format!("Internal error occurred: {message}"))
        .with_details(StatusDetails { causes: vec![cause], ..Default::default() })
}

/// 500 as an error that is no Status appears in a watch: its bare text.
pub fn internal_in_stream(error: impl fmt::Display) -> Status {
    Status::failure(500, "InternalError", error.to_string())
}

/// 503.
pub fn service_unavailable(message: impl Into<String>, retry_after: Option<u32>) -> Status {
    let status = Status::failure(503, "ServiceUnavailable", message);
    match retry_after {
        Some(seconds) => status.with_retry_after(seconds),
        None => status,
    }
}

/// 504: the revision asked for was not reached in time. Clients recognise it by its cause, and list again without a
/// revision.
pub fn too_large_resource_version(want: u64, current: u64) -> Status {
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    Status::failure(504, "Timeout", format!("Timeout: Too large resource version: {want}, current: {current}"))
        .with_details(StatusDetails { causes: vec![cause], ..Default::default() })
        .with_retry_after(1)
}

/// Seconds after which a client may ask an unready cache again: `e^(0.06 * down)`, within 1 and 30.
pub fn not_ready_retry_after(down: Duration) -> u32 {
    let seconds = (0.06 * down.as_secs_f64()).exp().clamp(1.0, 30.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1 and 30, cut as Go cuts it")]
    {
        seconds as u32
    }
}

fn expired(message: impl Into<String>) -> Status {
    Status::failure(410, "Expired", message)
}

fn about(gvr: &Gvr, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.into(),
        group: gvr.group.to_string(),
        kind: gvr.resource.to_string(),
        ..Default::default()
    }
}

fn quoted(text: &str) -> String {
    super::strconv::quote(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployments() -> Gvr {
        Gvr::new("apps", "v1", "deployments")
    }

    #[test]
    fn words_and_shapes() {
        for (status, json) in [
            (
                not_found(&Gvr::new("", "v1", "pods"), "foo"),
                r#""message":"pods \"foo\" not found","reason":"NotFound","details":{"name":"foo","kind":"pods"},"code":404}"#,
            ),
            (
                not_found(&deployments(), "foo"),
                r#""message":"deployments.apps \"foo\" not found","reason":"NotFound","details":{"name":"foo","group":"apps","kind":"deployments"},"code":404}"#,
            ),
            (
                resource_not_found(),
                r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
            ),
            (
                watch_not_supported(&deployments()),
                r#""message":"watch is not supported on resources of kind \"deployments.apps\"","reason":"MethodNotAllowed","details":{"group":"apps","kind":"deployments"},"code":405}"#,
            ),
            (
                too_large_resource_version(999_999, 1234),
                r#""message":"Timeout: Too large resource version: 999999, current: 1234","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
            ),
            (
                expired_watch(1, 1020),
                r#""message":"too old resource version: 1 (1020)","reason":"Expired","code":410}"#,
            ),
            (
                not_ready(None, Duration::ZERO),
                r#""message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
            ),
            (
                forbidden(&Gvr::new("", "v1", "pods"), "", "User \"u\" cannot"),
                r#""message":"pods is forbidden: User \"u\" cannot","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#,
            ),
            (
                internal_error("boom"),
                r#""message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500}"#,
            ),
        ] {
            let head = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#;
            assert_eq!(status.to_json(), format!("{head}{json}"));
        }
    }

    #[test]
    fn an_expired_token_comes_back_for_the_latest_state() {
        let token = ContinueToken { rv: 17, start: "/default/a".into() };
        let status = expired_continue(&token);
        assert_eq!(
            ContinueToken::decode(&status.metadata.continue_token),
            Ok(ContinueToken { rv: -1, start: "/default/a".into() })
        );
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        assert!(status.message.ends_with("and now may show up in the list."));
        assert!(!status.message.contains("  "), "{}", status.message);
    }

    #[test]
    fn an_unready_cache_asks_for_more_patience_the_longer_it_is_down() {
        let waits: Vec<_> = [0, 5, 12, 30, 56, 57, 3600].map(|s| not_ready_retry_after(Duration::from_secs(s))).into();
        assert_eq!(waits, [1, 1, 2, 6, 28, 30, 30]);
    }
}
