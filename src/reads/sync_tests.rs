//! Reads of resources whose informers cannot sync, with a scripted apiserver. A read that waited would wait for an hour.

use std::pin::pin;

use futures_util::poll;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::{ApiResource, Discovery};
use crate::apiserver::testing::{FakeServer, answer, until};
use crate::cache::Floor;
use crate::codec::json::Style;
use crate::informer::{Asked, Factory, Freshness};
use crate::meta::{Gvr, ListOptions, Resource, ResourceVersion, Status, Verb};
use crate::reads::{ConsistentReads, Fate, Outcome, ReadRequest, ReadsConfig};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(60);

struct World {
    server: FakeServer,
    reads: Reads,
}

fn list(rv: &str) -> (u16, String) {
    (200, format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":{rv}}},"items":[]}}"#))
}

/// What the apiserver says while the webhook of a definition is down.
fn broken() -> (u16, String) {
    (500, Status::failure(500, "InternalError", "conversion webhook failed").to_json())
}

/// A world whose apiserver gives this answer to everything.
async fn world((code, body): (u16, String)) -> World {
    let server = FakeServer::plain(move |_, _| std::future::ready(answer(code, body.clone()))).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
    let factory = Factory::simple(HOUR, upstream, discovery);
    World { server, reads: Reads::new(ReadsConfig::simple(ConsistentReads::Auto, HOUR), factory) }
}

/// A read of `default/a`, or of all objects.
fn request(verb: Verb) -> ReadRequest {
    let options = ListOptions { resource_version: "0".into(), watch: verb == Verb::Watch, ..ListOptions::default() };
    let one = (verb == Verb::Get).then_some(["default", "a"]);
    ReadRequest::simple(Gvr::new("", "v1", "configmaps"), one, options)
}

impl World {
    /// Why a read is forwarded; `None` if it is answered.
    async fn forwarded(&self, verb: Verb) -> Option<&'static str> {
        let request = request(verb);
        let of = |outcome: Outcome<()>| match outcome {
            Outcome::Forward(reason) => Some(reason.as_str()),
            Outcome::Serve(()) | Outcome::Refuse(_) => None,
        };
        let read = async {
            match verb {
                Verb::Get => of(self.reads.get(&request).await.then(|_| std::future::ready(())).await),
                Verb::Watch => of(self.reads.watch(&request).await.then(|_| std::future::ready(())).await),
                _ => of(self.reads.list(&request).await.then(|_| std::future::ready(())).await),
            }
        };
        timeout(SOON, read).await.expect("it does not wait")
    }

    /// The requests of informers.
    fn asked(&self) -> usize {
        self.server.uris().len()
    }
}

