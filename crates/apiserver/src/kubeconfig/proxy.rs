//! Which proxy leads to a server, by the rules of Go's `net/http` and `golang.org/x/net/http/httpproxy`.

use std::net::IpAddr;

use http::Uri;

/// An entry of `NO_PROXY`.
enum Exempt {
    All,
    Network(IpAddr, u32),
    /// An address and its port; an empty port is any.
    Address(IpAddr, String),
    /// `.example.com`, whether `example.com` itself is meant too, and the port.
    Domain(String, bool, String),
}

/// The URL of a `proxy-url`.
///
/// # Errors
/// It is no URL, or of a kind that is not supported. The text has no password.
pub(super) fn parse(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().map_err(|error| error.to_string())?;
    match url.scheme_str() {
        _ if url.host().is_none() => Err("it has no host".to_owned()),
        Some("http" | "https" | "socks5" | "socks5h") => Ok(url),
        scheme => Err(format!("the scheme is {:?}, and may be http, https or socks5", scheme.unwrap_or_default())),
    }
}

/// The proxy that the variables of the environment name for this server, if any. Upper case comes first.
///
/// # Errors
/// It is no URL, or of a kind that is not supported. The text has no password.
pub(super) fn of_environment(server: &Uri, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
    let any = |names: [&str; 2]| names.into_iter().filter_map(variable).find(|value| !value.is_empty());
    let is_https = server.scheme_str() == Some("https");
    let names = if is_https { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
    let (Some(named), Some(host)) = (any(names), server.host()) else { return Ok(None) };
    let port = server.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    if is_exempt(host, port, &any(["NO_PROXY", "no_proxy"]).unwrap_or_default()) {
        return Ok(None);
    }
    let named = if named.contains("://") { named } else { format!("http://{named}") };
    parse(&named).map(Some).map_err(|error| format!("{}: {error}", names[0]))
}

/// Whether a server is reached without a proxy. This machine always is.
fn is_exempt(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback()) {
        return true;
    }
    no_proxy.split(',').filter_map(Exempt::parse).any(|entry| entry.is_of(&host, address, port))
}

// === impl Exempt ===

impl Exempt {
    /// `None` if the entry is empty or malformed.
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_ascii_lowercase();
        if entry == "*" {
            return Some(Self::All);
        }
        if let Some((network, bits)) = entry.split_once('/')
            && let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>())
            && bits <= if network.is_ipv4() { 32 } else { 128 }
        {
            // Of a network of IPv4 addresses, Go counts the last 32 bits.
            let of_v4 = bits.checked_sub(96).zip(Some(network.to_canonical()).filter(IpAddr::is_ipv4));
            let (bits, network) = of_v4.unwrap_or((bits, network));
            return Some(Self::Network(network, bits));
        }
        let (name, port) = match entry.rsplit_once(':') {
            // Without brackets, more than one colon is an IPv6 address.
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.to_owned()),
            _ => (entry.as_str(), String::new()),
        };
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if let Ok(address) = name.parse() {
            return Some(Self::Address(address, port));
        }
        let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
        match name.strip_prefix('.') {
            _ if name.is_empty() => None,
            Some(_) => Some(Self::Domain(name.to_owned(), false, port)),
            None => Some(Self::Domain(format!(".{name}"), true, port)),
        }
    }

    fn is_of(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let is_port = |of: &str| of.is_empty() || of == port.to_string();
        match (self, address) {
            (Self::All, _) => true,
            (Self::Network(network, bits), Some(address)) => in_network(address, *network, *bits),
            (Self::Address(exempt, of), Some(address)) => {
                exempt.to_canonical() == address.to_canonical() && is_port(of)
            }
            // Also of an address: `0.0.1` ends `10.0.0.1`.
            (Self::Domain(domain, itself, of), _) => {
                (host.ends_with(domain) || *itself && *host == domain[1..]) && is_port(of)
            }
            _ => false,
        }
    }
}

