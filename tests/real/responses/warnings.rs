//! The `Warning` headers of deprecated API versions.

use http::{HeaderMap, Method};

use crate::support::client::rv;
use crate::support::until;
use crate::world::World;

const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const ENDPOINTS: &str = r#"299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice""#;
const WIDGETS: &str = "/apis/dep.example.com/v1/widgets";

fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
    headers.get_all("warning").iter().map(text).collect()
}

impl World {
    /// The warnings of one read, which the cache must answer, and which must be the apiserver's.
    async fn warned(&self, path: &str, headers: &[(&str, &str)]) -> Vec<String> {
        let served = self.answered();
        let direct = self.direct.send(Method::GET, path, headers, "").await;
        let through = self.through.send(Method::GET, path, headers, "").await;
        assert_eq!(direct.status(), through.status(), "{path}");
        assert_eq!(self.answered() - served, 1, "{path} is answered from the cache");
        let (direct, through) = (warnings(direct.headers()), warnings(through.headers()));
        assert_eq!(direct, through, "{path} {headers:?}");
        through
    }

    /// Waits until a list from the cache is answered with just these warnings, as by the apiserver.
    async fn comes_to_warn(&self, path: &str, want: &[&str]) {
        until(&format!("{path} has the warnings {want:?}"), async || {
            let served = self.answered();
            let through = self.through.get(path).await;
            through.status == 200 && self.answered() > served && warnings(&through.headers) == want
        })
        .await;
        assert_eq!(warnings(&self.direct.get(path).await.headers), want, "the apiserver");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_types() {
    let world = World::start("").await;
    let endpoints = "/api/v1/endpoints";
    world.comes_to_warn(&format!("{endpoints}?resourceVersion=0"), &[ENDPOINTS]).await;
    let now = rv(&world.through.json(&format!("{endpoints}?resourceVersion=0")).await);
    for (path, headers) in [
        (format!("{endpoints}?resourceVersion=0"), &[][..]),
        (format!("{endpoints}?resourceVersion=0"), &[("accept", PARTIAL)][..]),
        ("/api/v1/namespaces/default/endpoints?resourceVersion=0&limit=1".to_owned(), &[]),
        ("/api/v1/namespaces/default/endpoints/kubernetes?resourceVersion=0".to_owned(), &[]),
        ("/api/v1/namespaces/default/endpoints/missing?resourceVersion=0".to_owned(), &[]),
        (format!("{endpoints}?watch=1&resourceVersion=0&timeoutSeconds=1"), &[]),
        (format!("{endpoints}?watch=1&resourceVersion={now}&timeoutSeconds=1"), &[]),
    ] {
        assert_eq!(world.warned(&path, headers).await, [ENDPOINTS]);
    }
    // The other type of the same things is not deprecated.
    let slices = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";
    world.comes_to_warn(slices, &[]).await;
    assert!(world.warned(slices, &[]).await.is_empty());
    // It has no watch, so it is always forwarded.
    let component = world.through.get("/api/v1/componentstatuses").await;
    assert_eq!(warnings(&component.headers), [r#"299 - "v1 ComponentStatus is deprecated in v1.19+""#]);

    // People see it once, as they do without informerd.
    let kubeconfig = world.cluster.dir().join("through.kubeconfig");
    std::fs::write(&kubeconfig, informerd_sim::kubeconfig("through", &world.daemon.url)).unwrap();
    let shown = world.cluster.kubectl(&kubeconfig, ["get", "endpoints", "-A", "-o", "name"]).await;
    let direct = world.cluster.kubectl(world.cluster.admin(), ["get", "endpoints", "-A", "-o", "name"]).await;
    let errors = String::from_utf8(shown.stderr).unwrap();
    assert_eq!(errors, String::from_utf8(direct.stderr).unwrap());
    assert_eq!(errors.matches("Warning: v1 Endpoints is deprecated").count(), 1, "{errors}");
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
    let world = World::start("").await;
    let list = format!("{WIDGETS}?resourceVersion=0");
    for (deprecation, want) in [
        ("deprecated: true", &[r#"299 - "dep.example.com/v1 Widget is deprecated""#][..]),
        (
            r#"{deprecated: true, deprecationWarning: "use \"gadgets\" \\ é instead, now"}"#,
            &[r#"299 - "use \"gadgets\" \\ é instead, now""#],
        ),
        ("deprecated: false", &[]),
        ("{deprecated: true, deprecationWarning: again}", &[r#"299 - "again""#]),
    ] {
        let inline = deprecation.trim_start_matches('{').trim_end_matches('}').replacen(
            ", deprecationW",
            "\n    deprecationW",
            1,
        );
        world.cluster.apply(&definition(&inline)).await;
        world.comes_to_warn(&list, want).await;
        assert_eq!(world.warned(&format!("{WIDGETS}?watch=1&resourceVersion=0&timeoutSeconds=1"), &[]).await, want);
        assert_eq!(
            world.warned("/apis/dep.example.com/v1/namespaces/default/widgets/none?resourceVersion=0", &[]).await,
            want
        );
    }
}
