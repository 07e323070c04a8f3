//! How a token is renewed: OpenID Connect Discovery, and then the grant `refresh_token` (RFC 6749, section 6). The
//! requests are those of Go's `net/http` and `golang.org/x/oauth2`.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::config::{CLIENT_ID, CLIENT_SECRET, Config, ISSUER, field};
use super::jwt::IdToken;
use crate::client::{empty, exchange, full};
use crate::kubeconfig::authorization::basic;
use crate::kubeconfig::proxy;
use informerd_meta::Query;

/// The most bytes of an answer.
const MOST: usize = 1 << 20;
/// The most requests that redirects make of one, as in Go.
const REDIRECTS: usize = 10;
/// The most characters of an answer that an error shows.
const SHOWN: usize = 200;
const FORM: &str = "application/x-www-form-urlencoded";

/// What must be escaped in a form.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What the provider has given.
pub(super) struct Renewed {
    /// Not part of the result's error: a new refresh token is kept even if there is no ID token with it.
    pub(super) id_token: Result<IdToken, String>,
    pub(super) refresh_token: Option<String>,
}

/// Where the client's name and secret are in a request.
#[derive(Clone, Copy)]
enum Client {
    InHeader,
    InBody,
}

/// A request that can be sent again, to another URL.
struct Call {
    method: Method,
    url: Uri,
    authorization: Option<HeaderValue>,
    form: Option<String>,
}

/// Asks the provider for a new token.
///
/// # Errors
/// It gave none. The message is one line without secrets.
pub(super) async fn renew(provider: &Config, refresh_token: &str) -> Result<Renewed, String> {
    let url = token_endpoint(provider).await?;
    // As oauth2: whatever was wrong, the provider may want the client's secret in the body.
    match grant(provider, &url, refresh_token, Client::InHeader).await {
        Ok(renewed) => Ok(renewed),
        Err(_) => grant(provider, &url, refresh_token, Client::InBody).await,
    }
}

/// Asks the provider where its tokens are.
async fn token_endpoint(provider: &Config) -> Result<Uri, String> {
    let issuer = field(&provider.fields, ISSUER);
    let url = format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer));
    let call = Call { method: Method::GET, url: parse(&url)?, authorization: None, form: None };
    let answer = call.send(provider).await?;
    if answer.status() != StatusCode::OK {
        let text = shortened(&String::from_utf8_lossy(answer.body()));
        return Err(format!("discovery: the provider answers {}: {text:?}", answer.status()));
    }
    let metadata: Map<String, Value> = serde_json::from_slice(answer.body())
        .map_err(|_| "discovery: the answer of the provider is no JSON object".to_owned())?;
    match metadata.get("token_endpoint").and_then(Value::as_str).unwrap_or_default() {
        "" => Err("discovery: the answer of the provider has no token_endpoint".to_owned()),
        url => parse(url),
    }
}

async fn grant(provider: &Config, url: &Uri, refresh_token: &str, client: Client) -> Result<Renewed, String> {
    let (id, secret) = (field(&provider.fields, CLIENT_ID), field(&provider.fields, CLIENT_SECRET));
    let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
    let authorization = match client {
        Client::InHeader => Some(basic(&escaped(id), &escaped(secret))?),
        Client::InBody => {
            fields.push(("client_id", id));
            fields.extend(Some(("client_secret", secret)).filter(|_| !secret.is_empty()));
            None
        }
    };
    let form = fields.into_iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>();
    let in_header = authorization.as_ref().and_then(|value| value.to_str().ok()?.rsplit(' ').next().map(str::to_owned));
    let call = Call { method: Method::POST, url: url.clone(), authorization, form: Some(form.join("&")) };
    // A provider may repeat what was wrong.
    let mut secrets = vec![secret.to_owned(), refresh_token.to_owned(), escaped(secret), escaped(refresh_token)];
    secrets.extend(in_header);
    // One may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let hide = |text: &str| {
        let secrets = secrets.iter().filter(|secret| !secret.is_empty());
        shortened(&secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "…")))
    };
    Renewed::read(&call.send(provider).await?, hide)
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, &ESCAPED).to_string().replace("%20", "+")
}

/// The URL without a user in it.
///
/// # Errors
/// It is none of HTTP.
fn parse(text: &str) -> Result<Uri, String> {
    let shown = text.rsplit('@').next().unwrap_or_default();
    let wrong = || format!("{shown:?} is no URL of http or https");
    let mut parts = text.parse::<Uri>().map_err(|_| wrong())?.into_parts();
    let authority = parts.authority.as_ref().map_or("", Authority::as_str);
    let host = authority.rsplit('@').next().unwrap_or_default().parse().map_err(|_| wrong())?;
    parts.authority = Some(host);
    let url = Uri::from_parts(parts).map_err(|_| wrong())?;
    Some(url).filter(|url| matches!(url.scheme_str(), Some("http" | "https"))).ok_or_else(wrong)
}

