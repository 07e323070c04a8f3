//! grpcurl, which knows the API by reflection alone.

use serde_json::Value;

use super::fixtures::config_map;
use crate::process::prepared;
use crate::support::Through;
use crate::support::binary::said;
use crate::support::tied;

#[tokio::test(flavor = "multi_thread")]
async fn lists_describes_and_calls() {
    let grpcurl = prepared("grpcurl").await.remove(0);
    let (server, through, _) = Through::simulated([config_map("a", "one"), config_map("b", "two")], "").await;
    through.ready().await;
    let authority = through.url.strip_prefix("http://").unwrap();
    let ask = async |request: Option<&str>, what: &[&str]| {
        let mut command = tied::command(&grpcurl);
        command.arg("-plaintext");
        if let Some(request) = request {
            command.args(["-d", request]);
        }
        let (code, out, err) = said(command.arg(authority).args(what)).await;
        (code == 0, out, err)
    };
    // Answers come one after the other, without anything between them.
    let answers = async |request: &str, method: &str| {
        let (fine, out, err) = ask(Some(request), &[method]).await;
        assert!(fine, "{method}: {err}");
        serde_json::Deserializer::from_str(&out).into_iter::<Value>().map(Result::unwrap).collect::<Vec<_>>()
    };

    let (fine, services, err) = ask(None, &["list"]).await;
    assert!(fine, "{err}");
    for service in ["informerd.v1.Objects", "informerd.v1.Queue", "informerd.v1.Cache", "grpc.health.v1.Health"] {
        assert!(services.lines().any(|line| line == service), "{services}");
    }
    let (fine, methods, err) = ask(None, &["describe", "informerd.v1.Objects"]).await;
    assert!(fine && methods.contains("rpc Watch ( .informerd.v1.WatchRequest )"), "{methods}{err}");
    let (fine, message, err) = ask(None, &["describe", ".informerd.v1.Selection"]).await;
    assert!(fine && message.contains(".google.protobuf.FieldMask mask = 4;"), "{message}{err}");

    let get = r#"{"resource": {"version": "v1", "resource": "configmaps"}, "namespace": "a", "name": "one"}"#;
    let got = answers(get, "informerd.v1.Objects/Get").await;
    assert_eq!(
        (got[0]["object"]["key"]["name"].as_str(), got[0]["encoding"].as_str()),
        (Some("one"), Some("ENCODING_JSON"))
    );
    let all = r#""selection": {"resource": {"version": "v1", "resource": "configmaps"}}"#;
    let listed = answers(&format!("{{{all}}}"), "informerd.v1.Objects/List").await;
    assert_eq!(listed[0]["header"]["resourceVersion"], server.revision().to_string());
    assert_eq!(listed[1]["chunk"]["objects"].as_array().unwrap().len(), 2);
    let told = answers(&format!(r#"{{{all}, "maxAge": "1s"}}"#), "informerd.v1.Objects/Watch").await;
    assert_eq!(told[0]["started"]["encoding"], "ENCODING_JSON");
    assert_eq!(told[1]["events"]["events"].as_array().unwrap().len(), 2);
    assert_eq!(told[2]["snapshotEnd"]["count"], "2");
    assert_eq!(told.last().unwrap()["goodbye"]["reason"], "REASON_MAX_AGE");
    assert_eq!(answers("{}", "grpc.health.v1.Health/Check").await[0]["status"], "SERVING");

    // Its errors are readable, too: the details are in the descriptors.
    let missing = get.replace("one", "none");
    let (fine, _, err) = ask(Some(&missing), &["informerd.v1.Objects/Get"]).await;
    assert!(!fine && err.contains("NotFound") && err.contains("informerd.v1.KubernetesStatus"), "{err}");
    assert!(err.contains(r#""reason": "NOT_FOUND""#) && err.contains(r#""domain": "informerd.io""#), "{err}");
}
