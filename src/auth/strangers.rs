//! What the apiserver has just let a stranger read: a client of a trusted listener with another user's token.
//!
//! Such a read of the newest state is forwarded with that token. The apiserver's answer is a review of the token and of the right
//! to the read. It costs no request, and the daemon needs no right to ask for it. So for a short time, the same read with
//! the same token is answered from a cache.

use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use http::StatusCode;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap};
use moka::future::Cache;
use tokio::time::Instant;

use super::attributes::Attributes;
use super::authenticator::life;
use super::authorizer::UNTOLD_TTL;
use super::bearer;
use super::config::{AuthConfig, StartError};

/// The most remembered reads. The least used are evicted first.
const MAX_REMEMBERED: u64 = 1024;
/// Reads with larger selectors are forwarded each time.
const MAX_SIZE: usize = 4096;

/// Remembers what strangers may read.
pub(super) struct Strangers {
    /// When they asked for it.
    allowed: Cache<Right, Instant>,
    key: hmac::Key,
    ttl: Duration,
}

/// The token is a hash under a secret that only this process has.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Right {
    token: [u8; 32],
    attributes: Attributes,
}

/// A read of a stranger, which the apiserver may have allowed.
pub struct StrangersRead {
    allowed: Cache<Right, Instant>,
    /// Not beyond the end of the token.
    ttl: Duration,
    right: Right,
    asked: Instant,
}

// === impl Strangers ===

impl Strangers {
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn new(config: &AuthConfig) -> Result<Self, StartError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())?;
        // No watch shows here that a right ends.
        let ttl = UNTOLD_TTL.min(config.token_ttl).min(config.allow_ttl);
        // Only so that nothing is kept for long: it has a clock of its own.
        let allowed = Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(10 * ttl).build();
        Ok(Self { allowed, key, ttl })
    }

    /// A read that begins now. `None` if two servers could read its credentials differently, a proxy before the apiserver might
    /// know its user by something else, or the read is too large to be remembered.
    pub(super) fn read(&self, headers: &HeaderMap, attributes: Attributes) -> Option<StrangersRead> {
        let is_by_token = bearer::shows_token(headers) && !headers.contains_key(COOKIE);
        let authorization = headers.get(AUTHORIZATION).filter(|_| is_by_token)?;
        if attributes.unread || attributes.size() > MAX_SIZE {
            return None;
        }
        let ttl = life(&bearer::authorization_token(headers)?, self.ttl);
        let mut token = [0; 32];
        token.copy_from_slice(hmac::sign(&self.key, authorization.as_bytes()).as_ref());
        let right = Right { token, attributes };
        Some(StrangersRead { allowed: self.allowed.clone(), ttl, right, asked: Instant::now() })
    }
}

// === impl StrangersRead ===

impl StrangersRead {
    /// Whether the apiserver has allowed it just now.
    pub async fn is_allowed(&self) -> bool {
        self.allowed.get(&self.right).await.is_some_and(|asked| self.asked < asked + self.ttl)
    }

    /// Records the apiserver's answer to it. That is as old as the question.
    pub async fn answered(self, status: StatusCode) {
        match status {
            StatusCode::OK => self.allowed.insert(self.right, self.asked).await,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.allowed.invalidate(&self.right).await,
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "strangers_tests.rs"]
mod tests;
