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
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::super::bearer::{is_ambiguous, is_of_another_scheme, token};
    use super::*;

    /// A line of a head, as it is sent.
    type Line = (String, Vec<u8>);

    /// Lines that decide who asks, or seem to. Some decide only together.
    fn deciding() -> impl Strategy<Value = Vec<Line>> {
        let socket = |more: &[(&'static str, &[u8])]| -> Vec<(&str, Vec<u8>)> {
            let upgrade = [("connection", &b"upgrade"[..]), ("upgrade", b"websocket")];
            upgrade.iter().chain(more).map(|(name, value)| (*name, value.to_vec())).collect()
        };
        let protocols = &b"v4, base64url.bearer.authorization.k8s.io.dG9rZX"[..];
        let bearer = |rest: &[u8]| vec![("authorization", [b"Bearer ", rest].concat())];
        let mut all = vec![
            bearer(&b"t".repeat(MAX_TOKEN)),
            bearer(&b"t".repeat(MAX_TOKEN + 1)),
            bearer(&[&b"t "[..], &b"x".repeat(70_000)].concat()),
            socket(&[("sec-websocket-protocol", protocols)]),
            socket(&[("sec-websocket-protocol", protocols), ("authorization", b"Basic t")]),
        ];
        let single: &[(&str, &[u8])] = &[
            ("authorization", b"Bearer t"),
            ("authorization", b"bEARER  t"),
            ("authorization", b" Bearer t\xc3\xa9 \xff"),
            ("authorization", b"Bearer \xff"),
            ("authorization", b"  Bearer t rest  "),
            ("authorization", b"Bearer\tt"),
            ("authorization", b"Bearer "),
            ("authorization", b"Bearer"),
            ("authorization", b"Basic t"),
            ("authorization", b""),
            ("impersonate-user", b"jane"),
            ("impersonate-user", b"joe"),
            ("impersonate-user", b""),
            ("impersonate-user", b"\xff"),
            ("impersonate-user", b"system:node:n"),
            ("impersonate-group", b"a"),
            ("impersonate-group", b"system:masters"),
            ("impersonate-uid", b"1"),
            ("impersonate-extra-a%2fb", b"x"),
            ("impersonate-new-kind", b"x"),
            ("sec-websocket-protocol", protocols),
            ("upgrade", b"websocket"),
            ("x-remote-user", b"admin"),
            ("x-remote-group", b"system:masters"),
            ("proxy-authorization", b"Bearer u"),
            ("grpc-metadata-authorization", b"Bearer u"),
            ("authorization-bin", b"QmVhcmVyIHU"),
        ];
        all.extend(single.iter().map(|(name, value)| vec![(*name, value.to_vec())]));
        let line = |upper: u64, (name, value): &(&str, Vec<u8>)| {
            let cased = |(at, c): (usize, char)| if upper >> at & 1 == 1 { c.to_ascii_uppercase() } else { c };
            (name.char_indices().map(cased).collect(), value.clone())
        };
        let some = (select(all), any::<u64>())
            .prop_map(move |(lines, upper)| lines.iter().map(|of| line(upper, of)).collect());
        proptest::collection::vec(some, 0..6).prop_map(|groups: Vec<Vec<Line>>| groups.concat())
    }

    /// A head with the lines anywhere among up to hundreds of others.
    fn head(lines: &[Line], others: usize, places: &[Index]) -> HeaderMap {
        let mut all: Vec<Line> =
            (0..others).map(|n| (["grpc-x", "grpc-y-bin", "x-remote-user"][n % 3].into(), vec![b'x'; 300])).collect();
        let mut places: Vec<_> = lines.iter().enumerate().map(|(at, _)| places[at].index(others + 1)).collect();
        places.sort_unstable();
        for (line, place) in lines.iter().zip(places).rev() {
            all.insert(place, line.clone());
        }
        let header = |(name, value): &Line| (name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in all.iter().map(header) {
            let name: HeaderName = name;
            headers.append(name, value);
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

    proptest! {
        /// The apiserver reads the first line of a name, all groups and extras, and no other headers. Nobody is taken for
        /// whom it would not take them for.
        #[test]
        fn every_decision_is_the_same_as_from_the_whole_head_and_the_apiservers(
            lines in deciding(), others in 0..400_usize, places in proptest::collection::vec(any::<Index>(), 24),
        ) {
            let whole = head(&lines, others, &places);
            let values = |name: &str| -> Vec<&[u8]> {
                let named = lines.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
                named.map(|(_, value)| &value[..]).collect()
            };
            let text = |value: &&[u8]| String::from_utf8_lossy(value).into_owned();
            let shown = values("authorization");
            if let Some(first) = shown.first().map(text) {
                let words: Vec<_> = first.trim().split(' ').collect();
                let is_bearer = words.len() > 1 && words[0].eq_ignore_ascii_case("bearer") && !words[1].is_empty();
                let found = bearer::authorization_token(&whole);
                prop_assert_eq!(found.as_deref(), is_bearer.then(|| words[1]));
            }
            let has_another = shown.len() > 1 || values("sec-websocket-protocol").iter().any(|line| text(line).contains(TOKEN_PROTOCOL));
            prop_assert_eq!(is_ambiguous(&whole), !shown.is_empty() && has_another);
            let is_impersonating = |(name, _): &Line| name.to_ascii_lowercase().starts_with("impersonate-");
            prop_assert_eq!(impersonates(&whole), lines.iter().any(is_impersonating));
            if let Some(Impersonation { user, accesses }) = Impersonation::of(&whole) {
                let [users, uids, groups] = ["user", "uid", "group"].map(|of| values(&format!("impersonate-{of}")));
                prop_assert_eq!(users.iter().map(text).collect::<Vec<_>>(), [user.username.clone()]);
                prop_assert_eq!(uids.iter().map(text).collect::<Vec<_>>().concat(), user.uid.clone());
                prop_assert_eq!(&user.groups[..groups.len()], groups.iter().map(text).collect::<Vec<_>>());
                prop_assert!(user.groups[groups.len()..].iter().all(|group| group == "system:authenticated"));
                prop_assert_eq!(accesses.len(), lines.iter().filter(|line| is_impersonating(line)).count());
            }
            let kept = credentials(&whole, true);
            prop_assert_eq!(decided(&kept), decided(&whole));
            let text: usize = kept.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum();
            prop_assert!((text..MAX_TOKEN + 3000).contains(&size(&kept)));
            let refused = credentials(&whole, false);
            prop_assert_eq!(impersonates(&refused), impersonates(&whole));
            prop_assert_eq!(token(&refused).is_some(), token(&whole).is_some());
        }
    }
}
