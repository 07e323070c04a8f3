//! What is not served from a cache passes to a real kube-apiserver and back as it is.

use http::Method;

use crate::support::client::{Answer, Client};
use crate::support::metrics::only;
use crate::world::{World, assert_alike};

impl World {
    /// A read that both have to answer alike, whatever it is; by both versions of HTTP.
    pub(crate) async fn same_over_both(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut direct = self.direct.request(Method::GET, path, headers, "").await;
        for client in [&self.through, &Client::http2(&self.daemon.url)] {
            let mut through = client.request(Method::GET, path, headers, "").await;
            // The revision of a list moves with any write to the cluster, its own leases included.
            for _ in 0..10 {
                let after = self.direct.request(Method::GET, path, headers, "").await;
                if after.body == direct.body {
                    break;
                }
                direct = after;
                through = client.request(Method::GET, path, headers, "").await;
            }
            assert_alike(&format!("{path} {headers:?}"), &direct, &through);
        }
        direct
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_openapi() {
    let world = World::start("").await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for path in
        ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v3", "/apis/nope", "/"]
    {
        for _ in 0..2 {
            world.same_over_both(path, &[]).await;
            world.same_over_both(path, &[("accept", aggregated)]).await;
        }
    }
    let legacy = world.through.get("/apis").await;
    let grouped = world.through.request(Method::GET, "/apis", &[("accept", aggregated)], "").await;
    assert_eq!(
        (legacy.json()["kind"].as_str(), grouped.json()["kind"].as_str()),
        (Some("APIGroupList"), Some("APIGroupDiscoveryList"))
    );

    // A document that is known costs no body, and one that is asked for by hash is the apiserver's.
    let index = world.through.json("/openapi/v3").await;
    let document = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    for path in ["/openapi/v2", &document, "/apis"] {
        let headers: &[(&str, &str)] = if path == "/apis" { &[("accept", aggregated)] } else { &[] };
        let whole = world.same_over_both(path, headers).await;
        assert_eq!(whole.status, 200, "{path}");
        let etag = whole.headers["etag"].to_str().unwrap().to_owned();
        let mut asked = headers.to_vec();
        asked.push(("if-none-match", &etag));
        let unchanged = world.same_over_both(path, &asked).await;
        assert_eq!((unchanged.status.as_u16(), unchanged.body.len()), (304, 0), "{path}");
        asked.pop();
        asked.push(("if-none-match", "\"other\""));
        assert_eq!(world.same_over_both(path, &asked).await.status, 200, "{path}");
    }
    let confirmed = only(&world.daemon.admin().metrics().await, "informerd_forward_documents_confirmed_total", &[]);
    assert!(confirmed > 10.0, "{confirmed}");
}
