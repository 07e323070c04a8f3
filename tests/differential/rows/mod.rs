//! The rows of the curated table: one request each, the same one to both sides, and what is known of its answer. The
//! ids are those of the scenarios that the project's requirements number; rows without one are `odd`.
//!
//! A request is `[METHOD ]TARGET[ | Header: value]...`. In it stand `{now}` for the newest revision, `{old}` for one of
//! the past, `{next}` and `{far}` for some of the future, `{exact}` for the parameters of an exact list of now, `{second}`
//! for a deadline of one second, `{w}` and `{g}` for the roots of the custom resources, `{token}` for the token of the
//! side's own first page of the ConfigMaps of `diff-a`, and `b64:…` for a token of that text.

mod encodings;
mod lists;
mod paths;
mod watches;

/// `(id, request, status, what stands in the body, or with ! what does not)`.
pub(crate) type Row = (&'static str, &'static str, u16, &'static [&'static str]);

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    paths::ROWS.iter().chain(lists::ROWS).chain(watches::ROWS).chain(encodings::ROWS)
}

/// Rows that no harness in front of two running servers can show, with what shows them instead.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "A25",
        "what comes before a deadline that is over is a race of the server's own: tests/real/edges.rs looks at the status",
    ),
    ("A26", "who may read what is decided for informerd's own clients: tests of the room auth"),
    ("C2", "that nothing is waited for is no part of an answer: tests/simulated/freshness.rs"),
    ("C11, C22, C23, E2-6, E25", "a compaction reaches the server's cache seconds later: tests/waiting/expiry.rs"),
    ("C19", "an etcd page of one raw object among thousands: a cost, not an answer; C18 and C20 have its shape"),
    ("C31, E2-15", "revisions over time: tests/real/consistency/never_back.rs"),
    ("C32, C33, D7", "a cache that is not ready is a moment of each server's own: tests/simulated/faults.rs"),
    ("D1, E12", "a read after a write under load: tests/simulated/freshness.rs and tests/real/consistency/linear.rs"),
    ("E24", "a bound on time: tests/real/liveness.rs"),
    ("G1, G6, G7", "they take minutes: the schedule's unit tests in src/cache"),
    ("G8, G9", "a client that does not read fills the buffers of the kernel first: tests/real/daemon/slow.rs"),
    ("G10, G11", "faults of the server: tests/simulated/faults.rs, tests/real/liveness.rs"),
    ("G13, G14", "the end of the process and of clients: tests/real/daemon/drain.rs"),
    ("I21", "not in this version of the kube-apiserver"),
    ("I23", "HTTP/2: tests/real/daemon/connections.rs"),
    ("J1-J10", "real clients: tests/clients"),
    (
        "what is not HTTP",
        "a head that does not parse is answered by the HTTP library, with 400 as by Go's, without its text",
    ),
    (
        "Origin, Host",
        "a listener without authentication refuses the pages of browsers and names that are not its own: \
         tests/real/daemon/guards.rs",
    ),
];
