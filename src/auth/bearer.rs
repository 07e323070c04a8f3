//! Where a client's token stands in its request.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};

/// How a token travels where a WebSocket client cannot set headers.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A token. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// The token the apiserver would take: of the first `Authorization` line, if its scheme is `Bearer` in any case and
/// exactly one blank stands before the token; of a WebSocket's protocols otherwise.
pub fn token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    authorization_token(headers).map(Cow::Borrowed).or_else(|| protocol_token(headers).map(Cow::Owned))
}

/// Whether the request says `Authorization` in a way that two servers could read differently.
pub fn is_ambiguous(headers: &HeaderMap) -> bool {
    headers.get_all(AUTHORIZATION).iter().count() > 1
}

fn authorization_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn protocol_token(headers: &HeaderMap) -> Option<String> {
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let encoded =
        protocols.flat_map(|value| value.split(',')).find_map(|one| one.trim().strip_prefix(TOKEN_PROTOCOL))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

// === impl Secret ===

impl Secret {
    pub fn new(token: &str) -> Self {
        Self(token.into())
    }

    pub fn expose(&self) -> &str {
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
        for none in [&[][..], &[""], &["Bearer"], &["Bearer "], &["Bearer  t"], &["Basic t"], &["Bearer\tt"], &["é"]] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_websocket_may_carry_it_among_its_protocols() {
        let mut headers = HeaderMap::new();
        let offered = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r";
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        assert_eq!(token(&headers).as_deref(), Some("tok"));
        assert!(!format!("{:?}", Secret::new("tok")).contains("tok"));
    }
}
