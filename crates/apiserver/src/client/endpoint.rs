//! Where the apiserver is.

use std::sync::Arc;

use http::Uri;

use super::proxy::Proxy;
use crate::error::{Cause, UpstreamError};

/// The address of the apiserver.
#[derive(Clone, Debug)]
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
        let https = match url.scheme_str() {
            Some("https") => true,
            Some("http") | None => false,
            Some(other) => return Err(config_error(format!("the server url {url} has the unknown scheme {other}"))),
        };
        let (scheme, default_port) = if https { ("https", 443) } else { ("http", 80) };
        let authority = match url.port_u16() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        // The default port is left out of the Host header, as other clients do.
        let authority = authority.strip_suffix(&format!(":{default_port}")).unwrap_or(&authority).to_owned();
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
    fn a_proxy_of_an_unknown_kind_is_refused() {
        let mut config = kube::Config::new("https://10.0.0.1".parse().unwrap());
        config.proxy_url = Some("ftp://user:secret@proxy:3128".parse().unwrap());
        let error = Endpoint::of(&config).err().unwrap().to_string();
        assert!(error.contains("ftp") && !error.contains("secret"), "{error}");
    }
}
