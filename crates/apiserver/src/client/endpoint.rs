//! Where the apiserver is.

use std::sync::Arc;

use http::uri::{self, PathAndQuery, Uri};

use super::proxy::Proxy;
use crate::error::{Cause, UpstreamError};

/// The address of the apiserver.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// `https://host:port`, without a path.
    pub(super) base: Uri,
    pub(super) authority: Arc<str>,
    /// The path of the server's URL without a trailing slash; often empty.
    pub(super) prefix: Box<str>,
    /// The name that the server's certificate must have, if it is not the URL's host.
    pub(super) server_name: Option<String>,
    pub(super) proxy: Option<Proxy>,
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn of(config: &kube::Config) -> Result<Self, UpstreamError> {
        let config_error = |message: String| UpstreamError::Config(Cause::new(message));
        let proxy = config.proxy_url.as_ref().map(Proxy::of).transpose().map_err(config_error)?;
        let url = &config.cluster_url;
        let host = url.host().ok_or_else(|| config_error(format!("the server url {url} has no host")))?;
        let (scheme, default_port) = match url.scheme_str() {
            Some("https") => ("https", 443),
            Some("http") | None => ("http", 80),
            Some(other) => return Err(config_error(format!("the server url {url} has the unknown scheme {other}"))),
        };
        // The default port is left out of the Host header, as other clients do.
        let port = url.port_u16().filter(|port| *port != default_port);
        let authority = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let base = Uri::builder().scheme(scheme).authority(&*authority).path_and_query("/").build();
        let base = base.map_err(|error| UpstreamError::Config(Cause::new(error)))?;
        Ok(Self {
            base,
            authority: authority.into(),
            prefix: url.path().trim_end_matches('/').into(),
            server_name: config.tls_server_name.clone(),
            proxy,
        })
    }

    pub(super) fn uri(&self, asked: Option<&PathAndQuery>) -> Result<Uri, UpstreamError> {
        let path = format!("{}{}", self.prefix, asked.map_or("/", PathAndQuery::as_str));
        let uri = uri::Builder::from(self.base.clone()).path_and_query(path).build();
        uri.map_err(|error| UpstreamError::Request(Cause::new(error)))
    }

    /// See [`super::Upstream::localized`].
    pub(super) fn localized(&self, url: &str) -> Option<String> {
        let scheme = self.base.scheme_str().unwrap_or_default();
        let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':')).unwrap_or(url);
        let path = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                let port = if scheme == "https" { ":443" } else { ":80" };
                let host = authority.strip_suffix(port).unwrap_or(authority);
                if !self.base.authority().is_some_and(|own| own.as_str().eq_ignore_ascii_case(host)) {
                    return None;
                }
                path
            }
            // Another one is relative to the path of the request.
            None if rest.starts_with('/') => rest,
            None => return None,
        };
        let path = path.strip_prefix(&*self.prefix)?;
        match path.as_bytes() {
            // Browsers would take what follows for the name of another server. They read `\` as `/`, and skip tabs.
            [b'/', b'/' | b'\\' | 0..=b' ', ..] => None,
            [b'/', ..] => Some(path.to_owned()),
            [b'?' | b'#', ..] | [] => Some(format!("/{path}")),
            // Another path that only begins like this one.
            [..] => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_keeps_the_path_of_the_url() {
        let config = kube::Config::new("https://example.com/k8s/clusters/c1/".parse().unwrap());
        let endpoint = Endpoint::of(&config).unwrap();
        assert_eq!((&*endpoint.authority, &*endpoint.prefix), ("example.com", "/k8s/clusters/c1"));
        let config = kube::Config::new("https://[::1]:6443".parse().unwrap());
        let endpoint = Endpoint::of(&config).unwrap();
        assert_eq!((&*endpoint.authority, &*endpoint.prefix), ("[::1]:6443", ""));
        let config = kube::Config::new("http://127.0.0.1:80".parse().unwrap());
        assert_eq!(&*Endpoint::of(&config).unwrap().authority, "127.0.0.1");
    }

    #[test]
    fn urls_below_the_path_of_the_server() {
        let endpoint = |url: &str| Endpoint::of(&kube::Config::new(url.parse().unwrap())).unwrap();
        let rancher = endpoint("https://rancher.example/k8s/clusters/c1");
        for (url, local) in [
            ("/k8s/clusters/c1/openapi/v3/api/v1?hash=A", Some("/openapi/v3/api/v1?hash=A")),
            ("https://rancher.example/k8s/clusters/c1/api", Some("/api")),
            ("https://RANCHER.example:443/k8s/clusters/c1/api#a", Some("/api#a")),
            ("//rancher.example/k8s/clusters/c1/api", Some("/api")),
            ("/k8s/clusters/c1", Some("/")),
            ("/k8s/clusters/c1?a", Some("/?a")),
            ("/k8s/clusters/c10/api", None),
            ("/login", None),
            ("/k8s/clusters/c1//evil.example/x", None),
            ("https://rancher.example/k8s/clusters/c1//evil.example/x", None),
            ("/k8s/clusters/c1/\\evil.example", None),
            ("/k8s/clusters/c1/\t/evil.example", None),
            ("/k8s/clusters/c1/ /evil.example", None),
            ("/k8s/clusters/c1/", Some("/")),
            ("https://other.example/k8s/clusters/c1/api", None),
            ("http://rancher.example/k8s/clusters/c1/api", None),
            ("https://rancher.example:8443/k8s/clusters/c1/api", None),
            ("relative", None),
            ("", None),
        ] {
            assert_eq!(rancher.localized(url).as_deref(), local, "{url}");
        }
        let plain = endpoint("http://127.0.0.1:8080/");
        assert_eq!(plain.localized("http://127.0.0.1:8080/a").as_deref(), Some("/a"));
        assert_eq!(plain.localized("http://127.0.0.1:8080").as_deref(), Some("/"));
        assert_eq!(plain.localized("/a").as_deref(), Some("/a"));
        let relative = ["a/b", "?a", "", "mailto:a"];
        let to_others = ["http://127.0.0.1:8080//evil.example/x", "/\\evil.example", "/\t/evil.example"];
        for url in relative.into_iter().chain(to_others) {
            assert_eq!(plain.localized(url), None, "{url}");
        }
    }

    #[test]
    fn a_proxy_of_an_unknown_kind_is_refused() {
        let mut config = kube::Config::new("https://10.0.0.1".parse().unwrap());
        config.proxy_url = Some("ftp://user:secret@proxy:3128".parse().unwrap());
        let error = Endpoint::of(&config).err().unwrap().to_string();
        assert!(error.contains("ftp") && !error.contains("secret"), "{error}");
    }
}
