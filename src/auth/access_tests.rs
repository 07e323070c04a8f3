//! Reviews fail in these tests: nothing listens at the address of the apiserver.

use http::header::{AUTHORIZATION, HeaderName};

use super::*;

async fn access(config: AuthConfig) -> Access {
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    Access::delegated(&config, &upstream, &Fatal::new()).unwrap()
}

fn caller(headers: &HeaderMap) -> Caller<'_> {
    Caller { mode: Mode::Delegated, certificates: None, headers, may_impersonate: true }
}

fn bearer(length: usize) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {}", "t".repeat(length)).parse().unwrap())])
}

#[tokio::test]
async fn a_token_that_is_too_long_is_left_to_the_apiserver_and_is_no_outage() {
    let (long, short) = (bearer(40_000), bearer(4000));
    let open = access(AuthConfig::default()).await;
    // Its client does not count as one that cannot be judged now.
    assert_eq!(open.recognize(&caller(&long)).await.unwrap_err().code, 401);
    assert_eq!(open.recognize(&caller(&short)).await.unwrap_err().code, 503);
    for headers in [&long, &short] {
        let verdict = open.check(&caller(headers), &Arc::default()).await;
        assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        assert!(open.pass(&caller(headers)).await.is_ok());
    }
    // The apiserver could not say of which node it is.
    let bound = access(AuthConfig { node: Some("node-x".into()), ..AuthConfig::default() }).await;
    assert_eq!(bound.pass(&caller(&long)).await.unwrap_err().code, 401);
    assert_eq!(bound.pass(&caller(&short)).await.unwrap_err().code, 503);
}

#[tokio::test]
async fn what_passes_with_a_token_has_one_that_the_apiserver_sees() {
    let access = access(AuthConfig::default()).await;
    let token = ("sec-websocket-protocol", "v4, base64url.bearer.authorization.k8s.io.eA");
    for (upgrade, passes) in [
        (&[("connection", "upgrade"), ("upgrade", "websocket")][..], true),
        (&[("connection", "upgrade, sec-websocket-protocol"), ("upgrade", "websocket")], true),
        (&[("upgrade", "websocket")], false),
        (&[("connection", "upgrade"), ("upgrade", "x")], false),
        (&[("upgrade", "x")], false),
        (&[], false),
    ] {
        let lines = upgrade.iter().chain([&token]);
        let headers = lines.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        assert_eq!(access.pass(&caller(&headers)).await.is_ok(), passes, "{upgrade:?}");
    }
}
