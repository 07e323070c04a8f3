//! Selects which headers pass the proxy.

use std::net::IpAddr;

use http::HeaderValue;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION, EXPECT, Entry, FORWARDED, HOST, HeaderMap, HeaderName,
    LINK, LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFRESH, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;

use crate::auth::connection_tokens;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The limit of a kube-apiserver, less what is added to each request: its target, its method, and [`super::VIA`].
const MAX_HEAD: usize = (1 << 20) - 1024;
const HEADER_OVERHEAD: usize = 32;

/// Hop-by-hop headers. `TE` is dropped too: it asks for trailers, as gRPC does, and the Kubernetes API has none.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Prepares a client's headers for the apiserver: removes hop-by-hop headers, and headers with which a trusted proxy in
/// front of an apiserver would authenticate users.
pub(super) fn strip_request(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    // The HTTP client sets `Host` when the request is sent. The body is sent without waiting for `100 Continue`.
    headers.remove(HOST);
    headers.remove(EXPECT);
    // Over HTTP/2, several lines that say the same are one for the apiserver. Over HTTP/1.1, servers differ.
    if let Some(length) = headers.get(CONTENT_LENGTH).cloned() {
        headers.insert(CONTENT_LENGTH, length);
    }
    remove_prefixed(headers, "x-remote-");
}

/// Removes headers about other senders: requests with our identity come from us.
pub(super) fn strip_forwarded(headers: &mut HeaderMap) {
    headers.remove(FORWARDED);
    headers.remove(X_REAL_IP);
    remove_prefixed(headers, "x-forwarded-");
}

/// Appends the client's address to the `X-Forwarded-For` header that it sent, as Go's reverse proxy does. The apiserver
/// writes it to its audit log. Other headers with the same purpose are only the client's claim, so they are removed.
pub(super) fn say_where_from(headers: &mut HeaderMap, address: Option<IpAddr>) {
    headers.remove(FORWARDED);
    headers.remove(X_REAL_IP);
    let Some(address) = address else { return };
    let said = headers.get_all(X_FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = said.map(str::to_owned).chain([address.to_string()]).collect();
    if let Ok(all) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(X_FORWARDED_FOR, all);
    }
}

/// Prepares the apiserver's headers for the client. `local` returns what a URL of the apiserver is for a client, if it
/// is another one: the server may be below a path, and its address is not ours.
pub(super) fn strip_response(headers: &mut HeaderMap, local: &dyn Fn(&str) -> Option<String>) {
    strip_hop_by_hop(headers);
    for name in [LOCATION, CONTENT_LOCATION] {
        replace(headers, &name, local);
    }
    // `<URL>; rel=next`, several in one header.
    replace(headers, &LINK, &|links| {
        let parts = links.split_inclusive('>').map(|part| {
            let Some((before, url)) = part.strip_suffix('>').and_then(|part| part.rsplit_once('<')) else {
                return part.to_owned();
            };
            format!("{before}<{}>", local(url).as_deref().unwrap_or(url))
        });
        Some(parts.collect())
    });
    replace(headers, &REFRESH, &|refresh| {
        let at = refresh.to_ascii_lowercase().find("url=")? + 4;
        let (before, url) = refresh.split_at(at);
        local(url).map(|url| format!("{before}{url}"))
    });
    // A cookie for the server's path and domain would never come back.
    replace(headers, &SET_COOKIE, &|cookie| {
        let of = |attribute: &str, name: &str| attribute.trim().to_ascii_lowercase().starts_with(name);
        let parts = cookie.split(';').filter(|part| !of(part, "domain=")).map(|part| {
            let path = part.split_once('=').filter(|_| of(part, "path=")).and_then(|(_, path)| local(path.trim()));
            path.map_or_else(|| part.to_owned(), |path| format!(" Path={path}"))
        });
        Some(parts.collect::<Vec<_>>().join(";"))
    });
}

/// Replaces every value of a header that `new` has another one for.
fn replace(headers: &mut HeaderMap, name: &HeaderName, new: &dyn Fn(&str) -> Option<String>) {
    if let Entry::Occupied(mut entry) = headers.entry(name) {
        for value in entry.iter_mut() {
            let replaced = value.to_str().ok().and_then(new).and_then(|text| HeaderValue::try_from(text).ok());
            if let Some(replaced) = replaced {
                *value = replaced;
            }
        }
    }
}