// === impl Renewed ===

impl Renewed {
    /// Reads the answer of the token endpoint. `hide` takes secrets out of a text that is shown.
    fn read(answer: &Response<Bytes>, hide: impl Fn(&str) -> String) -> Result<Self, String> {
        let fields = fields(answer);
        let text = |name: &str| fields.as_ref()?.get(name)?.as_str().filter(|text| !text.is_empty());
        if let Some(code) = text("error") {
            let (code, description) = (hide(code), hide(text("error_description").unwrap_or_default()));
            return Err(format!("the provider refuses to renew the token: {code:?} {description:?}"));
        }
        if !answer.status().is_success() {
            return Err(format!("the token endpoint answers {}", answer.status()));
        }
        if fields.is_none() {
            return Err("the answer of the token endpoint is neither a JSON object nor a form".to_owned());
        }
        if text("access_token").is_none() {
            return Err("the answer of the token endpoint has no access_token".to_owned());
        }
        let id_token = match text("id_token") {
            Some(token) => IdToken::parse(token).map_err(|error| format!("the id_token of the provider: {error}")),
            None => {
                Err("the answer of the token endpoint has no id_token: the login was without the scope openid, or \
                         the provider gives none when it renews"
                    .to_owned())
            }
        };
        Ok(Self { id_token, refresh_token: text("refresh_token").map(str::to_owned) })
    }
}

/// Some providers answer with a form. `None` if the answer is neither that nor JSON.
fn fields(answer: &Response<Bytes>) -> Option<Map<String, Value>> {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !matches!(kind.as_str(), FORM | "text/plain") {
        return serde_json::from_slice(answer.body()).ok();
    }
    let query = Query::parse(std::str::from_utf8(answer.body()).ok()?);
    let names = ["access_token", "id_token", "refresh_token", "error", "error_description"];
    Some(names.iter().filter_map(|name| Some(((*name).to_owned(), query.text(name)?.into()))).collect())
}

// === impl Call ===

impl Call {
    /// Sends it, and follows redirects as Go does: 307 and 308 repeat the request, others make a GET of a POST.
    async fn send(mut self, provider: &Config) -> Result<Response<Bytes>, String> {
        let first = self.url.host().unwrap_or_default().to_ascii_lowercase();
        for _ in 0..REDIRECTS {
            let answer = self.exchange(provider).await?;
            let Some(next) = redirect(&answer) else { return Ok(answer) };
            if !matches!(answer.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                (self.method, self.form) = (Method::GET, None);
            }
            self.url = resolve(&self.url, next)?;
            let host = self.url.host().unwrap_or_default().to_ascii_lowercase();
            let is_below = host.strip_suffix(first.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
            // It is for the server that was asked, and those below it.
            self.authorization = self.authorization.filter(|_| is_below);
        }
        Err(format!("the provider redirects more than {REDIRECTS} times"))
    }

    async fn exchange(&self, provider: &Config) -> Result<Response<Bytes>, String> {
        let mut server = kube::Config::new(self.url.clone());
        server.proxy_url = proxy::of_environment(&self.url, &|name| std::env::var(name).ok())?;
        server.root_cert.clone_from(&provider.trust.roots);
        server.root_cert_file.clone_from(&provider.trust.file);
        let mut headers = HeaderMap::new();
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers.extend(self.form.as_ref().map(|_| (CONTENT_TYPE, HeaderValue::from_static(FORM))));
        let body = self.form.clone().map_or_else(empty, full);
        let request = Request::builder().method(&self.method).uri(&self.url).body(body);
        let mut request = request.map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        let place = self.url.authority().map_or("", Authority::as_str);
        exchange(server, request, MOST).await.map_err(|error| format!("{place}: {error}"))
    }
}

fn redirect(answer: &Response<Bytes>) -> Option<&str> {
    let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    answer.headers().get(LOCATION).filter(|_| is_redirect)?.to_str().ok().filter(|url| !url.is_empty())
}

/// Where a redirect leads to.
fn resolve(from: &Uri, to: &str) -> Result<Uri, String> {
    let (scheme, host) = (from.scheme_str().unwrap_or_default(), from.authority().map_or("", Authority::as_str));
    let is_whole =
        to.split_once("://").is_some_and(|(scheme, _)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    if is_whole {
        parse(to)
    } else if to.starts_with("//") {
        parse(&format!("{scheme}:{to}"))
    } else if to.starts_with('/') {
        parse(&format!("{scheme}://{host}{to}"))
    } else {
        let directory = from.path().rsplit_once('/').map_or("", |(directory, _)| directory);
        parse(&format!("{scheme}://{host}{directory}/{to}"))
    }
}
