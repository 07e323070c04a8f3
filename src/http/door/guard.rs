//! Decides which clients may use an unauthenticated loopback listener: programs on this machine may, web pages may not.
//!
//! A page in a browser can reach loopback addresses in two ways. It can point its own DNS name at a loopback address
//! (DNS rebinding); the `Host` header reveals that. Or it can send a cross-origin request; `Origin` and
//! `Sec-Fetch-Site` reveal that.

use std::net::IpAddr;

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::request::Parts;
use http::uri::Authority;

use super::config::ListenAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused before anything else is checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    #[error("the request names no host, or more than one")]
    NoHost,
    #[error("host {0:?} is not a name of this listener")]
    Host(String),
    #[error("cross-origin requests of browsers are refused")]
    CrossOrigin,
}

/// The host names that a listener accepts.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    names: Vec<String>,
}

// === impl Guard ===

impl Guard {
    /// `names` are accepted in addition to `localhost` and loopback addresses.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Checks a request. A browser cannot reach a Unix socket, so everything is accepted there.
    pub fn check(&self, request: &Parts, listener: &ListenAddr) -> Result<(), GuardError> {
        let address = match listener {
            ListenAddr::Http(address) | ListenAddr::Https(address) => Some(address),
            // Any name is accepted: a page cannot make a browser send the token of another user.
            ListenAddr::Delegated(_) => None,
            ListenAddr::Unix(_) => return Ok(()),
        };
        let named = host(request)?;
        if let (Some(named), Some(address)) = (&named, address)
            && !self.is_ours(named.host(), address.ip())
        {
            return Err(GuardError::Host(named.host().to_owned()));
        }
        if is_cross_site(&request.headers) || !self.is_same_origin(&request.headers, named.as_ref()) {
            return Err(GuardError::CrossOrigin);
        }
        Ok(())
    }

    fn is_ours(&self, host: &str, listening: IpAddr) -> bool {
        // DNS rebinding does not work with an IP address in the URL, so any loopback address is accepted.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return ip.is_loopback() || ip == listening || self.names.iter().any(|name| name == bare);
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        host.eq_ignore_ascii_case("localhost") || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// Programs send no `Origin`, or the origin of the server that they connect to (WebSocket libraries).
    fn is_same_origin(&self, headers: &HeaderMap, named: Option<&Authority>) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next(), named) {
            (None, ..) => true,
            (Some(origin), None, Some(named)) => same_host_and_port(origin, named),
            _ => false,
        }
    }
}

/// The host of a request: its `:authority` or absolute target if there is one, and otherwise the `Host` header (RFC
/// 9112, 3.2.2). An HTTP/1.0 request may have no host.
fn host(request: &Parts) -> Result<Option<Authority>, GuardError> {
    let mut headers = request.headers.get_all(HOST).iter();
    let (header, None) = (headers.next(), headers.next()) else { return Err(GuardError::NoHost) };
    let header = header.map(|value| Authority::try_from(value.as_bytes()));
    let header = header.transpose().map_err(|_| GuardError::NoHost)?;
    match request.uri.authority().cloned().or(header) {
        Some(named) if named.as_str().contains('@') => Err(GuardError::NoHost),
        None if request.version > http::Version::HTTP_10 => Err(GuardError::NoHost),
        named => Ok(named),
    }
}

/// Browsers send `Sec-Fetch-Site` even where they send no `Origin` (images, links, forms).
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none")
}

fn same_host_and_port(origin: &HeaderValue, named: &Authority) -> bool {
    let Some((scheme, authority)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let default = match scheme {
        "http" | "ws" => 80,
        "https" | "wss" => 443,
        _ => return false,
    };
    authority.host().eq_ignore_ascii_case(named.host())
        && authority.port_u16().unwrap_or(default) == named.port_u16().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(headers: &[(&str, &str)]) -> Result<(), GuardError> {
        check_target("/api", headers, "http://127.0.0.1:8001")
    }

    fn check_target(target: &str, headers: &[(&str, &str)], listener: &str) -> Result<(), GuardError> {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let guard = Guard::new(["informerd.local".to_owned(), "10.1.2.3".to_owned()]);
        guard.check(&request.body(()).unwrap().into_parts().0, &listener.parse().unwrap())
    }

    #[test]
    fn hosts() {
        for host in [
            "localhost",
            "LOCALHOST:8001",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:9",
            "127.8.8.8",
            "[::1]",
            "[::1]:8001",
            "informerd.local:443",
            "Informerd.LOCAL",
            "10.1.2.3:80",
        ] {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "notlocalhost"] {
            assert_eq!(check(&[("host", host)]).map_err(|e| matches!(e, GuardError::Host(_))), Err(true), "{host}");
        }
        assert_eq!(check(&[]), Err(GuardError::NoHost));
        assert_eq!(check(&[("host", "localhost"), ("host", "localhost")]), Err(GuardError::NoHost));
        assert_eq!(check(&[("host", "local host")]), Err(GuardError::NoHost));
        assert!(check(&[("host", "user@localhost")]).is_err());
    }

    #[test]
    fn an_absolute_target_counts_and_not_the_header_beside_it() {
        let listener = "http://127.0.0.1:8001";
        assert_eq!(check_target("http://localhost/api", &[], listener), Ok(()));
        assert_eq!(check_target("http://localhost/api", &[("host", "LocalHost")], listener), Ok(()));
        assert_eq!(check_target("http://localhost/", &[("host", "evil.example")], listener), Ok(()));
        for headers in [&[][..], &[("host", "localhost")]] {
            assert!(matches!(check_target("http://evil.example/", headers, listener), Err(GuardError::Host(_))));
        }
        assert_eq!(check_target("http://user@localhost/", &[("host", "localhost")], listener), Err(GuardError::NoHost));
    }

    #[test]
    fn a_unix_socket_takes_any_name() {
        assert_eq!(check_target("/", &[("host", "x"), ("origin", "http://y")], "unix:///run/s"), Ok(()));
    }

    #[test]
    fn origins() {
        let ours = ("host", "127.0.0.1:8001");
        for origin in ["http://127.0.0.1:8001", "https://127.0.0.1:8001", "ws://127.0.0.1:8001"] {
            assert_eq!(check(&[ours, ("origin", origin)]), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:8002",
            "http://localhost:8001",
            "file://127.0.0.1:8001",
            "127.0.0.1:8001",
        ] {
            assert_eq!(check(&[ours, ("origin", origin)]), Err(GuardError::CrossOrigin), "{origin}");
        }
        assert_eq!(check(&[("host", "localhost"), ("origin", "http://localhost")]), Ok(()));
        assert_eq!(check(&[("host", "localhost"), ("origin", "http://localhost:80")]), Ok(()));
        let twice = ("origin", "http://127.0.0.1:8001");
        assert_eq!(check(&[ours, twice, twice]), Err(GuardError::CrossOrigin));
    }

    #[test]
    fn requests_of_pages_without_an_origin_header() {
        for (site, allowed) in
            [("same-origin", true), ("none", true), ("cross-site", false), ("same-site", false), ("x", false)]
        {
            assert_eq!(check(&[("host", "localhost"), ("sec-fetch-site", site)]).is_ok(), allowed, "{site}");
        }
    }
}
