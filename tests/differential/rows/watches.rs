//! E: where watches start, as far as one request shows it. G: how they end.

use super::Row;

const TOO_LARGE: &str = "\"message\":\"Timeout: Too large resource version: {far}, current: {now}\"";

pub(super) const ROWS: &[Row] = &[
    (
        "E1",
        "/api/v1/namespaces/diff-a/configmaps?watch=1&allowWatchBookmarks=true&{second}",
        200,
        &["ADDED", "k8s.io/initial-events-end"],
    ),
    ("E2", "/api/v1/namespaces/diff-a/configmaps?watch=1&{second}", 200, &["ADDED", "!BOOKMARK"]),
    (
        "E3",
        "/api/v1/namespaces/diff-a/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=true&{second}",
        200,
        &["ADDED", "BOOKMARK"],
    ),
    (
        "E4",
        "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&{second}",
        200,
        &["!ADDED"],
    ),
    (
        "E5",
        "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0&{second}",
        200,
        &["!ADDED"],
    ),
    (
        "E6",
        "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={old}&{second}",
        200,
        &["MODIFIED", "!ADDED"],
    ),
    ("E7", "/api/v1/configmaps?watch=1&resourceVersion={old}&{second}", 200, &["MODIFIED", "!ADDED"]),
    ("E7", "{w}/widgets?watch=1&resourceVersion={old}&{second}", 200, &["MODIFIED", "!ADDED"]),
    ("E8", "/api/v1/configmaps?watch=1&resourceVersion={now}&{second}", 200, &["!{"]),
    (
        "E9",
        "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1&allowWatchBookmarks=1&{second}",
        200,
        &["ADDED", "initial-events-end", "!ERROR"],
    ),
    (
        "E10",
        "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={far}",
        200,
        &["ERROR", TOO_LARGE],
    ),
    ("E11", "/api/v1/configmaps?watch=1&resourceVersion={far}&allowWatchBookmarks=1&{second}", 200, &["!{"]),
    (
        "E13",
        "/api/v1/namespaces/none/configmaps?watch=1&allowWatchBookmarks=true&{second}",
        200,
        &["initial-events-end", "!ADDED"],
    ),
    (
        "E16",
        "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&labelSelector=app%3Dy&{second}",
        200,
        &["initial-events-end", "!\"app\":\"x\""],
    ),
    (
        "E17",
        "/api/v1/namespaces/diff-a/configmaps?watch=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3Done&{second}",
        200,
        &["initial-events-end", "!\"name\":\"two\""],
    ),
    ("E18", "/api/v1/configmaps?watch=1&resourceVersion=2&{second}", 200, &["too old resource version: 2 ("]),
    (
        "E19",
        "/api/v1/configmaps?watch=1&resourceVersion=1&{second}",
        200,
        &["{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\"", "\"reason\":\"Expired\",\"code\":410"],
    ),
    ("E20", "/api/v1/watch/configmaps?resourceVersion=0&allowWatchBookmarks=1&{second}", 200, &["ADDED", "!BOOKMARK"]),
    (
        "E20",
        "/api/v1/watch/configmaps?resourceVersion=0&{second}&watch=1&allowWatchBookmarks=1",
        200,
        &["initial-events-end"],
    ),
    ("E26", "/api/v1/events?watch=1&allowWatchBookmarks=1&{second}", 200, &["initial-events-end"]),
    ("E26", "/api/v1/events?watch=1&resourceVersion=0&allowWatchBookmarks=1&{second}", 200, &["initial-events-end"]),
    ("odd", "/api/v1/watch/pods?resourceVersion=0&{second}&resourceVersionMatch=Exact", 422, &[]),
    ("odd", "/api/v1/watch/pods?resourceVersion=0&{second}&resourceVersionMatch=NotOlderThan", 200, &[]),
    ("odd", "/api/v1/watch/pods?resourceVersion={now}&{second}&resourceVersionMatch=Exact", 200, &[]),
    ("odd", "/api/v1/watch/pods?resourceVersion={now}&{second}&limit=1&continue=x", 200, &[]),
    ("odd", "/api/v1/pods?watch=1&resourceVersion={now}&{second}&resourceVersionMatch=NotOlderThan", 422, &[]),
    (
        "odd",
        "/api/v1/pods?watch=1&resourceVersion={now}&{second}&fieldSelector=metadata.name%3Done,metadata.name%3Dtwo",
        200,
        &[],
    ),
    ("odd", "/api/v1/pods?watch=1&resourceVersion=0&{second}&timeout=x", 200, &["ADDED"]),
    ("odd", "/apis/authentication.k8s.io/v1/tokenreviews?watch=1", 405, &[]),
    ("odd", "/api/v1/componentstatuses?watch=1", 405, &["watch is not supported on resources of kind"]),
    ("G5", "/api/v1/configmaps?watch=1&resourceVersion={now}&allowWatchBookmarks=1&timeoutSeconds=2", 200, &["!ERROR"]),
    (
        "G16",
        "/api/v1/configmaps?watch=1&resourceVersion={now}&allowWatchBookmarks=1&timeoutSeconds=2",
        200,
        &["!BOOKMARK"],
    ),
];
