use super::*;

/// verb group version resource subresource namespace name, `-` for empty. `None` if it is not a resource request.
fn show(method: &str, target: &str) -> Option<String> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let info = RequestInfo::parse(method, path, query);
    let dash = |part: &str| if part.is_empty() { "-".to_owned() } else { part.to_owned() };
    info.is_resource.then(|| {
        [info.verb.as_str(), &info.group, &info.version, &info.resource, &info.subresource, &info.namespace, &info.name]
            .map(dash)
            .join(" ")
    })
}

fn get(target: &str) -> RequestInfo {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    RequestInfo::parse("GET", path, query)
}

#[test]
fn path_grammar() {
    for (target, expected) in [
        ("/api/v1/pods", "list - v1 pods - - -"),
        ("/apis/apps/v1/deployments", "list apps v1 deployments - - -"),
        ("/api/v1/namespaces/a/pods", "list - v1 pods - a -"),
        ("/apis/apps/v1/namespaces/a/deployments", "list apps v1 deployments - a -"),
        ("/api/v1/nodes/n1", "get - v1 nodes - - n1"),
        ("/api/v1/namespaces/a/pods/p", "get - v1 pods - a p"),
        ("/api/v1/namespaces/a/pods/p/status", "get - v1 pods status a p"),
        ("/api/v1/namespaces/a/pods/p/proxy/x/y", "get - v1 pods proxy a p"),
        ("/api/v1/namespaces", "list - v1 namespaces - - -"),
        ("/api/v1/namespaces/a", "get - v1 namespaces - a a"),
        ("/api/v1/namespaces/a/status", "get - v1 namespaces status a a"),
        ("/api/v1/namespaces/a/finalize", "get - v1 namespaces finalize a a"),
        ("/api/v1/watch/pods", "watch - v1 pods - - -"),
        ("/api/v1/watch/namespaces", "watch - v1 namespaces - - -"),
        ("/api/v1/watch/namespaces/a", "watch - v1 namespaces - a a"),
        ("/api/v1/watch/namespaces/a/pods", "watch - v1 pods - a -"),
        ("/api/v1/watch/nodes/n1", "watch - v1 nodes - - n1"),
        ("/apis/apps/v1/watch/namespaces/a/deployments/d", "watch apps v1 deployments - a d"),
        ("/api/v1/watch/pods?watch=false", "watch - v1 pods - - -"),
        ("/api/v1/proxy/namespaces/a/pods/p/x", "proxy - v1 pods - a p"),
        ("/api/v1/pods/", "list - v1 pods - - -"),
        ("/api/v1/pods//", "list - v1 pods - - -"),
        ("/api/v1/namespaces/a/configmaps/x/", "get - v1 configmaps - a x"),
        ("//api/v1/pods", "list - v1 pods - - -"),
        ("/api/v1/pods/?watch=1", "watch - v1 pods - - -"),
        ("/api/v1/namespaces/a/pods/p?watch=true", "get - v1 pods - a p"),
        ("/api/v1/namespaces/A_B/pods", "list - v1 pods - A_B -"),
        ("/api/v1/namespaces/%20/pods", "list - v1 pods -   -"),
        ("/api/v1/namespaces/a/pods?namespace=b", "list - v1 pods - a -"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "get rbac.authorization.k8s.io v1 clusterroles - - system:node",
        ),
        ("/api/v1/namespaces/a/pods/p%2Fexec", "get - v1 pods exec a p"),
    ] {
        assert_eq!(show("GET", target).as_deref(), Some(expected), "{target}");
    }
}

#[test]
fn no_resource_requests() {
    for target in [
        "/",
        "",
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/version",
        "/healthz",
        "/openapi/v3/apis/apps/v1",
        "/apiz/v1/pods",
        "/livez/etcd/x",
        "/api/v1/%zz",
        "/api/v1/pods/%f",
    ] {
        assert_eq!(show("GET", target), None, "{target}");
    }
}

#[test]
fn the_apiserver_fails_on_a_prefix_with_nothing_after_it() {
    for target in ["/api/v1/watch", "/api/v1/watch/", "/apis/apps/v1/watch/", "/api/v1/proxy"] {
        let info = get(target);
        assert!(!info.is_resource && !info.plain, "{target}");
    }
}