#[tokio::test]
async fn objects_without_revisions_that_are_numbers_are_forwarded() {
    for rv in [r#""5/7""#, r#""""#, "null", r#""0""#] {
        let world = world(list(rv)).await;
        for verb in [Verb::Get, Verb::List, Verb::Watch, Verb::Get] {
            assert_eq!(world.forwarded(verb).await, Some("unversioned"), "{rv}");
            assert_eq!(world.asked(), 1, "{rv}: it is not asked again for some minutes");
        }
        let forecast = world.reads.explain(&request(Verb::Get), Verb::Get).await;
        assert_eq!(forecast.fate, Fate::Forwarded(ForwardReason::Unversioned));
    }
    let world = world((200, list(r#""5""#).1.replace("[]", r#"[{"metadata":{"name":"a","uid":"u"}}]"#))).await;
    assert_eq!(world.forwarded(Verb::Get).await, Some("unversioned"), "of an object");
}

#[tokio::test]
async fn nobody_waits_for_an_informer_whose_attempts_fail() {
    let world = world(broken()).await;
    for verb in [Verb::Get, Verb::List, Verb::Watch, Verb::Get] {
        assert_eq!(world.forwarded(verb).await, Some("not_synced"), "{verb:?}");
    }
    let forecast = world.reads.explain(&request(Verb::Get), Verb::Get).await;
    assert_eq!(forecast.fate, Fate::Forwarded(ForwardReason::NotSynced));
    // A read that cannot be forwarded has nothing to lose.
    let local = ReadRequest { local: true, ..request(Verb::Get) };
    let waiting = world.reads.get(&local);
    assert!(timeout(Duration::from_millis(50), waiting).await.is_err(), "it waits");
}

/// Nothing else makes a read in a stream of gRPC give its thread to others, such as the task that removes the informer.
#[tokio::test]
async fn a_read_whose_informer_has_ended_gives_others_their_turn() {
    let world = world(list(r#""20""#)).await;
    let mut writer = world.reads.factory.put(Resource::simple("", "configmaps", "ConfigMap"));
    writer.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList"));
    writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
    let wait = Duration::from_secs(5);
    let reads = Reads::new(ReadsConfig::simple(ConsistentReads::Auto, wait), world.reads.factory.clone());
    let request = request(Verb::List);
    assert!(matches!(reads.list(&request).await, Outcome::Serve(_)));
    drop(writer);
    assert!(poll!(pin!(unconstrained(reads.list(&request)))).is_pending());
}

#[tokio::test]
async fn while_the_apiserver_does_not_answer_reads_wait_for_it() {
    let world = world(broken()).await;
    let address = world.server.address;
    drop(world.server);
    let request = request(Verb::List);
    // Unless its client does not wait as long.
    let short = ReadRequest { timeout: Some(Duration::from_millis(100)), ..request.clone() };
    let outcome = timeout(SOON, world.reads.list(&short)).await.expect("it ends");
    assert!(matches!(outcome, Outcome::Forward(ForwardReason::NotSynced)), "{outcome:?}");
    let (reads, list) = (world.reads.clone(), request.clone());
    let waiting = crate::lifecycle::spawn("waiting", async move { reads.list(&list).await });
    let informer = loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if let Some(informer) = world.reads.factory.informers().pop().filter(|one| one.status().state == "wait") {
            break informer;
        }
    };
    assert!(!informer.is_stuck() && !waiting.is_finished(), "{address} does not answer");
    waiting.abort();
}

/// A loop costs the apiserver no more than proofs for it, and less than an informer. A crowd shares proofs.
#[tokio::test]
async fn many_gets_start_an_informer_and_a_few_do_not() {
    let world = world(list(r#""20""#)).await;
    let get = ReadRequest { options: ListOptions::default(), ..request(Verb::Get) };
    let read = async || match world.reads.get(&get).await {
        Outcome::Forward(reason) => (reason.as_str(), world.reads.factory.informers().len()),
        other => panic!("{other:?}"),
    };
    for _ in 0..20 {
        assert_eq!(read().await, ("consistent", 0));
        assert_eq!(world.reads.explain(&get, Verb::Get).await.fate, Fate::Forwarded(ForwardReason::Consistent));
    }
    assert_eq!(world.asked(), 0);
    let mut gets = 20;
    while read().await != ("not_synced", 1) {
        gets += 1;
    }
    assert!(gets >= 255, "{gets} are no crowd");
}

/// As it is for the read that starts an informer.
#[tokio::test]
async fn a_state_that_was_asked_for_after_the_read_arrived_is_its_own_proof() {
    let nothing: fn(&Floor) = |_| {};
    let shown: fn(&Floor) = |floor| floor.raise(ResourceVersion(15));
    let written: fn(&Floor) = |floor| floor.wrote_unknown();
    for (what, is_earlier, meanwhile, is_asked) in [
        ("a read that has started it", true, nothing, false),
        ("a read that came while it was read", false, nothing, true),
        ("a client was shown a later revision", true, shown, true),
        ("something was written at an unknown revision", true, written, true),
    ] {
        let world = world(list(r#""20""#)).await;
        let mut writer = world.reads.factory.put(Resource::simple("", "configmaps", "ConfigMap"));
        writer.replace(Vec::new(), ResourceVersion(10)).await.unwrap();
        let informer = world.reads.factory.informers().remove(0);
        let reads = Reads::new(ReadsConfig::simple(ConsistentReads::Probe, SOON), world.reads.factory.clone());
        let request = ReadRequest::simple(Gvr::new("", "v1", "configmaps"), None, ListOptions::default());
        let early = reads.resolve(&request).await.ok().unwrap();
        informer.took(Asked::now(), ResourceVersion(10));
        let read = if is_earlier { early } else { reads.resolve(&request).await.ok().unwrap() };
        meanwhile(&read.floor);
        let (snapshot, _) = reads.fresh(&informer, &read, Freshness::Consistent, Verb::List).await.ok().unwrap();
        let told = (snapshot.rv().get(), world.asked() > 0, read.floor.uncovered());
        assert_eq!(told, (if is_asked { 20 } else { 10 }, is_asked, None), "{what}");
    }
}

/// A list is compressed. Who asks for the initial events would have had them by a watch-list as well.
#[tokio::test]
async fn a_watch_from_a_revision_starts_its_informer_by_a_list() {
    for (rv, by_list) in [("5", true), ("0", false)] {
        let world = world(list(r#""5""#)).await;
        let mut request = request(Verb::Watch);
        request.options.resource_version = rv.into();
        let first = || {
            let is_state = |uri: &String| uri.contains("limit=5000") || uri.contains("sendInitialEvents");
            world.server.uris().into_iter().find(is_state)
        };
        tokio::select! {
            _ = world.reads.watch(&request) => {}
            () = until(|| first().is_some()) => {}
        }
        let first = first().expect("a state is read");
        assert_eq!(first.contains("sendInitialEvents"), !by_list, "{rv}: {first}");
    }
}
