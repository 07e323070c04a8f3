//! The failures of the read path in the apiserver's wording. Clients depend on texts, reasons and details: client-go
//! uses them to decide whether to retry, relist or give up. So they must match exactly.

use std::fmt;

use super::{Damaged, Gvr, Status, StatusCause, StatusDetails};

/// 400 `BadRequest`.
pub fn bad_request(message: impl Into<String>) -> Status {
    Status::failure(400, "BadRequest", message)
}

/// 401. The message never contains the reason.
pub fn unauthorized() -> Status {
    Status::failure(401, "Unauthorized", "Unauthorized")
}

/// 403 for a resource. `name` is empty for collections. `detail` states who may not do what.
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

/// 410: a watch that starts before the oldest event of the history. `oldest_minus_1` is the revision before the
/// oldest deliverable event, which is the smallest revision that a watch could start from.
pub fn expired_watch(rv: u64, oldest_minus_1: u64) -> Status {
    expired(format!("too old resource version: {rv} ({oldest_minus_1})"))
}

/// 410: an exact list at a revision older than the snapshots of a cache that cannot read from a store.
pub fn expired_snapshot(rv: u64) -> Status {
    expired(format!("too old resource version: {rv}"))
}

/// 429: the client should retry after `retry_after` seconds.
pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Status {
    Status::failure(429, "TooManyRequests", message).with_retry_after(retry_after)
}

/// 500: the stored bytes of an object are lost.
pub fn damaged(damaged: Damaged) -> Status {
    let cause = StatusCause { message: damaged.to_string(), ..StatusCause::default() };
    Status::failure(500, "InternalError", format!("Internal error occurred: {damaged}"))
        .with_details(StatusDetails { causes: vec![cause], ..Default::default() })
}

/// 503.
pub fn service_unavailable(message: impl Into<String>, retry_after: Option<u32>) -> Status {
    let status = Status::failure(503, "ServiceUnavailable", message);
    match retry_after {
        Some(seconds) => status.with_retry_after(seconds),
        None => status,
    }
}

/// 504: the requested revision was not reached in time. Clients recognize the error by its cause and list again
/// without a resourceVersion.
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
                too_large_resource_version(999_999, 1234),
                r#""message":"Timeout: Too large resource version: 999999, current: 1234","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
            ),
            (
                expired_watch(1, 1020),
                r#""message":"too old resource version: 1 (1020)","reason":"Expired","code":410}"#,
            ),
            (
                forbidden(&Gvr::new("", "v1", "pods"), "", "User \"u\" cannot"),
                r#""message":"pods is forbidden: User \"u\" cannot","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#,
            ),
        ] {
            let head = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#;
            assert_eq!(status.to_json(), format!("{head}{json}"));
        }
    }
}
