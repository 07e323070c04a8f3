//! The identity of an upstream request.

use http::Method;
use http::header::{AUTHORIZATION, HeaderMap};
use http::request::Parts;

use super::error::ForwardError;
use crate::apiserver::client::Identity;
use crate::auth::{has_protocol_token, impersonates, wants_upgrade};
use crate::meta::{RequestInfo, Verb};

const SESSION: &str = "a session in a pod";

/// What requests without credentials of their own may do with the daemon's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LendIdentity {
    /// Everything, as if the client had the kubeconfig itself.
    All,
    /// GET, LIST and WATCH, but no access into pods and no creation of credentials.
    Reads,
    #[default]
    None,
}

/// The identity of a request that is sent with its client's own credentials and with nothing of ours. A client whose token
/// the apiserver may not accept does not share the connections of users. Neither does a request to a server behind the
/// apiserver: the head of its answer may be one that ends the connection.
pub(super) fn of_client(accepted: bool, info: &RequestInfo) -> Identity {
    let is_proxied = info.subresource == "proxy" || info.verb == Verb::Proxy;
    match (accepted, is_proxied) {
        (false, _) => Identity::Stranger,
        (true, true) => Identity::Proxied,
        (true, false) => Identity::Bare,
    }
}

/// Chooses the identity of a request. `info` was parsed from it.
///
/// A request with credentials is sent with those and never with ours, even if ours would allow more.
///
/// # Errors
/// `NoCredentials`, `NotLent` and `NoSessions` for a request that has no credentials and may not use ours.
pub(super) fn choose(
    lend: LendIdentity,
    sessions: bool,
    info: &RequestInfo,
    request: &Parts,
) -> Result<Identity, ForwardError> {
    if has_own_credentials(&request.headers) {
        return Ok(Identity::Stranger);
    }
    match lend {
        // Every program on the machine can reach a TCP port, so this refuses what kubectl's proxy refuses.
        LendIdentity::All if !sessions && is_session(info) => Err(ForwardError::NoSessions),
        LendIdentity::All => Ok(Identity::Own),
        LendIdentity::None => Err(ForwardError::NoCredentials),
        LendIdentity::Reads => lendable_read(info, request).map(|()| Identity::Own).map_err(ForwardError::NotLent),
    }
}

pub(crate) fn has_own_credentials(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || has_protocol_token(headers)
}

/// Whether this request only reads; otherwise returns what it does. Only requests that are known to be harmless pass.
fn lendable_read(info: &RequestInfo, request: &Parts) -> Result<(), &'static str> {
    if request.method != Method::GET && request.method != Method::HEAD {
        return Err("a write");
    }
    if impersonates(&request.headers) {
        return Err("impersonation");
    }
    if !info.plain {
        return Err("an unusual path");
    }
    let upgrade = wants_upgrade(&request.headers);
    if !info.is_resource {
        return if upgrade || !is_discovery(request.uri.path()) {
            Err("a path outside of the resource API")
        } else {
            Ok(())
        };
    }
    if !info.verb.is_read() {
        return Err("a proxy");
    }
    match info.subresource.as_str() {
        // A watch may use a WebSocket.
        "" => Ok(()),
        "status" | "scale" | "log" if !upgrade => Ok(()),
        _ if is_session(info) => Err(SESSION),
        "proxy" => Err("a proxy"),
        _ => Err("this subresource"),
    }
}

fn is_session(info: &RequestInfo) -> bool {
    matches!(info.subresource.as_str(), "exec" | "attach" | "portforward")
}