fn in_network(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address.to_canonical(), network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u32::from(a) ^ u32::from(n)).checked_shr(32 - bits).unwrap_or(0) == 0,
        (IpAddr::V6(a), IpAddr::V6(n)) => (u128::from(a) ^ u128::from(n)).checked_shr(128 - bits).unwrap_or(0) == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_proxy_leads_to_a_server() {
        let proxy = |server: &str, environment: &[(&str, &str)]| {
            let variable =
                |name: &str| environment.iter().find(|pair| pair.0 == name).map(|(_, value)| (*value).to_owned());
            of_environment(&server.parse().unwrap(), &variable).unwrap().map(|proxy| proxy.to_string())
        };
        let (upper, lower) = (("HTTPS_PROXY", "http://upper:1"), ("https_proxy", "lower:2"));
        let of = |servers: &str, no_proxy: &str| proxy(servers, &[upper, ("NO_PROXY", no_proxy)]).is_some();
        assert_eq!(proxy("https://a.example", &[upper]).as_deref(), Some("http://upper:1/"));
        assert_eq!(proxy("https://a.example", &[upper, lower]).as_deref(), Some("http://upper:1/"));
        assert_eq!(proxy("https://a.example", &[("HTTPS_PROXY", ""), lower]).as_deref(), Some("http://lower:2/"));
        assert_eq!(proxy("http://a.example", &[upper]), None, "that is for https");
        assert_eq!(proxy("http://a.example", &[("HTTP_PROXY", "p")]).as_deref(), Some("http://p/"));
        assert_eq!(proxy("https://a.example", &[("HTTPS_PROXY", "socks5://p:1")]).as_deref(), Some("socks5://p:1/"));
        assert_eq!(proxy("https://a.example", &[upper, ("no_proxy", "b"), ("NO_PROXY", "a.example")]), None);
        for server in ["https://localhost:6443", "https://127.0.0.1:6443", "https://127.9.0.1", "https://[::1]:1"] {
            assert!(!of(server, ""), "{server}");
        }
        for (server, no_proxy, is_used) in [
            ("https://10.0.0.1", "example.com, 10.0.0.0/8", false),
            ("https://11.0.0.1", "10.0.0.0/8", true),
            ("https://11.0.0.1", "0.0.0.0/0", false),
            ("https://10.0.0.1", "::ffff:10.0.0.0/104", false),
            ("https://11.0.0.1", "::ffff:10.0.0.0/104", true),
            ("https://10.0.0.1", "::ffff:10.0.0.0/95", true),
            ("https://[::ffff:10.0.0.1]", "10.0.0.0/8", false),
            ("https://10.0.0.1", "::/0", true),
            ("https://10.0.0.1", "10.0.0.1", false),
            ("https://10.0.0.1", "10.0.0.1:443", false),
            ("https://10.0.0.1:6443", "10.0.0.1:443", true),
            ("https://[fd00::1]", "fd00::/8", false),
            ("https://[fd00::1]", "fd00::1", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", false),
            ("https://[fd00::1]:6443", "[fd00::1]:443", true),
            ("https://api.example.com", "example.com", false),
            ("https://example.com", "example.com", false),
            ("https://EXAMPLE.com", "Example.COM", false),
            ("https://badexample.com", "example.com", true),
            ("https://api.example.com", ".example.com", false),
            ("https://example.com", ".example.com", true),
            ("https://api.example.com", "*.example.com", false),
            ("https://example.com", "*.example.com", true),
            ("https://api.example.com:6443", "example.com:443", true),
            ("https://api.example.com:6443", "example.com:6443", false),
            ("https://anything", "x,*", false),
            ("https://anything", " , ,", true),
            ("https://10.0.0.1", "0.0.1", false),
            ("https://10.0.0.1", ".0.1:443", false),
            ("https://10.0.0.12", "0.0.1", true),
            ("https://example.com", "example.com:abc", true),
            ("https://10.0.0.1", "10.0.0.1:abc", true),
            ("https://example.com", "example.com:", false),
            ("https://example.com", "example.com:0443", true),
        ] {
            assert_eq!(of(server, no_proxy), is_used, "{server}, {no_proxy}");
        }
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused() {
        for url in ["http://p:1", "https://u:p@p", "socks5://p", "socks5h://p"] {
            assert!(parse(url).is_ok(), "{url}");
        }
        for url in ["ftp://p", "p:1", "/p", ""] {
            assert!(parse(url).is_err(), "{url}");
        }
        let of = |server: &str, named: &str| {
            let variable = |name: &str| (name == "HTTPS_PROXY").then(|| named.to_owned());
            of_environment(&server.parse().unwrap(), &variable)
        };
        let error = of("https://a.example", "ftp://u:s3cret@p").unwrap_err();
        assert!(error.contains("HTTPS_PROXY") && error.contains("ftp") && !error.contains("s3cret"), "{error}");
        assert!(of("https://a.example", "http://p p").is_err());
        assert_eq!(of("https://localhost", "ftp://p"), Ok(None), "it is not used");
    }
}
