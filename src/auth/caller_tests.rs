use super::*;
use crate::apiserver::testing::head_with;

/// Over HTTP a request with two tokens is forwarded, so the apiserver reads them anyway. A call over gRPC never is.
#[test]
fn only_the_apiserver_knows_who_is_impersonated_and_which_of_two_tokens_of_a_call_counts() {
    let [token, other, basic] = ["Bearer t", "Bearer u", "Basic t"].map(|value| ("authorization", value));
    let protocol = ("sec-websocket-protocol", "v4, base64url.bearer.authorization.k8s.io.dG9r");
    let jane = ("impersonate-user", "jane");
    for (lines, of_a_call, of_http) in [
        (&[token][..], false, false),
        (&[], false, false),
        (&[basic], false, false),
        (&[protocol, protocol], false, false),
        (&[token, protocol], true, false),
        (&[token, ("x-impersonate-user", "jane"), ("impersonate", "jane"), ("x-remote-user", "jane")], false, false),
        (&[token, token], true, false),
        (&[token, other], true, false),
        (&[basic, token], true, false),
        (&[basic, basic], true, false),
        (&[jane], true, true),
        (&[token, jane], true, true),
        (&[token, token, jane], true, true),
        (&[token, ("impersonate-group", "g")], true, true),
        (&[token, ("impersonate-what-comes-later", "x")], true, true),
        (&[token, ("impersonate-", "")], true, true),
    ] {
        let headers = head_with(lines);
        for mode in [Mode::Trust, Mode::Delegated] {
            let caller = Caller { mode, certificates: None, headers: &headers, may_impersonate: false };
            assert_eq!(caller.is_for_the_apiserver(), of_a_call, "{mode:?} {lines:?}");
            let caller = Caller { may_impersonate: true, ..caller };
            assert_eq!(caller.is_for_the_apiserver(), of_http, "{mode:?} {lines:?}");
        }
    }
}
