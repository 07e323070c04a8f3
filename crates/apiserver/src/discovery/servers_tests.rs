use super::*;
use crate::testing::{FakeServer, answer};
use informerd_lifecycle::spawn;

fn service(name: &str, revision: &str, has_service: Option<bool>) -> Metadata {
    Metadata {
        name: name.to_owned(),
        uid: "u".to_owned(),
        resource_version: revision.to_owned(),
        has_service,
        ..Metadata::default()
    }
}

fn own(name: &str) -> Metadata {
    service(name, "1", Some(false))
}

fn aggregated(name: &str) -> Metadata {
    service(name, "1", Some(true))
}

fn custom() -> Origin {
    Origin::Custom { selectable: [].into(), columns: [].into(), definition: "".into() }
}

fn resource(group: &str, version: &str, origin: Origin) -> Arc<Resource> {
    let gvr = Gvr::new(group, version, "things");
    Arc::new(Resource { gvr, origin, ..Resource::simple(group, "things", "Thing") })
}

#[tokio::test(start_paused = true)]
async fn nothing_but_what_is_built_in_is_shared_before_the_apiservices_are_known() {
    let servers = Servers::default();
    let shared = async |origin: Origin| servers.shareable(&resource("example.com", "v1", origin)).await.is_ok();
    for (origin, expected) in [(Origin::BuiltIn, true), (custom(), false), (Origin::Unknown, false)] {
        assert_eq!(shared(origin.clone()).await, expected, "{origin:?}");
    }
    // They may not be read.
    servers.refused();
    assert!(!shared(custom()).await && shared(Origin::BuiltIn).await);
    assert!(!servers.listed([&own("v1.example.com")]), "nobody has another server than before");
    assert!(shared(custom()).await && shared(Origin::Unknown).await && shared(Origin::BuiltIn).await);
    servers.refused();
    assert!(!shared(custom()).await && !shared(Origin::Unknown).await && shared(Origin::BuiltIn).await);
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_a_moment_for_the_first_news() {
    let servers = Servers::default();
    let reader = servers.clone();
    let read = spawn("read", async move { reader.shareable(&resource("example.com", "v1", custom())).await.is_ok() });
    sleep(FIRST / 2).await;
    servers.listed([&own("v1.example.com")]);
    assert!(read.await.unwrap());
}

/// One of them may be about a version of a built-in group.
#[tokio::test(start_paused = true)]
async fn a_read_of_what_is_built_in_waits_as_well_where_apiservices_are_read() {
    for (service, expected) in [(aggregated("v1.batch"), false), (own("v1.batch"), true)] {
        let servers = Servers::default();
        servers.are_awaited();
        let reader = servers.clone();
        let built_in = resource("batch", "v1", Origin::BuiltIn);
        let read = spawn("read", async move { reader.shareable(&built_in).await.is_ok() });
        sleep(FIRST / 2).await;
        servers.listed([&service]);
        assert_eq!(read.await.unwrap(), expected);
    }
}

/// While the APIServices cannot be read, for whatever reason.
#[tokio::test(start_paused = true)]
async fn no_read_waits_again_once_one_has_waited_in_vain() {
    let servers = Servers::default();
    let began = tokio::time::Instant::now();
    for _ in 0..10 {
        let shared = servers.shareable(&resource("example.com", "v1", custom())).await;
        assert_eq!(shared.unwrap_err(), Unshareable::Unknown);
    }
    assert!(began.elapsed() < 2 * FIRST);
}

#[tokio::test]
async fn the_apiservice_of_the_group_version_decides() {
    let servers = Servers::default();
    let listed = [
        own("v1."),
        aggregated("v1.batch"),
        own("v1.example.com"),
        aggregated("v2.example.com"),
        // It does not say who serves it.
        service("v3.example.com", "1", None),
    ];
    assert!(servers.listed(&listed), "informers may have read what others serve");
    for (group, version, origin, expected) in [
        ("", "v1", Origin::BuiltIn, true),
        ("batch", "v1", Origin::BuiltIn, false),
        ("batch", "v2", Origin::BuiltIn, true),
        ("example.com", "v1", custom(), true),
        ("example.com", "v1", Origin::Unknown, true),
        ("example.com", "v2", custom(), false),
        ("example.com", "v2", Origin::Unknown, false),
        ("example.com", "v3", custom(), false),
        ("com", "v1.example", Origin::Unknown, false),
        // A definition whose APIService is still to come, and a group that nobody knows.
        ("new.example.com", "v1", custom(), true),
        ("new.example.com", "v1", Origin::Unknown, false),
    ] {
        let resource = resource(group, version, origin);
        assert_eq!(servers.shareable(&resource).await.is_ok(), expected, "{resource:?}");
        assert_eq!(
            servers.is_aggregated(&resource.gvr),
            matches!((group, version), ("batch", "v1") | ("example.com", "v2" | "v3"))
        );
    }
}

#[tokio::test]
async fn a_proof_ends_with_every_change_of_the_server_and_with_no_other() {
    let servers = Servers::default();
    servers.listed([&own("v1.example.com"), &own("v1.other.org")]);
    let of = async |group| servers.shareable(&resource(group, "v1", custom())).await;
    let (proof, other) = (of("example.com").await.unwrap(), of("other.org").await.unwrap());
    let before = servers.since(&proof.resource.gvr);
    assert!(proof.includes(before));
    // Its status changes, and another one comes.
    assert!(!servers.take(false, &service("v1.example.com", "2", Some(false))));
    assert!(!servers.take(false, &own("v1.new.org")));
    assert!(proof.holds());
    let over = spawn("over", proof.clone().over());
    assert!(servers.take(false, &aggregated("v1.example.com")));
    over.await.unwrap();
    assert!(!proof.holds() && of("example.com").await.is_err());
    // It is as before, but what was read in the meantime is not.
    for back in [own("v1.example.com"), aggregated("v1.example.com")] {
        let deleted = back.has_service == Some(true);
        assert!(servers.take(deleted, &back));
        let now = of("example.com").await.unwrap();
        assert!(!proof.holds() && !now.includes(before) && now.includes(servers.since(&proof.resource.gvr)));
        servers.take(false, &aggregated("v1.example.com"));
    }
    assert!(other.holds());
}

#[tokio::test]
async fn a_list_tells_what_may_have_changed_in_between() {
    let servers = Servers::default();
    let first =
        [own("v1.same.org"), own("v1.again.org"), own("v1.moved.org"), own("v1.gone.org"), aggregated("v1.theirs.org")];
    servers.listed(&first);
    let groups = ["same.org", "again.org", "moved.org", "gone.org", "theirs.org", "new.org"];
    let since = || groups.map(|group| servers.since(&resource(group, "v1", custom()).gvr));
    let before = since();
    // Nothing was missed.
    assert!(!servers.listed(&first));
    assert_eq!(since(), before);
    servers.refused();
    let again = service("v1.again.org", "7", Some(false));
    let theirs = service("v1.theirs.org", "8", Some(true));
    assert!(servers.listed([&own("v1.same.org"), &again, &aggregated("v1.moved.org"), &theirs, &own("v1.new.org")]));
    let moved: Vec<_> =
        groups.into_iter().zip(before).zip(since()).filter(|((_, before), now)| before != now).collect();
    let moved: Vec<_> = moved.into_iter().map(|((group, _), _)| group).collect();
    assert_eq!(moved, ["again.org", "moved.org", "gone.org", "new.org"]);
}

#[tokio::test]
async fn there_is_a_bound_on_what_is_remembered() {
    let servers = Servers::default();
    servers.listed([&own("v1.example.com")]);
    let proof = servers.shareable(&resource("example.com", "v1", custom())).await.unwrap();
    for number in 0..MOST_MOVED {
        servers.take(false, &aggregated(&format!("v{number}.many.org")));
    }
    assert!(proof.holds());
    servers.take(false, &aggregated("v1.more.org"));
    assert!(!proof.holds(), "all count as changed");
    assert_eq!(servers.inner.state.read().moved.len(), 1);
}

async fn ask(upstream: &Upstream) {
    let options = crate::CallOptions::new(crate::RequestVerb::Get, "");
    let accept = "application/json";
    let asked = crate::reader::get_json::<serde_json::Value>(upstream, "/version", accept, &options, 1000);
    asked.await.ok();
}

/// Follows a scripted apiserver that answers everything.
async fn blind() -> (Servers, Upstream, FakeServer) {
    let server = FakeServer::plain(|_, _| std::future::ready(answer(200, "{}"))).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    ask(&upstream).await;
    let servers = Servers::default();
    servers.listed([&own("v1.example.com")]);
    (servers, upstream, server)
}

#[tokio::test]
async fn what_cannot_be_followed_is_forgotten_while_the_apiserver_answers() {
    let (servers, upstream, _server) = blind().await;
    assert!(upstream.is_reachable());
    tokio::time::pause();
    spawn("blind", servers.clone().forget_when_blind(upstream));
    let known = async || servers.shareable(&resource("example.com", "v1", custom())).await.is_ok();
    sleep(10 * BLIND).await;
    assert!(known().await, "nothing was lost");
    // For a moment, again and again.
    for _ in 0..3 {
        servers.set_lost(true);
        sleep(BLIND - 2 * SECOND).await;
        assert!(known().await);
        servers.set_lost(false);
        sleep(SECOND).await;
    }
    servers.set_lost(true);
    sleep(BLIND + 2 * SECOND).await;
    assert!(!known().await);
    // The watch resumes: it has to report what it missed before anything counts as known.
    servers.set_lost(false);
    sleep(SECOND / 2).await;
    assert!(!known().await);
    sleep(SECOND).await;
    assert!(known().await);
}

#[tokio::test]
async fn that_they_may_not_be_read_is_remembered_until_they_are() {
    let (servers, upstream, _server) = blind().await;
    tokio::time::pause();
    spawn("blind", servers.clone().forget_when_blind(upstream));
    let why = async || servers.shareable(&resource("example.com", "v1", custom())).await.map(drop);
    // As a follower tells it. The next attempt may fail for another reason, which says nothing new.
    servers.set_lost(true);
    servers.refused();
    for _ in 0..3 {
        sleep(BLIND + 5 * SECOND).await;
        assert_eq!(why().await, Err(Unshareable::Aggregated));
        servers.set_lost(true);
    }
    // The right to read them was given, and nothing works right after that.
    servers.listed([&own("v1.example.com")]);
    assert_eq!(why().await, Ok(()));
    servers.set_lost(true);
    sleep(BLIND + 2 * SECOND).await;
    assert_eq!(why().await, Err(Unshareable::Unknown));
}

#[tokio::test]
async fn what_was_known_is_used_while_nothing_answers() {
    let (servers, upstream, server) = blind().await;
    drop(server);
    ask(&upstream).await;
    assert!(!upstream.is_reachable());
    tokio::time::pause();
    spawn("blind", servers.clone().forget_when_blind(upstream));
    servers.set_lost(true);
    sleep(10 * BLIND).await;
    assert!(servers.shareable(&resource("example.com", "v1", custom())).await.is_ok());
}
