use crate::meta::ContinueToken;

use super::*;

use ConsistentReads::{Cache, Probe, Upstream};

fn options(query: &str) -> ListOptions {
    let mut options = ListOptions::decode(query).unwrap();
    options.set_defaults();
    options
}

fn list_of(query: &str, mode: ConsistentReads) -> Result<ListPlan, ForwardReason> {
    list(&options(query), mode, false)
}

fn latest(freshness: Freshness, limit: Option<usize>) -> Result<ListPlan, ForwardReason> {
    Ok(ListPlan { state: At::Latest(freshness), limit, after: None })
}

fn exact(rv: u64, limit: Option<usize>) -> Result<ListPlan, ForwardReason> {
    Ok(ListPlan { state: At::Exact(ResourceVersion(rv)), limit, after: None })
}

#[test]
fn unset_lists_follow_the_mode() {
    assert_eq!(list_of("", Upstream), Err(ForwardReason::Consistent));
    assert_eq!(list_of("limit=5", Upstream), Err(ForwardReason::Consistent));
    assert_eq!(list_of("limit=5", Probe), latest(Freshness::Consistent, Some(5)));
    assert_eq!(list_of("", Cache), latest(Freshness::Any, None));
}

#[test]
fn any_version_ignores_the_limit() {
    assert_eq!(list_of("resourceVersion=0&limit=1", Upstream), latest(Freshness::Any, None));
    assert_eq!(
        list_of("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1", Upstream),
        latest(Freshness::Any, None)
    );
    // With a token, the result depends on where the apiserver has the page from.
    let token = ContinueToken { rv: 7, start: "/a/b".into() }.encode();
    let page = format!("resourceVersion=0&limit=1&continue={token}");
    assert_eq!(list_of(&page, Upstream), Err(ForwardReason::Unsupported));
}

#[test]
fn a_limit_without_match_means_exact() {
    let newer = Freshness::NotOlderThan(ResourceVersion(7));
    assert_eq!(list_of("resourceVersion=7", Upstream), latest(newer, None));
    assert_eq!(list_of("resourceVersion=7&limit=2", Upstream), exact(7, Some(2)));
    assert_eq!(
        list_of("resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan", Upstream),
        latest(newer, Some(2))
    );
    assert_eq!(list_of("resourceVersion=7&resourceVersionMatch=Exact", Upstream), exact(7, None));
}

#[test]
fn tokens_name_an_exact_state() {
    let token = |rv| ContinueToken { rv, start: "/a/b".into() }.encode();
    let plan = list_of(&format!("limit=2&continue={}", token(9)), Upstream).unwrap();
    assert_eq!(plan.state, At::Exact(ResourceVersion(9)));
    assert_eq!(plan.after.as_deref(), Some("/a/b"));
    assert_eq!(list_of(&format!("continue={}", token(-1)), Probe), Err(ForwardReason::Consistent));
    assert_eq!(list_of(&format!("continue={}&resourceVersion=5", token(9)), Probe), Err(ForwardReason::Invalid));
    assert_eq!(list_of("continue=nonsense", Probe), Err(ForwardReason::Invalid));
}

#[test]
fn what_does_not_parse_is_left_to_the_apiserver() {
    for query in ["resourceVersion=abc", "resourceVersion=-1", "resourceVersion=00", "resourceVersion=%2B1"] {
        assert_eq!(list_of(query, Cache), Err(ForwardReason::Invalid), "{query}");
        assert_eq!(get(&options(query), Cache), Err(ForwardReason::Invalid), "{query}");
    }
    let beyond_etcd = options("watch=true&resourceVersion=9223372036854775808");
    assert_eq!(watch(&beyond_etcd, Cache), Err(ForwardReason::Invalid));
    assert_eq!(get(&beyond_etcd, Cache), Err(ForwardReason::Invalid));
}

#[test]
fn the_limit_always_holds_for_uncached_types() {
    let list_of = |query: &str| list(&options(query), Upstream, true);
    assert_eq!(list_of("resourceVersion=0&limit=1"), latest(Freshness::Any, Some(1)));
    assert_eq!(list_of("resourceVersion=0"), latest(Freshness::Any, None));
    assert_eq!(list_of("resourceVersion=7&limit=2"), exact(7, Some(2)));
    let token = ContinueToken { rv: 7, start: "/a/b".into() }.encode();
    for revision in ["", "resourceVersion=0&"] {
        let plan = list_of(&format!("{revision}limit=1&continue={token}")).unwrap();
        assert_eq!(plan.state, At::Exact(ResourceVersion(7)));
        assert_eq!((plan.limit, plan.after.as_deref()), (Some(1), Some("/a/b")));
    }
}

#[test]
fn gets() {
    assert_eq!(get(&options(""), Upstream), Err(ForwardReason::Consistent));
    assert_eq!(get(&options(""), Probe), Ok(Freshness::Consistent));
    assert_eq!(get(&options("resourceVersion=0"), Upstream), Ok(Freshness::Any));
    assert_eq!(
        get(&options("resourceVersion=3&resourceVersionMatch=Foo"), Upstream),
        Ok(Freshness::NotOlderThan(ResourceVersion(3)))
    );
}

#[test]
fn watch_start_points() {
    let watch_of = |query: &str, mode| watch(&options(&format!("watch=1&{query}")), mode);
    let state = |freshness, initial_end| Ok(WatchPlan::State { freshness, initial_end });
    let rv = ResourceVersion(5);
    assert_eq!(watch_of("", Probe), state(Freshness::Consistent, false));
    assert_eq!(watch_of("allowWatchBookmarks=1", Probe), state(Freshness::Consistent, true));
    assert_eq!(watch_of("", Upstream), Err(ForwardReason::Consistent));
    assert_eq!(watch_of("resourceVersion=0&allowWatchBookmarks=1", Upstream), state(Freshness::Any, true));
    assert_eq!(watch_of("resourceVersion=5", Upstream), Ok(WatchPlan::After(rv)));
    let no_initial = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert_eq!(watch_of(no_initial, Probe), Ok(WatchPlan::Now { consistent: true }));
    assert_eq!(watch_of(&format!("{no_initial}&resourceVersion=0"), Probe), Ok(WatchPlan::Now { consistent: false }));
    assert_eq!(watch_of(&format!("{no_initial}&resourceVersion=5"), Probe), Ok(WatchPlan::After(rv)));
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    assert_eq!(watch_of(&format!("{initial}&resourceVersion=5"), Probe), state(Freshness::NotOlderThan(rv), true));
    assert_eq!(watch_of("resourceVersion=5&timeoutSeconds=-1", Probe), Err(ForwardReason::Unsupported));
    assert!(watch_of("resourceVersion=5&timeoutSeconds=9223372036", Probe).is_ok());
    assert_eq!(watch_of("resourceVersion=5&timeoutSeconds=9223372037", Probe), Err(ForwardReason::Unsupported));
}

#[test]
fn the_legacy_path_sends_state_without_a_marker() {
    let legacy = options("allowWatchBookmarks=1");
    let state = WatchPlan::State { freshness: Freshness::Any, initial_end: false };
    assert_eq!(watch(&legacy, Probe), Ok(state));
}
