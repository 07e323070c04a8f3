//! Get and List.

use informerd::grpc::pb::v1;
use informerd_sim::Server;
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;

use super::fixtures::{
    all, client, config_map, consistent, filtered, index, keys, labelled, labels, list, namespace, resource, simulated,
};
use crate::support::Through;
use crate::support::client::Client as Http;
use crate::support::within;

fn get(namespace: &str, name: &str) -> v1::GetRequest {
    v1::GetRequest {
        resource: Some(resource("configmaps")),
        namespace: namespace.into(),
        name: name.into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_has_the_bytes_of_the_rest_side() {
    let (server, through, mut client) = simulated([config_map("a", "one")], "").await;
    let answer = client.get(get("a", "one")).await.unwrap().into_inner();
    let object = answer.object.unwrap();
    assert_eq!(answer.encoding, v1::Encoding::Json as i32);
    let rest = Http::new(&through.url).get("/api/v1/namespaces/a/configmaps/one?resourceVersion=0").await;
    assert_eq!([&object.object[..], b"\n"].concat(), rest.body);
    let (value, key) = (rest.json(), object.key.unwrap());
    assert_eq!((key.namespace.as_str(), key.name.as_str(), object.partial), ("a", "one", false));
    assert_eq!(key.uid, value["metadata"]["uid"]);
    assert_eq!(key.resource_version, value["metadata"]["resourceVersion"]);

    // A write through the REST side is seen, as there.
    let written = server.create(config_map("a", "two")).unwrap();
    let request = v1::GetRequest { consistency: Some(consistent()), ..get("a", "two") };
    let object = client.get(request).await.unwrap().into_inner().object.unwrap();
    assert_eq!(object.key.unwrap().resource_version, written.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_why() {
    let (_server, _through, mut client) = simulated([config_map("a", "one")], "").await;
    let missing = client.get(get("a", "none")).await.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (Code::NotFound, r#"configmaps "none" not found"#));
    assert!(!missing.details().is_empty());

    let bad = |selector: &str| v1::ListRequest {
        selection: Some(filtered("configmaps", vec![labels(selector)])),
        ..Default::default()
    };
    let refused = client.list(bad("a in (b")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "unable to parse requirement: found '', expected: ',' or ')'");

    let unknown = v1::ListRequest { selection: Some(all("gizmos")), ..Default::default() };
    assert_eq!(client.list(unknown).await.unwrap_err().code(), Code::NotFound);
    let excluded = client.list(v1::ListRequest { selection: Some(all("secrets")), ..Default::default() }).await;
    let excluded = excluded.unwrap_err();
    assert_eq!(excluded.code(), Code::FailedPrecondition);
    assert!(excluded.message().contains("excluded"), "{}", excluded.message());
    assert_eq!(client.list(v1::ListRequest::default()).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_chunks_of_one_state() {
    let mut builder = Server::builder();
    for n in 0..40 {
        let mut object = config_map("a", &format!("n{n:02}"));
        object["data"] = json!({ "x": "y".repeat(100_000) });
        builder = builder.object(object);
    }
    let server = builder.start().await.unwrap();
    let through = Through::before(&server, "").await;
    let mut client = client(&through).await;
    let request = v1::ListRequest { selection: Some(all("configmaps")), ..Default::default() };
    let mut stream = client.list(request).await.unwrap().into_inner();
    let header = within("the next part of the list", stream.message()).await.unwrap().unwrap();
    // What comes later is of no state before it.
    server.create(config_map("a", "late")).unwrap();
    let (mut chunks, mut names) = (0, Vec::new());
    while let Some(message) = within("the next part of the list", stream.message()).await.unwrap() {
        assert!(message.encoded_len() <= 1 << 20, "{}", message.encoded_len());
        let Some(v1::list_response::Part::Chunk(chunk)) = message.part else { panic!() };
        names.extend(keys(&chunk.objects));
        chunks += 1;
    }
    assert_eq!((chunks, names.len()), (4, 40));
    assert!(names.is_sorted());
    let Some(v1::list_response::Part::Header(header)) = header.part else { panic!() };
    assert!(!header.resume_token.is_empty() && header.resource_version.parse::<u64>().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unions_indexes_and_shapes() {
    let (_server, _through, mut client) = simulated(
        [
            labelled("a", "one", &json!({"app": "x", "tier": "front"})),
            labelled("a", "two", &json!({"app": "y"})),
            labelled("b", "three", &json!({"app": "x"})),
            labelled("c", "four", &json!({})),
        ],
        "",
    )
    .await;
    let one_label = v1::Filter {
        index: vec![v1::IndexTerm {
            key: Some(v1::index_term::Key::Label("app".into())),
            values: vec!["y".into(), "x".into()],
        }],
        ..Default::default()
    };
    let named = v1::Filter { names: vec!["two".into(), "four".into()], ..Default::default() };
    for (filters, wanted) in [
        (vec![], vec!["a/one", "a/two", "b/three", "c/four"]),
        (vec![labels("app=x")], vec!["a/one", "b/three"]),
        (vec![labels("app=x"), namespace("a")], vec!["a/one", "a/two", "b/three"]),
        (vec![index(v1::Index::Namespace, &["b", "c"])], vec!["b/three", "c/four"]),
        (vec![one_label.clone()], vec!["a/one", "a/two", "b/three"]),
        (vec![v1::Filter { namespace: "b".into(), ..one_label }, named], vec!["a/two", "b/three", "c/four"]),
        (vec![labels("app=x,app=y")], vec![]),
    ] {
        let selection = filtered("configmaps", filters.clone());
        let (_, objects) =
            list(&mut client, v1::ListRequest { selection: Some(selection), ..Default::default() }).await;
        assert_eq!(keys(&objects), wanted, "{filters:?}");
    }

    let mask = prost_types::FieldMask { paths: vec!["metadata.labels.app".into()] };
    let request = v1::GetRequest { shape: v1::Shape::Masked.into(), mask: Some(mask), ..get("a", "one") };
    let object = client.get(request).await.unwrap().into_inner().object.unwrap();
    let value: Value = serde_json::from_slice(&object.object).unwrap();
    assert!(object.partial);
    assert_eq!(value["metadata"]["labels"], json!({"app": "x"}));
    assert_eq!(
        (&value["kind"], &value["metadata"]["name"], value.get("data")),
        (&json!("ConfigMap"), &json!("one"), None)
    );

    let request = v1::GetRequest { shape: v1::Shape::MetadataOnly.into(), ..get("a", "one") };
    let object = client.get(request).await.unwrap().into_inner().object.unwrap();
    let value: Value = serde_json::from_slice(&object.object).unwrap();
    assert_eq!(value["kind"], "PartialObjectMetadata");
}
