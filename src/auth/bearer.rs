//! Finds a client's token in its request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// The protocol prefix that carries a token if a WebSocket client cannot set headers.
pub(super) const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Decodes as Go does: the bits after the last byte are ignored.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// A token. Its debug output does not contain it. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(Arc<str>);

/// The token that the apiserver would use. It is taken from the first `Authorization` line, if its scheme is `Bearer`
/// in any case and exactly one space precedes the token. Otherwise it is taken from the protocols of a WebSocket.
/// Values that are not valid text are parsed too, as in the apiserver, because such bytes may follow a valid token.
pub fn token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    authorization_token(headers).or_else(|| protocol_token(headers).map(Cow::Owned))
}

/// Whether the request has exactly one `Authorization` line, that line has a token, and there is no other. The apiserver refuses
/// such a request if the token is not valid, even where it answers requests without a token.
pub fn shows_token(headers: &HeaderMap) -> bool {
    authorization_token(headers).is_some() && !is_ambiguous(headers)
}

/// Whether the client asks for another protocol. Only then is `Upgrade` forwarded.
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && connection_tokens(headers).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// What `Connection` names.
pub fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Whether the request has credentials that two servers could read differently: several `Authorization` lines, or one beside a
/// token among the protocols of a WebSocket. The apiserver tries that token if the first one is not valid there.
pub(super) fn is_ambiguous(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(AUTHORIZATION).iter().count();
    lines > 1 || lines == 1 && has_protocol_token(headers)
}

/// Whether a token may be among the protocols of a WebSocket, for any reader.
pub fn has_protocol_token(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lines.any(|line| memchr::memmem::find(line.as_bytes(), TOKEN_PROTOCOL.as_bytes()).is_some())
}

/// Whether the request has an `Authorization` header that is not a bearer token.
pub(super) fn is_of_another_scheme(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) && authorization_token(headers).is_none()
}

pub(super) fn authorization_token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
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

/// The token among the protocols of a WebSocket. The apiserver must use it as well: a request whose token the apiserver
/// does not see is anonymous there. So the rules are exactly the apiserver's: the first `Upgrade` is `websocket`, and
/// there are exactly one token and at least one other protocol.
pub(super) fn protocol_token(headers: &HeaderMap) -> Option<String> {
    if !wants_upgrade(headers) || !headers.get(UPGRADE)?.as_bytes().eq_ignore_ascii_case(b"websocket") {
        return None;
    }
    let lines: Vec<Cow<'_, str>> =
        headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let protocols = lines.iter().flat_map(|line| line.split(',')).map(str::trim);
    let (tokens, others): (Vec<_>, Vec<_>) = protocols.partition(|protocol| protocol.starts_with(TOKEN_PROTOCOL));
    let ([token], false) = (&tokens[..], others.is_empty()) else { return None };
    let encoded = token.strip_prefix(TOKEN_PROTOCOL)?;
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
    use super::*;
    use crate::apiserver::testing::head_with;

    const UPGRADE: [(&str, &str); 2] = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
    const TOKEN: &str = "base64url.bearer.authorization.k8s.io.dG9r";

    #[test]
    fn a_websocket_may_carry_it_among_its_protocols() {
        let of = |upgrade: &[(&'static str, &'static str)], lines: &[&'static str]| {
            let lines = lines.iter().map(|line| ("sec-websocket-protocol", *line));
            token(&head_with(&upgrade.iter().copied().chain(lines).collect::<Vec<_>>())).map(Cow::into_owned)
        };
        let both = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r";
        assert_eq!(of(&UPGRADE, &[both]).as_deref(), Some("tok"));
        assert_eq!(of(&UPGRADE, &[TOKEN, "v4"]).as_deref(), Some("tok"));
        // Go ignores the bits after the last byte.
        assert_eq!(of(&UPGRADE, &["base64url.bearer.authorization.k8s.io.dG9rZX, v4"]).as_deref(), Some("toke"));
        // The apiserver reads the protocols of a WebSocket alone.
        for none in [
            &[][..],
            &[("upgrade", "websocket")],
            &[("connection", "upgrade")],
            &[("connection", "upgrade"), ("upgrade", "x")],
            &[("connection", "upgrade"), ("upgrade", "x"), ("upgrade", "websocket")],
            &[("connection", "upgrade"), ("upgrade", "websocket, x")],
            &[("connection", "close"), ("upgrade", "websocket")],
        ] {
            assert_eq!(of(none, &[both]), None, "{none:?}");
        }
        // It refuses these, or takes their sender for anonymous.
        for none in [
            &[TOKEN][..],
            &[both, TOKEN],
            &["base64url.bearer.authorization.k8s.io., v4"],
            &["base64url.bearer.authorization.k8s.io.dG9r=, v4"],
            &["base64url.bearer.authorization.k8s.io.dG+r, v4"],
            &["base64url.bearer.authorization.k8s.io._w, v4"],
            &["Base64url.bearer.authorization.k8s.io.dG9r, v4"],
        ] {
            assert_eq!(of(&UPGRADE, none), None, "{none:?}");
        }
        assert!(!format!("{:?}", Secret::new("tok")).contains("tok"));
    }

    #[test]
    fn upgrades_need_both_headers() {
        assert!(wants_upgrade(&head_with(&UPGRADE)));
        assert!(!wants_upgrade(&head_with(&[("connection", "keep-alive"), ("upgrade", "websocket")])));
        assert!(!wants_upgrade(&head_with(&[("connection", "upgrade")])));
    }

    #[test]
    fn a_token_that_is_shown_is_in_the_only_authorization_line() {
        let bearer = ("authorization", "Bearer t");
        assert!(shows_token(&head_with(&[bearer])));
        for other in [&[][..], &[("authorization", "Basic t")], &[("authorization", "Bearer  t")], &[bearer, bearer]] {
            assert!(!shows_token(&head_with(other)), "{other:?}");
        }
        let socket =
            head_with(&[&UPGRADE[..], &[("sec-websocket-protocol", TOKEN), ("sec-websocket-protocol", "v4")]].concat());
        assert!(token(&socket).is_some() && !shows_token(&socket));
    }
}
