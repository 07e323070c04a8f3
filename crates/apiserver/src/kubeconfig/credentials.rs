//! Our own credentials: the headers of each request, and the certificate of a connection. Which of several are used, and
//! when they are read again, is as in client-go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use kube::config::AuthInfo;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::sign::CertifiedKey;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::authorization::{basic, bearer};
use super::error::KubeconfigError;
use super::exec::Plugin;
use super::keys::{self, Shown};
use super::tls::bare_client_config;
use super::{oidc, pem};

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_UID: HeaderName = HeaderName::from_static("impersonate-uid");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// How long a token of a file is used before the file is read again. The kubelet renews a token of 10 minutes when it has
/// two left.
const FRESH: Duration = Duration::from_secs(50);

/// What must be escaped in the name of a header: all but the characters of a token (RFC 9110, 5.6.2), and `%` itself.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Our own credentials. Clones share what was read.
#[derive(Clone)]
pub struct Credentials {
    authorization: Authorization,
    /// The headers of an impersonation, and those that the configuration adds.
    headers: HeaderMap,
    shown: Arc<Shown>,
}

#[derive(Clone)]
enum Authorization {
    None,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
    Exec(Arc<Plugin>),
    Oidc(Arc<oidc::Provider>),
}

struct TokenFile {
    path: PathBuf,
    /// The last header, and until when it is used without another look.
    last: Mutex<(HeaderValue, Instant)>,
}

// === impl Credentials ===

impl Credentials {
    /// Reads the files, and runs the exec plugin. Blocks for as long. An OIDC provider is asked when a request needs it.
    ///
    /// # Errors
    /// A file cannot be read, a key cannot be used, or the plugin failed.
    pub fn new(config: &kube::Config) -> Result<Self, KubeconfigError> {
        let user = &config.auth_info;
        let shown = Arc::new(Shown::default());
        shown.0.store(certificate(user).map_err(KubeconfigError)?.map(Arc::new));
        let mut headers: HeaderMap = config.headers.iter().cloned().collect();
        impersonate(user, &mut headers).map_err(KubeconfigError)?;
        let authorization = Authorization::of(user, &shown).map_err(KubeconfigError)?;
        Ok(Self { authorization, headers, shown })
    }

    /// The TLS of connections to the server of a configuration, with our certificate.
    ///
    /// # Errors
    /// The CAs cannot be used.
    pub fn client_config(&self, config: &kube::Config) -> Result<ClientConfig, KubeconfigError> {
        let mut tls = bare_client_config(config)?;
        tls.client_auth_cert_resolver = Arc::clone(&self.shown) as _;
        Ok(tls)
    }

    /// Adds the headers to those of a request. Who impersonates somebody already keeps doing that.
    ///
    /// # Errors
    /// The exec plugin or the OIDC provider failed.
    pub async fn apply(&self, headers: &mut HeaderMap) -> Result<(), KubeconfigError> {
        let authorization = match &self.authorization {
            Authorization::None => None,
            Authorization::Fixed(value) => Some(value.clone()),
            Authorization::File(file) => Some(file.header().await),
            Authorization::Exec(plugin) => plugin.header().await.map_err(KubeconfigError)?,
            Authorization::Oidc(provider) => Some(provider.header().await.map_err(KubeconfigError)?),
        };
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        let is_somebody = headers.contains_key(IMPERSONATE_USER);
        let ours = self.headers.iter().filter(|(name, _)| !is_somebody || !name.as_str().starts_with("impersonate-"));
        headers.extend(ours.map(|(name, value)| (name.clone(), value.clone())));
        Ok(())
    }

    /// The header `Authorization`, if nothing else tells the server who asks. No exec plugin runs for it: `None` until a request has
    /// had that renew its token.
    pub async fn authorization(&self) -> Option<HeaderValue> {
        if matches!(&self.authorization, Authorization::Exec(plugin) if !plugin.is_valid()) {
            return None;
        }
        let mut headers = HeaderMap::new();
        self.apply(&mut headers).await.ok()?;
        let value = headers.remove(AUTHORIZATION)?;
        (headers.is_empty() && self.shown.0.load().is_none()).then_some(value)
    }
}

