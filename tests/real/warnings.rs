//! The `Warning` headers of deprecated API versions: answers from a cache have the apiserver's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use http::{HeaderMap, Method};

use crate::support::client::rv;
use crate::support::until;
use crate::world::World;

const ENDPOINTS: &str = r#"299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice""#;
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
    headers.get_all("warning").iter().map(text).collect()
}

impl World {
    /// Reads answered from a cache, or refused by one, so far.
    fn answered(&self) -> u64 {
        let http = &self.daemon.daemon.http;
        http.requests_served.get() + http.requests_refused.get()
    }

    /// The warnings of one read, which the cache must answer, and which must be the apiserver's.
    async fn warned(&self, path: &str, headers: &[(&str, &str)]) -> Vec<String> {
        let answered = self.answered();
        let direct = self.direct.send(Method::GET, path, headers, "").await;
        let through = self.through.send(Method::GET, path, headers, "").await;
        assert_eq!(direct.status(), through.status(), "{path}");
        assert_eq!(self.answered() - answered, 1, "{path} is answered from the cache");
        let (direct, through) = (warnings(direct.headers()), warnings(through.headers()));
        assert_eq!(direct, through, "{path} {headers:?}");
        through
    }

    /// Waits until a list from the cache is answered with just these warnings, as by the apiserver.
    async fn comes_to_warn(&self, path: &str, want: &[&str]) {
        until(&format!("{path} has the warnings {want:?}"), async || {
            let answered = self.answered();
            let through = self.through.get(path).await;
            through.status == 200 && self.answered() > answered && warnings(&through.headers) == want
        })
        .await;
        assert_eq!(warnings(&self.direct.get(path).await.headers), want, "the apiserver");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_types() {
    let world = World::start("").await;
    let all = "/api/v1/endpoints?resourceVersion=0";
    world.comes_to_warn(all, &[ENDPOINTS]).await;
    let now = rv(&world.through.json(all).await);
    for (path, headers) in [
        (all, &[][..]),
        (all, &[("accept", PARTIAL)][..]),
        ("/api/v1/namespaces/default/endpoints?resourceVersion=0&limit=1", &[]),
        ("/api/v1/namespaces/default/endpoints/kubernetes?resourceVersion=0", &[]),
        ("/api/v1/namespaces/default/endpoints/missing?resourceVersion=0", &[]),
        ("/api/v1/endpoints?watch=1&resourceVersion=0&timeoutSeconds=1", &[]),
        (&format!("/api/v1/endpoints?watch=1&resourceVersion={now}&timeoutSeconds=1"), &[]),
    ] {
        assert_eq!(world.warned(path, headers).await, [ENDPOINTS]);
    }
    // The other type of the same things is not deprecated.
    let slices = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";
    world.comes_to_warn(slices, &[]).await;
    assert!(world.warned(slices, &[]).await.is_empty());
}

fn definition(deprecation: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.dep.example.com}}
spec:
  group: dep.example.com
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget}}
  versions:
  - name: v1
    served: true
    storage: true
    {deprecation}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"#
    )
}

/// A definition's warning is changed, taken away and put there again while its resource is served.
#[tokio::test(flavor = "multi_thread")]
async fn definitions() {
    const SAYING: &str = "deprecated: true\n    deprecationWarning:";
    let world = World::start("").await;
    for (deprecation, want) in [
        ("deprecated: true", &[r#"299 - "dep.example.com/v1 Widget is deprecated""#][..]),
        (
            &format!(r#"{SAYING} "use \"gadgets\" \\ é instead, now""#),
            &[r#"299 - "use \"gadgets\" \\ é instead, now""#],
        ),
        ("deprecated: false", &[]),
        (&format!("{SAYING} again"), &[r#"299 - "again""#]),
    ] {
        world.cluster.apply(&definition(deprecation)).await;
        world.comes_to_warn("/apis/dep.example.com/v1/widgets?resourceVersion=0", want).await;
        for path in ["widgets?watch=1&timeoutSeconds=1&", "namespaces/default/widgets/none?"] {
            let path = format!("/apis/dep.example.com/v1/{path}resourceVersion=0");
            assert_eq!(world.warned(&path, &[]).await, want);
        }
    }
}
