use crate::meta::ContinueToken;

use super::*;

use ConsistentReads::{Cache, Probe, Upstream};

fn options(query: &str) -> ListOptions {
    let mut options = ListOptions::decode(query).unwrap();
    options.set_defaults();
    options
}

fn latest(freshness: Freshness, limit: Option<usize>) -> Result<ListPlan, ForwardReason> {
    Ok(ListPlan { state: At::Latest(freshness), limit, after: None })
}

fn exact(rv: u64, limit: Option<usize>) -> Result<ListPlan, ForwardReason> {
    Ok(ListPlan { state: At::Exact(ResourceVersion(rv)), limit, after: None })
}

fn newer(rv: u64) -> Freshness {
    Freshness::NotOlderThan(ResourceVersion(rv))
}

/// A page that follows `/a/b` at this revision.
fn page(rv: i64) -> String {
    format!("limit=2&continue={}", ContinueToken { rv, start: "/a/b".into() }.encode())
}

#[test]
fn lists() {
    use Freshness::{Any, Consistent};
    let after = || Ok(ListPlan { after: Some("/a/b".into()), ..exact(9, Some(2)).unwrap() });
    for (query, mode, expected) in [
        // Without a revision, the mode decides.
        ("", Upstream, Err(ForwardReason::Consistent)),
        ("limit=5", Upstream, Err(ForwardReason::Consistent)),
        ("limit=5", Probe, latest(Consistent, Some(5))),
        ("", Cache, latest(Any, None)),
        // Any revision ignores the limit.
        ("resourceVersion=0&limit=1", Upstream, latest(Any, None)),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1", Upstream, latest(Any, None)),
        // With a token, the result depends on where the apiserver has the page from.
        (&format!("resourceVersion=0&{}", page(7)), Upstream, Err(ForwardReason::Unsupported)),
        // A limit without a match means exactly this revision.
        ("resourceVersion=7", Upstream, latest(newer(7), None)),
        ("resourceVersion=7&limit=2", Upstream, exact(7, Some(2))),
        ("resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan", Upstream, latest(newer(7), Some(2))),
        ("resourceVersion=7&resourceVersionMatch=Exact", Upstream, exact(7, None)),
        // A token names a state.
        (&page(9), Upstream, after()),
        (&page(-1), Probe, Err(ForwardReason::Consistent)),
        (&format!("{}&resourceVersion=5", page(9)), Probe, Err(ForwardReason::Invalid)),
        ("continue=nonsense", Probe, Err(ForwardReason::Invalid)),
    ] {
        assert_eq!(list(&options(query), mode, false), expected, "{query}");
    }
    // The limit always holds for types that the apiserver does not cache.
    for (query, expected) in [
        ("resourceVersion=0&limit=1", latest(Any, Some(1))),
        ("resourceVersion=0", latest(Any, None)),
        ("resourceVersion=7&limit=2", exact(7, Some(2))),
        (&page(9), after()),
        (&format!("resourceVersion=0&{}", page(9)), after()),
    ] {
        assert_eq!(list(&options(query), Upstream, true), expected, "{query}");
    }
}

#[test]
fn what_does_not_parse_is_left_to_the_apiserver() {
    for query in ["resourceVersion=abc", "resourceVersion=-1", "resourceVersion=00", "resourceVersion=%2B1"] {
        assert_eq!(list(&options(query), Cache, false), Err(ForwardReason::Invalid), "{query}");
        assert_eq!(get(&options(query), Cache), Err(ForwardReason::Invalid), "{query}");
    }
    let beyond_etcd = options("watch=true&resourceVersion=9223372036854775808");
    assert_eq!(watch(&beyond_etcd, Cache), Err(ForwardReason::Invalid));
    assert_eq!(get(&beyond_etcd, Cache), Err(ForwardReason::Invalid));
}

#[test]
fn gets() {
    for (query, mode, expected) in [
        ("", Upstream, Err(ForwardReason::Consistent)),
        ("", Probe, Ok(Freshness::Consistent)),
        ("resourceVersion=0", Upstream, Ok(Freshness::Any)),
        ("resourceVersion=3&resourceVersionMatch=Foo", Upstream, Ok(newer(3))),
    ] {
        assert_eq!(get(&options(query), mode), expected, "{query}");
    }
}

#[test]
fn watches() {
    use Freshness::{Any, Consistent};
    const NO_INITIAL: &str = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    const INITIAL: &str =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&resourceVersion=5";
    let state = |freshness, initial_end| Ok(WatchPlan::State { freshness, initial_end });
    let after = || Ok(WatchPlan::After(ResourceVersion(5)));
    for (query, mode, expected) in [
        ("watch=1", Probe, state(Consistent, false)),
        ("watch=1&allowWatchBookmarks=1", Probe, state(Consistent, true)),
        ("watch=1", Upstream, Err(ForwardReason::Consistent)),
        ("watch=1&resourceVersion=0&allowWatchBookmarks=1", Upstream, state(Any, true)),
        ("watch=1&resourceVersion=5", Upstream, after()),
        (NO_INITIAL, Probe, Ok(WatchPlan::Now { consistent: true })),
        (&format!("{NO_INITIAL}&resourceVersion=0"), Probe, Ok(WatchPlan::Now { consistent: false })),
        (&format!("{NO_INITIAL}&resourceVersion=5"), Probe, after()),
        (INITIAL, Probe, state(newer(5), true)),
        ("watch=1&resourceVersion=5&timeoutSeconds=-1", Probe, Err(ForwardReason::Unsupported)),
        ("watch=1&resourceVersion=5&timeoutSeconds=9223372036", Probe, after()),
        ("watch=1&resourceVersion=5&timeoutSeconds=9223372037", Probe, Err(ForwardReason::Unsupported)),
        // The old path of watches sends the state without a mark.
        ("allowWatchBookmarks=1", Probe, state(Any, false)),
    ] {
        assert_eq!(watch(&options(query), mode), expected, "{query}");
    }
}
