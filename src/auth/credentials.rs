//! What of a request's head decides who asks, for as long as a stream is open.

use base64::Engine as _;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

use super::authenticator::MAX_TOKEN;
use super::bearer::{self, BASE64, TOKEN_PROTOCOL};
use super::impersonation::{self, Impersonation, impersonates};

/// The approximate memory of a header in addition to its text, in bytes.
const HEADER: usize = 128;

/// The headers from which every decision about who asks is the same as from the whole head: whether there is a token, which
/// one, whether the head can be read in two ways, and whether somebody is impersonated, and who.
///
/// All of the head counts, however long it is. The values are copies: a header is a slice of the buffer that the whole
/// head was read into, so one kept header would keep the whole head. What is ignored everywhere, such as the text after a
/// token, is left out.
pub fn credentials(headers: &HeaderMap, may_impersonate: bool) -> HeaderMap {
    let mut kept = HeaderMap::new();
    let shown = bearer::authorization_token(headers);
    if headers.contains_key(AUTHORIZATION) {
        // An empty value is one of another scheme.
        kept.append(AUTHORIZATION, shown.as_deref().map_or(EMPTY, |token| value(b"Bearer ", cut(token))));
    }
    if bearer::is_ambiguous(headers) {
        kept.append(AUTHORIZATION, EMPTY);
    }
    if let Some(token) = bearer::protocol_token(headers).filter(|_| shown.is_none()) {
        kept.append(CONNECTION, HeaderValue::from_static("upgrade"));
        kept.append(UPGRADE, HeaderValue::from_static("websocket"));
        let encoded = BASE64.encode(cut(&token));
        kept.append(SEC_WEBSOCKET_PROTOCOL, value(TOKEN_PROTOCOL.as_bytes(), encoded.as_bytes()));
        kept.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v4"));
    }
    if !impersonates(headers) {
        return kept;
    }
    match may_impersonate.then(|| Impersonation::of(headers)).flatten() {
        Some(_) => {
            for (name, text) in headers.iter().filter(|(name, _)| impersonation::impersonating(name)) {
                kept.append(name.clone(), value(b"", text.as_bytes()));
            }
        }
        // Nobody but the apiserver can say who that is: neither from these headers nor from an empty one.
        None => _ = kept.insert(HeaderName::from_static(impersonation::USER), EMPTY),
    }
    kept
}

/// The approximate number of bytes on the heap.
pub fn size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum()
}

const EMPTY: HeaderValue = HeaderValue::from_static("");

/// A token that is too long to be reviewed is too long without its end, too, and nothing else is ever done with it.
fn cut(token: &str) -> &[u8] {
    let end = (MAX_TOKEN + 1..token.len()).find(|end| token.is_char_boundary(*end));
    &token.as_bytes()[..end.unwrap_or(token.len())]
}

fn value(prefix: &[u8], text: &[u8]) -> HeaderValue {
    // The text was the value of a header. Otherwise no token is left, which allows nothing.
    HeaderValue::from_bytes(&[prefix, text].concat()).unwrap_or(EMPTY)
}

#[cfg(test)]
mod tests {
    use super::super::bearer::{is_ambiguous, is_of_another_scheme, token};
    use super::*;

    fn map(lines: &[(&str, Vec<u8>)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    /// Everything that is decided by a head.
    fn decided(headers: &HeaderMap) -> impl PartialEq + std::fmt::Debug {
        let too_long = token(headers).is_some_and(|token| token.len() > MAX_TOKEN);
        let token = token(headers).filter(|_| !too_long).map(std::borrow::Cow::into_owned);
        let impersonation = Impersonation::of(headers);
        (token, too_long, is_ambiguous(headers), is_of_another_scheme(headers), impersonates(headers), impersonation)
    }

    #[test]
    fn every_decision_is_the_same_as_from_the_whole_head() {
        let socket = [("connection", &b"upgrade"[..]), ("upgrade", b"websocket")];
        let protocols = b"v4, base64url.bearer.authorization.k8s.io.dG9rZX";
        let long = [b"Bearer ", &b"t".repeat(MAX_TOKEN + 1)[..]].concat();
        let longest = [b"Bearer ", &b"t".repeat(MAX_TOKEN)[..]].concat();
        let padded = [b"Bearer t ", &b"x".repeat(700_000)[..]].concat();
        let all: &[&[(&str, &[u8])]] = &[
            &[],
            &[("authorization", b"Bearer t")],
            &[("authorization", b"bearer  t")],
            &[("authorization", b" Bearer t\xc3\xa9 \xff")],
            &[("authorization", b"Bearer \xff")],
            &[("authorization", b"Basic t")],
            &[("authorization", b"")],
            &[("authorization", b"Bearer t"), ("authorization", b"Bearer u")],
            &[("authorization", b"Basic t"), ("authorization", b"Bearer u")],
            &[("authorization", &long)],
            &[("authorization", &longest)],
            &[("authorization", &padded)],
            &[socket[0], socket[1], ("sec-websocket-protocol", protocols)],
            &[socket[0], socket[1], ("sec-websocket-protocol", protocols), ("authorization", b"Bearer t")],
            &[socket[0], socket[1], ("sec-websocket-protocol", protocols), ("authorization", b"Basic t")],
            &[socket[1], ("sec-websocket-protocol", protocols)],
            &[("impersonate-user", b"jane"), ("impersonate-group", b"a"), ("impersonate-group", b"b")],
            &[("impersonate-user", b"jane"), ("impersonate-extra-a%2fb", b"x"), ("impersonate-uid", b"1")],
            &[("impersonate-user", b"jane"), ("impersonate-user", b"joe")],
            &[("impersonate-group", b"a")],
            &[("impersonate-user", b"\xff")],
            &[("impersonate-new-kind", b"x"), ("authorization", b"Bearer t")],
        ];
        for lines in all {
            // The rest of the head stands before, behind and between, and there is more of it than anybody would read.
            for filler in [0, 1, 62, 63, 64, 65, 2000] {
                let filler = (0..filler).map(|n| (["grpc-x", "grpc-y-bin", "x-remote-user"][n % 3], vec![b'x'; 300]));
                let lines = lines.iter().map(|(name, value)| (*name, value.to_vec()));
                let before = map(&filler.clone().chain(lines.clone()).collect::<Vec<_>>());
                let between = map(&lines.flat_map(|line| filler.clone().chain([line])).collect::<Vec<_>>());
                for whole in [before, between] {
                    let kept = credentials(&whole, true);
                    let names: Vec<_> = whole.keys().collect();
                    assert_eq!(decided(&kept), decided(&whole), "{names:?}");
                    let text: usize = kept.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum();
                    assert!((text..MAX_TOKEN + 3000).contains(&size(&kept)), "{names:?}");
                    let refused = credentials(&whole, false);
                    assert_eq!(impersonates(&refused), impersonates(&whole), "{names:?}");
                    assert_eq!(token(&refused).is_some(), token(&whole).is_some(), "{names:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_kept_is_a_copy() {
        let head = bytes::Bytes::from([&b"Bearer t"[..], &[b'x'; 1000]].concat());
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_maybe_shared(head.slice(..8)).unwrap());
        headers.insert("impersonate-user", HeaderValue::from_maybe_shared(head.slice(8..20)).unwrap());
        let kept = credentials(&headers, true);
        drop(headers);
        assert_eq!((kept[AUTHORIZATION].as_bytes(), kept.len()), (&b"Bearer t"[..], 2));
        assert!(head.is_unique(), "nothing else holds the head");
    }
}
