//! `auth-provider: oidc`: an ID token, which is renewed with a refresh token when it is about to expire. The rules are
//! those of client-go, but for what a process that lives long needs: renewed tokens stay in memory, every wait has a
//! bound, and a provider that fails is not asked for each request.

mod config;
mod jwt;
mod renewal;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

pub(super) use self::config::Trust;

use self::config::{Config, ID_TOKEN, REFRESH_TOKEN, failed, field};
use self::jwt::IdToken;
use self::renewal::Renewed;
use informerd_lifecycle as lifecycle;

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
    config: Config,
    state: Arc<AsyncMutex<State>>,
}

struct State {
    token: Option<IdToken>,
    /// Empty if there is none.
    refresh_token: String,
    /// How the last renewal ended, and until when there is no other.
    last: Option<(Result<HeaderValue, String>, Instant)>,
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
        let config = Config { fields: config.clone(), trust };
        Ok(Self { config, state: Arc::new(AsyncMutex::new(state)) })
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
            let renewed = timeout(LIMIT, renewal::renew(&self.config, &state.refresh_token)).await;
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
        let provider = match self.0.iter().position(|provider| provider.config.fields == *config) {
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

#[cfg(test)]
#[path = "oidc_tests.rs"]
mod tests;
