//! Whether a client of a trusted listener is the daemon itself, as the apiserver knows it: a sidecar has the service account
//! of its pod. Such a client may read what the daemon may read.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac, rand};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use moka::future::Cache;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::authenticator::MAX_TOKEN;
use super::bearer;
use super::claims::{claims, now};
use super::config::{AuthConfig, StartError};
use super::user::{CREDENTIAL_ID, NODE_NAME, POD_NAME, POD_UID, UserInfo};
use crate::apiserver::RequestVerb;
use crate::apiserver::client::{CallOptions, Identity, Upstream, full};

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const RESOURCE: &str = "selfsubjectreviews.authentication.k8s.io";
const QUESTION: &str = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
/// The most remembered tokens. The least used are evicted first.
const MAX_REMEMBERED: u64 = 1024;
/// The most bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;
/// Reviews at a time. Who finds no turn is a stranger for this read.
const TURNS: usize = 4;
/// How long nothing is asked after no answer has come.
const PAUSE: Duration = Duration::from_secs(1);
/// The most tokens that the apiserver refuses at once, and one more each [`EACH`]: everybody can make them up. Beyond that,
/// all whose tokens are not remembered are strangers.
const MOST_REFUSED: u32 = 10;
const EACH: Duration = Duration::from_secs(6);
const BURST: Duration = EACH.saturating_mul(MOST_REFUSED - 1);
/// What differs between the tokens of one service account.
const OF_A_TOKEN: [&str; 5] = [CREDENTIAL_ID, POD_NAME, POD_UID, NODE_NAME, "authentication.kubernetes.io/node-uid"];

/// The user of a token; `None` if the apiserver does not accept it.
type User = Option<Arc<UserInfo>>;

/// Tells which tokens belong to the daemon's own user.
pub(super) struct Ourselves {
    upstream: Upstream,
    /// By hashes under a secret that only this process has, as those of [`super::authenticator::Authenticator`].
    users: Cache<[u8; 32], User>,
    key: hmac::Key,
    turns: Semaphore,
    /// How long a read waits for an answer.
    limit: Duration,
    /// Until then, what was refused takes room. Nothing is asked while that is more than [`BURST`] away.
    refused: Mutex<Instant>,
}

/// Nothing follows from them but that the apiserver is not asked.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
}

#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    user_info: UserInfo,
}

// === impl Ourselves ===

impl Ourselves {
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn new(config: &AuthConfig, upstream: Upstream) -> Result<Self, StartError> {
        Ok(Self {
            upstream,
            users: Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(config.token_ttl).build(),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())?,
            turns: Semaphore::new(TURNS),
            // 1 s by default. Otherwise the read is forwarded.
            limit: config.review_timeout / 10,
            refused: Mutex::new(Instant::now()),
        })
    }

    /// Whether a request has the token that the daemon itself sends now, or another one of the same user. If that cannot
    /// be found out, it has not.
    pub(super) async fn sent(&self, headers: &HeaderMap) -> bool {
        let shown = bearer::token(headers).filter(|it| it.len() <= MAX_TOKEN && !bearer::is_ambiguous(headers));
        let Some(shown) = shown else { return false };
        // A provider that renews it may take long.
        let Ok(Some(own)) = timeout(self.limit, self.upstream.authorization()).await else { return false };
        let Some(own) = own.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")) else { return false };
        // What the daemon reads with this token is refused as soon as the apiserver does not accept it any more.
        if constant_time::verify_slices_are_equal(own.as_bytes(), shown.as_bytes()).is_ok() {
            return true;
        }
        // Nothing is asked about a token that does not even claim to be of the same user.
        let is_alike = claims(&shown).zip(claims(own)).is_some_and(|(shown, own): (Claims, Claims)| {
            shown.sub == own.sub && now().is_some_and(|now| shown.exp > now)
        });
        if !is_alike || self.upstream.health().error.is_some() {
            return false;
        }
        let shown = self.user(&shown).await;
        let own = if shown.is_some() { self.user(own).await } else { None };
        shown.zip(own).is_some_and(|(shown, own)| are_one(&shown, &own))
    }

    async fn user(&self, token: &str) -> User {
        let mut hash = [0; 32];
        hash.copy_from_slice(hmac::sign(&self.key, token.as_bytes()).as_ref());
        // An answer that did not come is not remembered. Boxed: few requests need it.
        self.users.try_get_with(hash, Box::pin(self.review(token))).await.ok().flatten()
    }

    async fn review(&self, token: &str) -> Result<User, ()> {
        let _turn = self.turns.try_acquire().map_err(drop)?;
        if *self.refused.lock() > Instant::now() + BURST {
            return Err(());
        }
        let answer = timeout(self.limit, self.ask(token)).await.unwrap_or(Err(()));
        let (now, mut refused) = (Instant::now(), self.refused.lock());
        match answer {
            Ok(Some(_)) => {}
            Ok(None) => *refused = now.max(*refused) + EACH,
            Err(()) => *refused = (*refused).max(now + BURST + PAUSE),
        }
        answer
    }

    /// Asks the apiserver, with a token, whose it is. Every user may ask that.
    async fn ask(&self, token: &str) -> Result<User, ()> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}")).map_err(drop)?;
        authorization.set_sensitive(true);
        let json = HeaderValue::from_static("application/json");
        let request = Request::post(PATH).header(CONTENT_TYPE, &json).header(ACCEPT, json);
        let request = request.header(AUTHORIZATION, authorization).body(full(QUESTION)).map_err(drop)?;
        let options = CallOptions::new(RequestVerb::Review, RESOURCE);
        let response = self.upstream.send_with(Identity::Stranger, request, &options).await.map_err(drop)?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED => return Ok(None),
            _ => return Err(()),
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(drop)?;
        let answer: Answer = serde_json::from_slice(&body.to_bytes()).map_err(drop)?;
        Ok(Some(Arc::new(answer.status.user_info)))
    }
}

/// Whether both have the same rights.
fn are_one(one: &UserInfo, other: &UserInfo) -> bool {
    let groups = |user: &UserInfo| {
        let mut groups = user.groups.clone();
        groups.sort_unstable();
        groups
    };
    let extra = |user: &UserInfo| {
        let mut extra = user.extra.clone();
        extra.retain(|key, _| !OF_A_TOKEN.contains(&&**key));
        extra
    };
    let is_known = !one.username.is_empty() && one.username == other.username && one.uid == other.uid;
    is_known && groups(one) == groups(other) && extra(one) == extra(other)
}

#[cfg(test)]
#[path = "ourselves_tests.rs"]
mod tests;