fn is_discovery(path: &str) -> bool {
    let root = path.trim_matches('/').split('/').next().unwrap_or_default();
    matches!(root, "api" | "apis" | "openapi" | "version" | "healthz" | "livez" | "readyz")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn identity(
        lend: LendIdentity,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<Identity, ForwardError> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse(method, parts.uri.path(), parts.uri.query().unwrap_or_default());
        choose(lend, true, &info, &parts)
    }

    #[test]
    fn only_users_share_the_connections_of_users() {
        for (accepted, path, identity) in [
            (true, "/api/v1/nodes/n", Identity::Bare),
            (false, "/api/v1/nodes/n", Identity::Stranger),
            (true, "/api/v1/nodes/n/proxy/metrics", Identity::Proxied),
            (true, "/api/v1/nodes/n%2Fproxy", Identity::Proxied),
            (true, "/api/v1/proxy/nodes/n", Identity::Proxied),
        ] {
            let info = RequestInfo::parse("GET", path, "");
            assert_eq!(of_client(accepted, &info), identity, "{path}");
        }
    }

    #[test]
    fn sessions_in_pods_are_lent_apart_from_all_else() {
        for subresource in ["exec", "attach", "portforward", "log"] {
            let target = format!("/api/v1/namespaces/a/pods/p/{subresource}");
            let (parts, ()) = Request::get(&target).body(()).unwrap().into_parts();
            let info = RequestInfo::parse("GET", &target, "");
            let is_lent = |sessions| choose(LendIdentity::All, sessions, &info, &parts).is_ok();
            assert_eq!((is_lent(true), is_lent(false)), (true, subresource == "log"), "{subresource}");
            // The answer names the setting.
            if let Err(error) = choose(LendIdentity::All, false, &info, &parts) {
                assert!(error.to_string().contains("lendSessions"), "{error}");
            }
        }
    }

    const UPGRADE: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "websocket")];

    #[test]
    fn own_credentials_are_never_mixed_with_ours() {
        let token = ("sec-websocket-protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r");
        for lend in [LendIdentity::All, LendIdentity::Reads, LendIdentity::None] {
            for header in [("authorization", "bearer x"), ("Authorization", "Basic x"), token] {
                assert_eq!(
                    identity(lend, "DELETE", "/api/v1/nodes/n", &[header]),
                    Ok(Identity::Stranger),
                    "{header:?}"
                );
            }
        }
    }

    #[test]
    fn all_lends_everything_and_none_nothing() {
        for (method, target) in
            [("POST", "/api/v1/namespaces/a/pods/p/exec"), ("GET", "/api/v1/pods"), ("GET", "/metrics")]
        {
            assert_eq!(identity(LendIdentity::All, method, target, &[]), Ok(Identity::Own));
            assert_eq!(identity(LendIdentity::None, method, target, &[]), Err(ForwardError::NoCredentials));
        }
        assert_eq!(identity(LendIdentity::All, "GET", "/api/v1/pods", &[("impersonate-user", "x")]), Ok(Identity::Own));
    }

    #[test]
    fn reads_lends_reading() {
        for target in [
            "/api/v1/pods",
            "/api/v1/pods?watch=1",
            "/api/v1/namespaces/a/pods/p",
            "/api/v1/namespaces/a/pods/p/log?follow=1",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "/api",
            "/apis",
            "/apis/apps/v1",
            "/openapi/v3",
            "/openapi/v3/apis/apps/v1?hash=1",
            "/version",
            "/version/",
            "/readyz",
        ] {
            assert_eq!(identity(LendIdentity::Reads, "GET", target, &[]), Ok(Identity::Own), "{target}");
            assert_eq!(identity(LendIdentity::Reads, "HEAD", target, &[]), Ok(Identity::Own), "{target}");
        }
        assert_eq!(identity(LendIdentity::Reads, "GET", "/api/v1/pods?watch=1", &UPGRADE), Ok(Identity::Own));
    }

    #[test]
    fn reads_lends_nothing_else() {
        for target in [
            "/api/v1/namespaces/a/pods/p/exec?command=sh",
            "/api/v1/namespaces/a/pods/p%2Fexec?command=sh",
            "/api/v1/namespaces/a/pods/p/exec/",
            "/api/v1/namespaces/a/pods/p/attach",
            "/api/v1/namespaces/a/pods/p/portforward",
            "/api/v1/namespaces/a/pods/p/proxy",
            "/api/v1/namespaces/a/services/s/proxy/x/y",
            "/api/v1/nodes/n/proxy/run/a/p/c",
            "/api/v1/proxy/nodes/n",
            "/api/v1/namespaces/a/serviceaccounts/s/token",
            "/api/v1/namespaces/a/pods/../pods/p/log",
            "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/console",
            "/metrics",
            "/debug/pprof",
            "/logs/x",
            "/",
            "/api/v1/%zz",
        ] {
            let answer = identity(LendIdentity::Reads, "GET", target, &[]);
            assert!(matches!(answer, Err(ForwardError::NotLent(_))), "{target} {answer:?}");
        }
        for (subresource, why) in [("exec", SESSION), ("proxy", "a proxy"), ("token", "this subresource")] {
            let target = format!("/api/v1/namespaces/a/pods/p/{subresource}");
            assert_eq!(identity(LendIdentity::Reads, "GET", &target, &[]), Err(ForwardError::NotLent(why)));
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"] {
            assert!(identity(LendIdentity::Reads, method, "/api/v1/nodes/n", &[]).is_err(), "{method}");
        }
        assert!(identity(LendIdentity::Reads, "GET", "/api/v1/pods", &[("Impersonate-User", "x")]).is_err());
        assert!(identity(LendIdentity::Reads, "GET", "/api/v1/namespaces/a/pods/p/log", &UPGRADE).is_err());
        assert!(identity(LendIdentity::Reads, "GET", "/version", &UPGRADE).is_err());
    }
}