#[test]
fn verbs() {
    for (method, target, expected) in [
        ("HEAD", "/api/v1/pods", "list - v1 pods - - -"),
        ("POST", "/api/v1/namespaces/a/pods", "create - v1 pods - a -"),
        ("POST", "/api/v1/namespaces/a/pods/p/exec", "create - v1 pods exec a p"),
        ("PUT", "/api/v1/nodes/n", "update - v1 nodes - - n"),
        ("PATCH", "/api/v1/nodes/n/status", "patch - v1 nodes status - n"),
        ("DELETE", "/api/v1/nodes/n", "delete - v1 nodes - - n"),
        ("DELETE", "/api/v1/nodes", "deletecollection - v1 nodes - - -"),
        ("OPTIONS", "/api/v1/nodes", "- - v1 nodes - - -"),
        ("POST", "/api/v1/watch/pods", "watch - v1 pods - - -"),
    ] {
        assert_eq!(show(method, target).as_deref(), Some(expected), "{method} {target}");
    }
}

#[test]
fn watch_is_a_lenient_bool_of_its_first_value() {
    for (query, expected) in [
        ("watch", Verb::Watch),
        ("watch=", Verb::Watch),
        ("watch=no", Verb::Watch),
        ("watch=00", Verb::Watch),
        ("watch=True", Verb::Watch),
        ("&watch=1", Verb::Watch),
        ("&&limit=1&watch=true", Verb::Watch),
        ("limit=abc&watch=1", Verb::Watch),
        ("w%61tch=1", Verb::Watch),
        ("watch=0", Verb::List),
        ("watch=false", Verb::List),
        ("watch=FaLSe", Verb::List),
        ("watch=false&watch=true", Verb::List),
        ("watch=true&watch=false", Verb::Watch),
        ("Watch=true", Verb::List),
        ("watch=%zz", Verb::List),
        ("watch=1;x", Verb::List),
        ("", Verb::List),
    ] {
        assert_eq!(get(&format!("/api/v1/pods?{query}")).verb, expected, "{query}");
    }
}

#[test]
fn what_is_not_read_may_say_that_it_is_a_watch() {
    for (method, parameters, may_watch) in [("GET", 10_000, false), ("GET", 10_001, true), ("PUT", 10_001, false)] {
        let query = format!("{}watch=1", "a&".repeat(parameters - 1));
        let info = RequestInfo::parse(method, "/api/v1/nodes/n", &query);
        assert_eq!((info.may_watch(), info.is_long()), (may_watch, may_watch), "{method} {parameters}");
    }
}

#[test]
fn plain_reads() {
    for (target, expected) in [
        ("/api/v1/pods", true),
        ("/api/v1/namespaces/a/pods/p", true),
        ("/api/v1/namespaces/a", true),
        ("/api/v1/watch/pods", true),
        ("/api/v1/namespaces/a/pods/p/log", false),
        ("/api/v1/namespaces/a/status", false),
        ("/api/v1//pods", false),
        ("/api/v1/namespaces//pods", false),
        ("/api/v1/pods/a/b/c", false),
        ("/api/v1/namespaces/../pods", false),
        ("/api/v1/nodes/.", false),
        ("/api/v1/namespaces/a/pods/p%2Fexec", false),
        ("/apis/g/v1/namespaces/a", false),
        ("/api/v1/proxy/nodes/n", false),
        ("/api", false),
        ("/api/v1/namespaces/a/namespaces", false),
        ("/api/v1/namespaces/a/namespaces/b", false),
        ("//api/v1/pods", false),
    ] {
        assert_eq!(get(target).is_plain_read(), expected, "{target}");
    }
    assert!(!RequestInfo::parse("PUT", "/api/v1/nodes/n", "").is_plain_read());
}

#[test]
fn a_namespace_object_is_cluster_scoped() {
    assert_eq!(get("/api/v1/namespaces/a").scope(), None);
    assert_eq!(get("/api/v1/namespaces/a/pods").scope(), Some("a"));
    assert_eq!(get("/api/v1/pods").scope(), None);
}
