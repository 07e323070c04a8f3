//! Answers of an apiserver that is below a path of a gateway, such as Rancher.

use super::tests::{Script, ask, forward_of, get, json, lend_all, serve, text};
use super::*;

#[tokio::test]
async fn a_redirect_leads_to_informerd_again() {
    let gateway: Script = Arc::new(|request| {
        Box::pin(async move {
            let to = |to: &str| {
                let response = Response::builder().status(StatusCode::MOVED_PERMANENTLY).header("location", to);
                response.body(empty()).unwrap()
            };
            match (request.uri().path(), request.uri().query()) {
                ("/k8s/clusters/c1/openapi/v3/api/v1", Some("hash=NEW")) => json("{}"),
                ("/k8s/clusters/c1/openapi/v3/api/v1", _) => to("/k8s/clusters/c1/openapi/v3/api/v1?hash=NEW"),
                ("/k8s/clusters/c1/ui", _) => to("https://elsewhere.example/k8s/clusters/c1/ui"),
                _ => Response::builder().status(StatusCode::NOT_FOUND).body(empty()).unwrap(),
            }
        })
    });
    let url = format!("http://{}/k8s/clusters/c1", serve(gateway).await);
    let (forward, _) = forward_of(kube::Config::new(url.parse().unwrap()), lend_all()).await;
    let moved = ask(&forward, get("/openapi/v3/api/v1?hash=OLD")).await.unwrap();
    assert_eq!(
        (moved.status().as_u16(), &moved.headers()["location"]),
        (301, &"/openapi/v3/api/v1?hash=NEW".parse().unwrap())
    );
    let location = moved.headers()["location"].to_str().unwrap();
    let answer = ask(&forward, get(location)).await.unwrap();
    assert_eq!((answer.status().as_u16(), text(answer).await.as_str()), (200, "{}"));
    let elsewhere = ask(&forward, get("/ui")).await.unwrap();
    assert_eq!(elsewhere.headers()["location"], "https://elsewhere.example/k8s/clusters/c1/ui");
}
