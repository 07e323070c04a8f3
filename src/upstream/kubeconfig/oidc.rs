//! `auth-provider: oidc`: an ID token, which is renewed with a refresh token when it is about to expire. The rules are
//! those of client-go, but for what a process that lives long needs: renewed tokens stay in memory, every wait has a
//! bound, and a provider that fails is not asked for each request.

mod jwt;
mod renewal;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

use self::jwt::IdToken;
use self::renewal::Renewed;
use super::pem;
use crate::lifecycle;

const ISSUER: &str = "idp-issuer-url";
const CLIENT_ID: &str = "client-id";
const CLIENT_SECRET: &str = "client-secret";
const CA_FILE: &str = "idp-certificate-authority";
const CA_DATA: &str = "idp-certificate-authority-data";
const ID_TOKEN: &str = "id-token";
const REFRESH_TOKEN: &str = "refresh-token";

/// The longest that a request waits for a token, and that a renewal takes.
const LIMIT: Duration = Duration::from_secs(30);
/// The time after a renewal before the next one, also if it failed or gave a token that has expired already.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of configurations whose renewed tokens are remembered. Beyond it, the one that was read least recently is
/// forgotten.
const KEPT: usize = 64;

/// The providers of this process. A configuration may be read again at any time, after its refresh token was used up.
static KNOWN: Mutex<Known> = Mutex::new(Known(Vec::new()));

/// The most recently read one is the last.
struct Known(Vec<Arc<Provider>>);

/// A provider, and the tokens it gave last.
pub(super) struct Provider {
    /// As in the kubeconfig.
    config: HashMap<String, String>,
    trust: Trust,
    state: Arc<AsyncMutex<State>>,
}

/// Who may have signed the certificate of the provider.
pub(super) struct Trust {
    /// In DER; `None` for the CAs of the system.
    roots: Option<Vec<Vec<u8>>>,
    /// The file they are from.
    file: Option<PathBuf>,
}

struct State {
    token: Option<IdToken>,
    /// Empty if there is none.
    refresh_token: String,
    /// How the last renewal ended, and until when there is no other.
    last: Option<(Result<HeaderValue, String>, Instant)>,
}

/// A field of the configuration; empty if it is not there.
fn field<'a>(config: &'a HashMap<String, String>, name: &str) -> &'a str {
    config.get(name).map_or("", String::as_str)
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("auth-provider oidc: {error}")
}

// === impl Provider ===

impl Provider {
    /// The provider of a configuration. If this process has read the same one before, it is that provider, with the
    /// tokens that it has renewed.
    ///
    /// # Errors
    /// client-go refuses the configuration too, or its ID token is none.
    pub(super) fn of(config: &HashMap<String, String>) -> Result<Arc<Self>, String> {
        let trust = Trust::of(config)?;
        KNOWN.lock().provider(config, trust)
    }

    fn new(config: &HashMap<String, String>, trust: Trust) -> Result<Self, String> {
        let token = Some(field(config, ID_TOKEN)).filter(|token| !token.is_empty());
        let token = token.map(IdToken::parse).transpose();
        let token = token.map_err(|error| failed(format!("{ID_TOKEN}: {error}")))?;
        let state = State { token, refresh_token: field(config, REFRESH_TOKEN).to_owned(), last: None };
        Ok(Self { config: config.clone(), trust, state: Arc::new(AsyncMutex::new(state)) })
    }

    /// The `Authorization` of a request. Who comes while the token is renewed waits for that.
    ///
    /// # Errors
    /// The token has expired and was not renewed.
    pub(super) async fn header(self: &Arc<Self>) -> Result<HeaderValue, String> {
        timeout(LIMIT, Arc::clone(self).answer()).await.unwrap_or_else(|_elapsed| Err(failed(late())))
    }

    async fn answer(self: Arc<Self>) -> Result<HeaderValue, String> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if let Some(answer) = state.answer() {
            return answer;
        }
        // A task of its own: whoever has asked may go away, and a refresh token may be good for one use only.
        let renewal = lifecycle::spawn("oidc-renewal", async move {
            let renewed = timeout(LIMIT, renewal::renew(&self, &state.refresh_token)).await;
            state.learn(renewed.unwrap_or_else(|_elapsed| Err(late())))
        });
        renewal.await.unwrap_or_else(|error| Err(failed(error)))
    }
}

fn late() -> String {
    format!("the provider has given no token in {LIMIT:?}")
}

// === impl Known ===

impl Known {
    fn provider(&mut self, config: &HashMap<String, String>, trust: Trust) -> Result<Arc<Provider>, String> {
        let provider = match self.0.iter().position(|provider| provider.config == *config) {
            Some(at) => self.0.remove(at),
            None => Arc::new(Provider::new(config, trust)?),
        };
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(Arc::clone(&provider));
        Ok(provider)
    }
}

// === impl State ===

impl State {
    /// `None` if a new token is needed.
    fn answer(&self) -> Option<Result<HeaderValue, String>> {
        if let Some(token) = self.token.as_ref().filter(|token| token.is_fresh()) {
            return Some(Ok(token.header.clone()));
        }
        if let Some((last, until)) = &self.last
            && Instant::now() < *until
        {
            return Some(last.clone());
        }
        let is_over = self.refresh_token.is_empty();
        is_over.then(|| Err(failed(format!("there is no valid {ID_TOKEN}, and no {REFRESH_TOKEN} to renew it with"))))
    }

    fn learn(&mut self, renewed: Result<Renewed, String>) -> Result<HeaderValue, String> {
        let result = renewed.and_then(|Renewed { id_token, refresh_token }| {
            if let Some(next) = refresh_token.filter(|next| *next != self.refresh_token) {
                tracing::info!("the OIDC provider has given another refresh token, and the kubeconfig has the old one");
                self.refresh_token = next;
            }
            let token = id_token?;
            let header = token.header.clone();
            self.token = Some(token);
            Ok(header)
        });
        let result = result.map_err(failed);
        self.last = Some((result.clone(), Instant::now() + PAUSE));
        result
    }
}

// === impl Trust ===

impl Trust {
    /// Checks what client-go checks of a configuration before it uses it. Reads the CA's file.
    ///
    /// # Errors
    /// A field is missing, or the CA cannot be read.
    pub(super) fn of(config: &HashMap<String, String>) -> Result<Self, String> {
        if let Some(missing) = [ISSUER, CLIENT_ID].into_iter().find(|name| field(config, name).is_empty()) {
            return Err(failed(format!("there is no {missing}")));
        }
        // As client-go: the data comes before the file, whose path is relative to the working directory.
        let (name, text, file) = match (field(config, CA_DATA), field(config, CA_FILE)) {
            ("", "") => return Ok(Self { roots: None, file: None }),
            ("", path) => {
                let text = std::fs::read(path).map_err(|error| failed(format!("{CA_FILE}: {path}: {error}")))?;
                (CA_FILE, text, Some(path.into()))
            }
            (data, _) => (CA_DATA, pem::data(data).map_err(|error| failed(format!("{CA_DATA}: {error}")))?, None),
        };
        match pem::certificates(&text) {
            roots if roots.is_empty() => Err(failed(format!("{name}: no certificate in it"))),
            roots => Ok(Self { roots: Some(roots), file }),
        }
    }
}

#[cfg(test)]
#[path = "oidc_tests.rs"]
mod tests;
