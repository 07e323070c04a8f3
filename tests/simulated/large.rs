//! Objects beyond the limit, which is in no setting.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use http::Method;
use informerd_sim::Verb;
use serde_json::{Value, json};

use crate::support::client::{names, rv};
use crate::support::metrics::only;
use crate::support::{Through, eventually, within};
use crate::{CONFIG_MAPS, config_map};

/// The most bytes of an object in a list, or of an event of a watch.
const LIMIT: usize = 16 << 20;
const SERVICES: &str = "/api/v1/services";
/// Without the content, of which there is much.
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn sized(name: &str, bytes: usize) -> Value {
    let mut object = config_map(name);
    object["data"] = json!({"k": "x".repeat(bytes)});
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_beyond_the_limit_costs_its_resource_the_cache_and_no_other() {
    // It is within the limit with its metadata.
    let (server, through, client) = Through::simulated([sized("within", LIMIT - 4096)], "").await;
    let list = async |path: &str| {
        let answer =
            client.request(Method::GET, &format!("{path}?resourceVersion=0"), &[("accept", PARTIAL)], "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let informer = |name: &str| {
        let informers = through.daemon.factory.informers();
        informers.into_iter().find(|informer| &*informer.key().gvr.resource == name).expect("it runs")
    };
    list(SERVICES).await;
    let at = rv(&list(CONFIG_MAPS).await);
    let [config_maps, services] = ["configmaps", "services"].map(informer);
    eventually("both are cached", || config_maps.cache().is_ready() && services.cache().is_ready()).await;
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={at}")).await;

    server.create(sized("beyond", LIMIT)).unwrap();
    assert!(within("its watches end", watch.next()).await.unwrap().is_none());
    eventually("it is given up", || config_maps.status().undecodable).await;
    let told = config_maps.status().last_error.unwrap();
    assert!(told.contains("\"a/beyond\"") && told.contains(&format!("larger than {LIMIT} bytes")), "{told}");
    let metrics = through.admin().metrics().await;
    let is_told = |name: &str| only(&metrics, "informerd_cache_undecodable", &[&format!("resource=\"{name}\"")]) > 0.0;
    assert!(is_told("configmaps") && !is_told("services"), "{metrics}");

    // Its reads are forwarded, with that reason.
    assert_eq!(names(&list(CONFIG_MAPS).await), ["beyond", "within"]);
    let reads = through.daemon.reads.metrics().series();
    assert!(
        reads.iter().any(|(plan, why, count)| (*plan, *why) == ("forward", "undecodable") && *count > 0),
        "{reads:?}"
    );

    // Those of another resource are answered from its cache, which follows.
    let asked = || server.counts().requests(Verb::List, "services");
    let before = asked();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "new", "namespace": "a"}});
    let created = server.create(service).unwrap();
    eventually("the cache has it", || services.cache().resource_version().get() >= created).await;
    assert_eq!((names(&list(SERVICES).await), asked()), (vec!["new"], before));
}