/// The client certificate and its key, if there is one.
fn certificate(user: &AuthInfo) -> Result<Option<CertifiedKey>, String> {
    let data = user.client_certificate_data.as_deref().unwrap_or_default();
    let file = user.client_certificate.as_deref().unwrap_or_default();
    let Some(certificate) = pem::data_or_file("client-certificate", data, file)? else { return Ok(None) };
    let data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
    let key = pem::data_or_file("client-key", data, user.client_key.as_deref().unwrap_or_default())?;
    keys::pair(&certificate, &key.ok_or("the client certificate has no key")?).map(Some)
}

/// The headers of an impersonation, as client-go writes them.
fn impersonate(user: &AuthInfo, headers: &mut HeaderMap) -> Result<(), String> {
    let Some(name) = user.impersonate.as_ref().filter(|name| !name.is_empty()) else { return Ok(()) };
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| "an impersonated name cannot be sent".to_owned());
    headers.insert(IMPERSONATE_USER, value(name)?);
    if let Some(uid) = user.impersonate_uid.as_ref().filter(|uid| !uid.is_empty()) {
        headers.insert(IMPERSONATE_UID, value(uid)?);
    }
    for group in user.impersonate_groups.iter().flatten() {
        headers.append(IMPERSONATE_GROUP, value(group)?);
    }
    for (key, values) in user.impersonate_user_extra.iter().flatten() {
        let name = format!("impersonate-extra-{}", utf8_percent_encode(key, &ESCAPED));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| format!("as-user-extra: {error}"))?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

// === impl Authorization ===

impl Authorization {
    fn of(user: &AuthInfo, shown: &Arc<Shown>) -> Result<Self, String> {
        let token = user.token.as_ref().map(ExposeSecret::expose_secret).filter(|token| !token.is_empty());
        if let Some(path) = user.token_file.as_deref().filter(|path| !path.is_empty()) {
            return TokenFile::new(path.into(), token).map(|file| Self::File(Arc::new(file)));
        }
        if let Some(token) = token {
            return bearer(token).map(Self::Fixed);
        }
        if let Some(name) = user.username.as_ref().filter(|name| !name.is_empty()) {
            let password = user.password.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
            return basic(name, password).map(Self::Fixed);
        }
        match (&user.auth_provider, &user.exec) {
            (Some(provider), _) => {
                known_provider(&provider.name)?;
                oidc::Provider::of(&provider.config).map(Self::Oidc)
            }
            (None, Some(exec)) => Plugin::start(exec.clone(), Arc::clone(shown)).map(Self::Exec),
            (None, None) => Ok(Self::None),
        }
    }
}

/// Only OIDC is left of the providers.
///
/// # Errors
/// It is another one.
pub(super) fn known_provider(name: &str) -> Result<(), String> {
    match name {
        "oidc" => Ok(()),
        "gcp" => Err("auth-provider gcp is no longer supported: use the exec plugin gke-gcloud-auth-plugin".to_owned()),
        "azure" => Err("auth-provider azure is no longer supported: use the exec plugin kubelogin".to_owned()),
        name => Err(format!("auth-provider {name:?} is unknown")),
    }
}

// === impl TokenFile ===

impl TokenFile {
    /// `token` is used as long as the file cannot be read.
    fn new(path: PathBuf, token: Option<&str>) -> Result<Self, String> {
        let header = match (Self::read(&path), token) {
            (Ok(header), _) => header,
            (Err(_), Some(token)) => bearer(token)?,
            (Err(error), None) => return Err(error),
        };
        Ok(Self { path, last: Mutex::new((header, Instant::now() + FRESH)) })
    }

    fn read(path: &Path) -> Result<HeaderValue, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("tokenFile: {}: {error}", path.display()))?;
        match text.trim() {
            "" => Err(format!("tokenFile: {}: it is empty", path.display())),
            token => bearer(token),
        }
    }

    /// The last header stays if the file cannot be read again.
    async fn header(self: &Arc<Self>) -> HeaderValue {
        let (last, until) = self.last.lock().clone();
        if Instant::now() < until {
            return last;
        }
        let file = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || Self::read(&file.path)).await;
        let header = read.unwrap_or_else(|error| Err(error.to_string())).unwrap_or_else(|error| {
            tracing::warn!(error, "cannot read the token again, keeping the last one");
            last
        });
        *self.last.lock() = (header.clone(), Instant::now() + FRESH);
        header
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