/// Whether a head is no larger than the apiserver takes, counted as HTTP/2 counts it (RFC 9113, 6.5.2). By a larger one,
/// Go's server ends the connection, with the requests of everybody else.
pub(super) fn fits(head: &Parts) -> bool {
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let of = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + HEADER_OVERHEAD;
    target + head.headers.iter().map(of).sum::<usize>() <= MAX_HEAD
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> =
        connection_tokens(headers).filter_map(|token| token.parse().ok()).filter(|name| !says_who(name)).collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Headers that identify the user: `Connection` cannot remove them. Without its impersonation headers, a request would
/// act as its sender. The protocols of a WebSocket may have its token: without them, the request would be anonymous.
fn says_who(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || *name == SEC_WEBSOCKET_PROTOCOL || name.as_str().starts_with("impersonate-")
}

fn remove_prefixed(headers: &mut HeaderMap, prefix: &str) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::apiserver::testing::head_with;

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_a_request_keeps() {
        let mut headers = head_with(&[
            ("host", "localhost"),
            ("connection", "close, X-Mine"),
            ("connection", "keep-alive"),
            ("x-mine", "1"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("proxy-authorization", "x"),
            ("X-Remote-User", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "x"),
            ("authorization", "Bearer t"),
            ("user-agent", "kubectl"),
            ("accept-encoding", "gzip"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
            ("x-forwarded-for", "1.2.3.4"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
            ("content-length", "0"),
            ("content-length", "00"),
        ]);
        strip_request(&mut headers);
        let kept = ["accept-encoding", "authorization", "content-length", "user-agent", "x-stream-protocol-version"];
        let of_others = ["forwarded", "x-forwarded-for", "x-real-ip"];
        let mut all = [&kept[..], &of_others].concat();
        all.sort_unstable();
        assert_eq!(names(&headers), all);
        assert_eq!(headers.get_all("content-length").iter().collect::<Vec<_>>(), ["0"]);
        assert_eq!(headers.get_all("x-stream-protocol-version").iter().count(), 2);
        strip_forwarded(&mut headers);
        assert_eq!(names(&headers), kept);
    }

    #[test]
    fn where_it_came_from_is_added_to_what_the_client_says() {
        let said = |entries: &[(&str, &str)], address: Option<&str>| {
            let mut headers = head_with(entries);
            say_where_from(&mut headers, address.map(|address| address.parse().unwrap()));
            assert!(headers.len() <= 1, "{headers:?}");
            headers.get("x-forwarded-for").map(|value| value.to_str().unwrap().to_owned())
        };
        let claims = [("x-real-ip", "9.9.9.9"), ("forwarded", "for=9.9.9.9")];
        assert_eq!(said(&claims, Some("10.0.0.1")).as_deref(), Some("10.0.0.1"));
        let more = [&claims[..], &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")]].concat();
        assert_eq!(said(&more, Some("::1")).as_deref(), Some("1.1.1.1, 2.2.2.2, 3.3.3.3, ::1"));
        assert_eq!(said(&claims, None), None, "a Unix socket has no address");
    }

    #[test]
    fn urls_of_the_apiserver_become_ours() {
        let local = |url: &str| url.strip_prefix("/k8s/c1").map(str::to_owned);
        for (name, value, ours) in [
            ("location", "/k8s/c1/openapi/v3/api/v1?hash=A", "/openapi/v3/api/v1?hash=A"),
            ("location", "/login", "/login"),
            ("content-location", "/k8s/c1/api", "/api"),
            (
                "link",
                "</k8s/c1/a>; rel=next, </b>; rel=prev, </k8s/c1/c>; rel=last",
                "</a>; rel=next, </b>; rel=prev, </c>; rel=last",
            ),
            ("refresh", "0; URL=/k8s/c1/a", "0; URL=/a"),
            (
                "set-cookie",
                "a=/k8s/c1/x; Path=/k8s/c1/api; Domain=rancher.example; Secure",
                "a=/k8s/c1/x; Path=/api; Secure",
            ),
            ("set-cookie", "a=b; Path=/", "a=b; Path=/"),
            ("x-other", "/k8s/c1/a", "/k8s/c1/a"),
        ] {
            let mut headers = head_with(&[(name, value)]);
            strip_response(&mut headers, &local);
            assert_eq!(headers[name], ours, "{name}");
        }
        let mut headers = head_with(&[("set-cookie", "a=1; path=/k8s/c1/"), ("set-cookie", "b=1; path=/k8s/c1/")]);
        strip_response(&mut headers, &local);
        assert_eq!(headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1; Path=/", "b=1; Path=/"]);
    }

    #[test]
    fn what_an_answer_keeps() {
        let lines = [("connection", "close, X-Mine"), ("x-mine", "1"), ("keep-alive", "1"), ("upgrade", "h2c")];
        let mut headers = head_with(&[&lines[..], &[("content-type", "text/plain"), ("x-other", "1")]].concat());
        strip_response(&mut headers, &|_| None);
        assert_eq!(names(&headers), ["content-type", "x-other"]);
    }

    #[test]
    fn a_head_is_as_large_as_the_apiserver_takes() {
        // Over HTTP/1.1, a header is a few bytes. Over HTTP/2, each counts for 32 more.
        for count in [1, 2000] {
            let of = |more: usize| {
                let mut request = http::Request::get("/api").body(()).unwrap();
                for _ in 1..count {
                    request.headers_mut().append("a", HeaderValue::from_static("x"));
                }
                let rest = MAX_HEAD - "/api".len() - (count - 1) * (2 + HEADER_OVERHEAD) - HEADER_OVERHEAD;
                request.headers_mut().append("b", "x".repeat(rest - "b".len() + more).parse().unwrap());
                fits(&request.into_parts().0)
            };
            assert_eq!((of(0), of(1)), (true, false), "{count}");
        }
    }

    #[test]
    fn who_it_is_stays() {
        let mut headers = head_with(&[
            ("connection", "authorization, Impersonate-User, x-remote-user, accept, Sec-WebSocket-Protocol"),
            ("authorization", "Bearer t"),
            ("impersonate-user", "somebody"),
            ("x-remote-user", "admin"),
            ("accept", "*/*"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA, v4"),
        ]);
        strip_request(&mut headers);
        assert_eq!(names(&headers), ["authorization", "impersonate-user", "sec-websocket-protocol"]);
    }
}
