//! The opening handshake of a WebSocket (RFC 6455, 4.2), as the apiserver's library implements it. This code accepts
//! only what that library certainly accepts. All other handshakes are forwarded, so that the apiserver refuses them
//! with its own messages.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Response, StatusCode, Version};

use super::body::{Body, full};
use crate::codec::Slices;

/// A handshake that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The prefix of a protocol that carries a bearer token.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

// === impl Handshake ===

impl Handshake {
    /// `None` if the request is not a handshake, or if the apiserver might refuse it. The apiserver requires an
    /// `Origin` from every client, and does not choose between protocols.
    pub(super) fn of(request: &Parts) -> Option<Self> {
        let headers = &request.headers;
        let has_body = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        if request.version != Version::HTTP_11 || request.uri.authority().is_some() || has_body {
            return None;
        }
        let upgrades = one(headers, &UPGRADE)?.eq_ignore_ascii_case("websocket")
            && one(headers, &CONNECTION)?.to_ascii_lowercase().contains("upgrade")
            && one(headers, &SEC_WEBSOCKET_VERSION)? == "13";
        let origin = one(headers, &ORIGIN)?;
        let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
        if !upgrades || !is_plain_host(origin) || !is_plain_host(one(headers, &HOST)?) {
            return None;
        }
        let protocol = match headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
            false => None,
            true => Some(protocol(one(headers, &SEC_WEBSOCKET_PROTOCOL)?, headers.contains_key(AUTHORIZATION))?),
        };
        let key = one(headers, &SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty())?;
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
        Some(Self {
            accept: HeaderValue::from_str(&STANDARD.encode(hash)).ok()?,
            protocol: protocol.map(HeaderValue::from_str).transpose().ok()?,
        })
    }

    /// The answer that accepts the handshake. The apiserver writes it directly to the connection, so it has none of the
    /// headers that other answers have.
    pub(in crate::http) fn accept(&self) -> Response<Body> {
        let mut response = Response::new(full(Slices::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        if let Some(protocol) = &self.protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
        }
        response
    }
}

/// The subprotocol, if exactly one is offered. A bearer token among the protocols is removed if the client has no other
/// credentials.
fn protocol(offered: &str, otherwise_known: bool) -> Option<&str> {
    let (tokens, others): (Vec<_>, Vec<_>) =
        offered.split(',').map(str::trim).partition(|offered| offered.starts_with(BEARER));
    let [only] = others[..] else { return None };
    (!only.is_empty() && tokens.len() <= usize::from(!otherwise_known)).then_some(only)
}

/// The value of a header that occurs exactly once.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok(),
        _ => None,
    }
}

/// Whether this is a name or an address, possibly with a port, that every URL parser reads in the same way.
fn is_plain_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    host.bytes().all(plain) && (authority.host() == host || authority.port_u16().is_some())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const GOOD: [(&str, &str); 6] = [
        ("host", "127.0.0.1:8001"),
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("origin", "http://127.0.0.1:8001"),
    ];

    fn of<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Handshake> {
        let request = headers.into_iter().fold(Request::get("/"), |request, (name, value)| request.header(name, value));
        Handshake::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn what_is_accepted() {
        let answer = of(GOOD).unwrap().accept();
        assert_eq!(answer.status(), 101);
        // RFC 6455, 1.3.
        assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            (&answer.headers()[UPGRADE], &answer.headers()[CONNECTION]),
            (&"websocket".parse().unwrap(), &"Upgrade".parse().unwrap())
        );
        assert_eq!(answer.headers().len(), 3);
        let answer = of(GOOD.into_iter().chain([("sec-websocket-protocol", " x ")])).unwrap().accept();
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "x");
        let token = "base64url.bearer.authorization.k8s.io.eA, x";
        let answer = of(GOOD.into_iter().chain([("sec-websocket-protocol", token)])).unwrap().accept();
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "x");
        let twice = [("sec-websocket-protocol", token), ("authorization", "Bearer x")];
        assert_eq!(of(GOOD.into_iter().chain(twice)), None);
    }

    #[test]
    fn what_is_left_to_the_apiserver() {
        for (name, value) in [
            ("upgrade", "h2c"),
            ("connection", "close"),
            ("sec-websocket-version", "8"),
            ("sec-websocket-key", ""),
            ("origin", "null"),
            ("origin", "http://a b"),
            ("origin", "http://a/b"),
            ("origin", "http://a:b"),
            ("origin", "file://"),
            ("host", "a@b"),
        ] {
            let others = GOOD.into_iter().filter(|(given, _)| *given != name);
            assert_eq!(of(others.chain([(name, value)])), None, "{name}: {value}");
        }
        for (name, _) in GOOD {
            assert_eq!(of(GOOD.into_iter().filter(|(given, _)| *given != name)), None, "no {name}");
        }
        for header in [
            ("sec-websocket-protocol", "a, b"),
            ("sec-websocket-protocol", ""),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA"),
            ("origin", "http://127.0.0.1:8001"),
            ("content-length", "3"),
        ] {
            assert_eq!(of(GOOD.into_iter().chain([header])), None, "{header:?}");
        }
    }
}
