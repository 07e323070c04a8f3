//! One set of credentials, and the connections made with them.

use std::sync::Arc;

use http::Uri;
use http::uri::PathAndQuery;

use super::call::Identity;
use super::connect::Connector;
use super::health::Keeper;
use super::pool::Pool;
use super::settings::UpstreamConfig;
use super::source::{Files, Fingerprint, Loaded, UpstreamCertificates};
use crate::error::{Cause, UpstreamError};
use crate::kubeconfig::Credentials;
use crate::metrics::UpstreamMetrics;

/// One state of the configuration. It is only replaced as a whole; streams of an older one continue.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) fingerprint: Fingerprint,
    /// The files that it was read from.
    pub(super) files: Files,
    pub(super) authority: Arc<str>,
    /// `https://host:port`, without a path.
    pub(super) base: Uri,
    /// The path of the server's URL without a trailing slash.
    pub(super) prefix: Box<str>,
    pub(super) credentials: Credentials,
    pub(super) own: Arc<Pool>,
    pub(super) bare: Arc<Pool>,
    pub(super) strangers: Arc<Pool>,
    pub(super) proxied: Arc<Pool>,
    pub(super) certificates: UpstreamCertificates,
}

// === impl Generation ===

impl Generation {
    /// Builds a generation. It keeps the connections of `last` if they were made with the same settings.
    pub(super) fn build(
        loaded: Loaded,
        config: &UpstreamConfig,
        metrics: &Arc<UpstreamMetrics>,
        keeper: &Arc<Keeper>,
        last: Option<&Self>,
    ) -> Result<Self, UpstreamError> {
        let number = last.map_or(0, |last| last.number + 1);
        let same = last.filter(|last| {
            last.fingerprint.connection == loaded.fingerprint.connection && !loaded.may_change_certificate
        });
        let [own, bare, strangers, proxied] = match same {
            Some(last) => [&last.own, &last.bare, &last.strangers, &last.proxied].map(Arc::clone),
            None => {
                let own = Connector::new(&loaded.endpoint, loaded.own_tls, config, metrics)?;
                let bare = Connector::new(&loaded.endpoint, loaded.bare_tls, config, metrics)?;
                let pool = |(connector, is_of_strangers)| {
                    Arc::new(Pool::new(connector, config, is_of_strangers, metrics, keeper))
                };
                [(own, false), (bare.clone(), false), (bare.clone(), true), (bare, false)].map(pool)
            }
        };
        Ok(Self {
            number,
            fingerprint: loaded.fingerprint,
            files: loaded.files,
            authority: loaded.endpoint.authority,
            base: loaded.endpoint.base,
            prefix: loaded.endpoint.prefix,
            credentials: loaded.credentials,
            own,
            bare,
            strangers,
            proxied,
            certificates: loaded.certificates,
        })
    }

    pub(super) fn pool(&self, identity: Identity) -> &Arc<Pool> {
        match identity {
            Identity::Own => &self.own,
            Identity::Bare => &self.bare,
            Identity::Stranger => &self.strangers,
            Identity::Proxied => &self.proxied,
        }
    }

    pub(super) fn uri(&self, asked: Option<&PathAndQuery>) -> Result<Uri, UpstreamError> {
        let asked = asked.map_or("/", PathAndQuery::as_str);
        let mut parts = self.base.clone().into_parts();
        let path = format!("{}{asked}", self.prefix);
        parts.path_and_query =
            Some(path.parse().map_err(|error: http::uri::InvalidUri| UpstreamError::Request(Cause::new(error)))?);
        Uri::from_parts(parts).map_err(|error| UpstreamError::Request(Cause::new(error)))
    }

    /// See [`super::Upstream::localized`].
    pub(super) fn localized(&self, url: &str) -> Option<String> {
        localized(&self.base, &self.prefix, url)
    }
}

fn localized(base: &Uri, prefix: &str, url: &str) -> Option<String> {
    let scheme = base.scheme_str().unwrap_or_default();
    let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':')).unwrap_or(url);
    let path = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            let port = if scheme == "https" { ":443" } else { ":80" };
            let host = authority.strip_suffix(port).unwrap_or(authority);
            if !base.authority().is_some_and(|own| own.as_str().eq_ignore_ascii_case(host)) {
                return None;
            }
            path
        }
        // Another one is relative to the path of the request.
        None if rest.starts_with('/') => rest,
        None => return None,
    };
    let path = path.strip_prefix(prefix)?;
    match path.as_bytes() {
        // Browsers would take what follows for the name of another server. They read `\` as `/`, and skip tabs.
        [b'/', b'/' | b'\\' | 0..=b' ', ..] => None,
        [b'/', ..] => Some(path.to_owned()),
        [b'?' | b'#', ..] | [] => Some(format!("/{path}")),
        // Another path that only begins like this one.
        [..] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_below_the_path_of_the_server() {
        let base: Uri = "https://rancher.example/".parse().unwrap();
        let of = |url: &str| localized(&base, "/k8s/clusters/c1", url);
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
            assert_eq!(of(url).as_deref(), local, "{url}");
        }
        let base: Uri = "http://127.0.0.1:8080/".parse().unwrap();
        assert_eq!(localized(&base, "", "http://127.0.0.1:8080/a").as_deref(), Some("/a"));
        assert_eq!(localized(&base, "", "http://127.0.0.1:8080").as_deref(), Some("/"));
        assert_eq!(localized(&base, "", "/a").as_deref(), Some("/a"));
        let relative = ["a/b", "?a", "", "mailto:a"];
        let to_others = ["http://127.0.0.1:8080//evil.example/x", "/\\evil.example", "/\t/evil.example"];
        for url in relative.into_iter().chain(to_others) {
            assert_eq!(localized(&base, "", url), None, "{url}");
        }
    }
}
