//! The rows of the curated table: one request each, the same one to both sides, and what is known of its answer. The
//! ids are those of the scenarios that the project's requirements number; rows without one are `odd`.
//!
//! A row is `ID STATUS REQUEST[ => text]...`: each text stands in the body, or with `!` does not; in it `\n`, `\0` and `\_`
//! are a line break, a zero and a space. A request is `[METHOD ]TARGET[ | Header: value]...`. In it stand `{now}` for the
//! newest revision, `{old}` for one of the past, `{next}` and `{far}` for some of the future, `{exact}` for the parameters
//! of an exact list of now, `{second}` for a deadline of one second, `{w}` and `{g}` for the roots of the custom resources,
//! `{token}` for the token of the side's own first page of the ConfigMaps of `diff-a`, and `b64:…` for a token of that text.

const TABLES: [&str; 4] =
    [include_str!("paths.txt"), include_str!("lists.txt"), include_str!("watches.txt"), include_str!("encodings.txt")];

/// A row of the table, or one that is made of a vector.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) request: String,
    /// Where it is known without asking.
    pub(crate) status: Option<u16>,
    pub(crate) holds: Vec<String>,
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Row> {
    TABLES.iter().flat_map(|table| table.lines()).filter(|line| !line.starts_with('#')).map(|line| {
        let mut parts = line.split(" => ");
        let mut head = parts.next().unwrap_or_default().splitn(3, ' ');
        let [Some(id), Some(status), Some(request)] = [head.next(), head.next(), head.next()] else {
            panic!("no row: {line}")
        };
        let holds = parts.map(|text| text.replace(r"\n", "\n").replace(r"\0", "\0").replace(r"\_", " "));
        let status = Some(status.parse().unwrap_or_else(|_| panic!("no status: {line}")));
        Row { id: id.to_owned(), request: request.to_owned(), status, holds: holds.collect() }
    })
}

/// Rows that no harness in front of two running servers can show: ids, why, and the tests that show them instead, as
/// `FILE::FUNCTION` or a path that exists.
pub(crate) const LEFT_OUT: &[(&str, &str, &[&str])] = &[
    (
        "A25",
        "what comes before a deadline that is over is a race of the server's own",
        &["src/reads/plan_tests.rs::watches"],
    ),
    (
        "C2",
        "that nothing is waited for is no part of an answer",
        &["tests/simulated/faults.rs::a_quiet_cache_follows_what_was_forwarded_and_outlives_the_apiserver"],
    ),
    (
        "C11, C22, C23, E2-6, E25",
        "a compaction reaches the server's cache seconds later",
        &["tests/waiting/expiry.rs::watches_go_on_when_events_expire_together"],
    ),
    ("C19", "an etcd page of one raw object among thousands: a cost, not an answer; C18 and C20 have its shape", &[]),
    ("C31, E2-15", "revisions over time", &["tests/simulated/seeded/mod.rs::every"]),
    (
        "C32, C33, D7",
        "a cache that is not ready is a moment of each server's own",
        &["tests/simulated/faults.rs::an_unsynced_cache_never_answers"],
    ),
    (
        "D1, E12",
        "a read after a write under load",
        &["tests/real/consistency/linear.rs::no_read_misses_an_acknowledged_write"],
    ),
    ("E24", "a bound on time", &["tests/real/recovery.rs::a_network_that_loses_bytes_or_comes_and_goes"]),
    (
        "G1, G6, G7",
        "they take minutes",
        &["src/cache/watch_tests.rs::bookmarks_come_once_a_minute_and_before_the_deadline"],
    ),
    (
        "G8, G9",
        "a client that does not read fills the buffers of the kernel first",
        &[
            "src/http/wire/http1_tests.rs::a_client_that_reads_nothing_is_given_up",
            "src/http/wire/http2_body_tests.rs::a_client_that_reads_nothing_of_one_watch_gets_the_others",
            "src/cache/watch_tests.rs::a_slow_watcher_is_ended_and_holds_no_memory",
        ],
    ),
    (
        "G13, G14",
        "the end of the process and of clients",
        &["tests/real/daemon/drain.rs::watches_end_cleanly_with_a_bookmark"],
    ),
    ("I21", "not in this version of the kube-apiserver", &[]),
    (
        "I23",
        "HTTP/2",
        &["tests/real/daemon/connections.rs::a_thousand_watches_on_one_connection_and_hundreds_on_their_own"],
    ),
    (
        "J1-J10",
        "real clients",
        &[
            "tests/programs/clients.rs::informers_of_every_language_see_everything_through_informerd",
            "tests/programs/clients.rs::informers_end_with_what_is_there_when_the_apiserver_went_away",
            "tests/programs/clients.rs::kubectl_prints_the_same_through_informerd",
        ],
    ),
    (
        "what is not HTTP",
        "a head that does not parse is answered by the HTTP library, with 400 as by Go's, without its text",
        &[],
    ),
    (
        "Origin, Host",
        "a listener without authentication refuses the pages of browsers and names that are not its own",
        &["tests/real/daemon/guards.rs::web_pages_are_refused"],
    ),
];
