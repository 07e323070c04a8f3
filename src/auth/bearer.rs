//! Finds a client's token in its request.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;
use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// The protocol prefix that carries a token if a WebSocket client cannot set headers.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Decodes as Go does: the bits after the last byte are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// A token. Its debug output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(Box<str>);

/// The token that the apiserver would use. It is taken from the first `Authorization` line, if its scheme is `Bearer`
/// in any case and exactly one space precedes the token. Otherwise it is taken from the protocols of a WebSocket.
/// Values that are not valid text are parsed too, as in the apiserver, because such bytes may follow a valid token.
pub fn token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    authorization_token(headers).or_else(|| protocol_token(headers).map(Cow::Owned))
}

/// Whether the request has `Authorization` headers that two servers could read differently.
pub(super) fn is_ambiguous(headers: &HeaderMap) -> bool {
    headers.get_all(AUTHORIZATION).iter().count() > 1
}

/// Whether the request has an `Authorization` header that is not a bearer token.
pub(super) fn is_of_another_scheme(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) && authorization_token(headers).is_none()
}

fn authorization_token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    match String::from_utf8_lossy(headers.get(AUTHORIZATION)?.as_bytes()) {
        Cow::Borrowed(value) => bearer(value).map(Cow::Borrowed),
        Cow::Owned(value) => bearer(&value).map(|token| Cow::Owned(token.to_owned())),
    }
}

fn bearer(value: &str) -> Option<&str> {
    let mut parts = value.trim().splitn(3, ' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn protocol_token(headers: &HeaderMap) -> Option<String> {
    // The apiserver uses these headers only if the client asks for a WebSocket.
    if !headers.contains_key(UPGRADE) {
        return None;
    }
    let protocols: Vec<Cow<'_, str>> =
        headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let encoded =
        protocols.iter().flat_map(|value| value.split(',')).find_map(|one| one.trim().strip_prefix(TOKEN_PROTOCOL))?;
    String::from_utf8(BASE64.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

// === impl Secret ===

impl Secret {
    pub(super) fn new(token: &str) -> Self {
        Self(token.into())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn found(lines: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        token(&headers).map(Cow::into_owned)
    }

    #[test]
    fn tokens_are_read_as_the_apiserver_reads_them() {
        assert_eq!(found(&["Bearer t"]).as_deref(), Some("t"));
        assert_eq!(found(&["bEARER t"]).as_deref(), Some("t"));
        assert_eq!(found(&["  Bearer t  "]).as_deref(), Some("t"));
        assert_eq!(found(&["Bearer t rest"]).as_deref(), Some("t"));
        assert_eq!(found(&["Bearer t", "Bearer u"]).as_deref(), Some("t"));
        for hidden in [&b"Bearer t \xff"[..], b"Bearer t \xc3\xa9", b"Bearer t\xc2\xa0"] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(hidden).unwrap())]);
            assert_eq!(token(&headers).as_deref(), Some("t"), "{hidden:?}");
        }
        for none in [&[][..], &[""], &["Bearer"], &["Bearer "], &["Bearer  t"], &["Basic t"], &["Bearer\tt"], &["é"]] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_websocket_may_carry_it_among_its_protocols() {
        let mut headers = HeaderMap::new();
        let offered = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r";
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        assert_eq!(token(&headers), None, "this is none");
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        assert_eq!(token(&headers).as_deref(), Some("tok"));
        // Go ignores the bits after the last byte.
        let loose = HeaderValue::from_static("base64url.bearer.authorization.k8s.io.dG9rZX, v4");
        headers.insert(SEC_WEBSOCKET_PROTOCOL, loose);
        assert_eq!(token(&headers).as_deref(), Some("toke"));
        assert!(!format!("{:?}", Secret::new("tok")).contains("tok"));
    }
}
