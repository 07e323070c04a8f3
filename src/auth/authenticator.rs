//! Authentication: tokens by TokenReview, certificates by a CA. Both results are cached for a short time.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use http::header::HeaderMap;
use moka::future::Cache;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use tokio::time::Instant;

use super::bearer::{self, Secret};
use super::certificate;
use super::claims::{claims, now};
use super::client_ca::{ClientCa, NotVerified};
use super::config::{AuthConfig, StartError};
use super::ends_at::EndsAt;
use super::followed::There;
use super::pods::{Pods, Seen};
use super::review::{Reviews, Unavailable};
use super::revocation::Revoked;
use super::shares::Payer;
use super::standing::{Standing, Stands};
use super::user::{NODE_NAME, UserInfo};

/// The most cached tokens and certificates. The least used are evicted first.
const MAX_REMEMBERED: u64 = 65_536;
/// A review is cached for at least this long, even if the token says that it expires earlier. Our clock may be ahead of
/// the apiserver's; without a minimum, each request and each open stream would then ask again and again.
const LEAST_LIFE: Duration = Duration::from_secs(1);
/// How long it is remembered of a token what the apiserver has said to it.
const LONGEST_SURPRISE: Duration = Duration::from_secs(3600);
/// The cache of what is kept takes no longer times. Each use has a bound of its own.
const DAY: Duration = Duration::from_secs(86_400);
/// Longer tokens are left to the apiserver, which takes them. A review of one would be as large.
pub(super) const MAX_TOKEN: usize = 32 << 10;

/// Authenticates clients.
pub(super) struct Authenticator {
    reviews: Arc<Reviews>,
    client_ca: Option<Arc<ClientCa>>,
    audiences: Vec<String>,
    node: Option<String>,
    ttl: Duration,
    /// The key is a hash under a secret that only this process has. So no token stays in memory longer than its use,
    /// and the hashes are worthless elsewhere.
    remembered: Cache<[u8; 32], Known>,
    /// Tokens that were accepted last, by the hash for what the apiserver says to them. They count while the apiserver is away.
    kept: Cache<[u8; 32], Kept>,
    /// Tokens to which the apiserver has said something else than [`Self::is_for_the_apiserver`].
    surprising: Cache<[u8; 32], ()>,
    key: hmac::Key,
    revoked: Arc<Revoked>,
    standing: Standing,
    /// `None` if the pods of all accepted tokens are watched.
    pods: Option<Pods>,
}

/// The result of authentication.
#[derive(Clone, Debug)]
pub(super) enum Who {
    User(Known, Source),
    /// The request carries no credentials.
    Nobody,
    /// The request carries credentials that are not valid.
    Invalid,
    /// The request carries a token that is too long to be reviewed. That is no outage: it stays so.
    TooLong,
}

/// The cached result for credentials.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// `None` if the credentials are not valid.
    pub user: Option<Arc<UserInfo>>,
    pub until: Instant,
    /// [`Revoked::missed`] before a token was reviewed. It says nothing about certificates.
    pub missed: u64,
    /// What a token rests on that stands without a new review.
    pub on: Option<Arc<[There]>>,
    /// The apiserver is away, and this is what a token counted for before.
    pub kept: bool,
}

/// What a token counts for that was accepted last.
#[derive(Clone, Debug)]
struct Kept {
    user: Arc<UserInfo>,
    /// Until when it was known by the usual rules.
    until: Instant,
    missed: u64,
    on: Option<Arc<[There]>>,
}

/// A token that was accepted before, as far as it is known without a review.
#[derive(Clone, Debug)]
pub struct Recalled {
    /// The user that its requests are charged to.
    pub payer: Payer,
    /// Whether the apiserver accepts the token itself.
    pub is_accepted: bool,
    /// Hashes: for what the apiserver says, and for what is known of the token.
    token: [u8; 32],
    known: [u8; 32],
}

/// The credentials themselves, to authenticate again while a stream is open.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Token(Secret),
    Certificate(Arc<[CertificateDer<'static>]>),
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
}

// === impl Authenticator ===

impl Authenticator {
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn new(
        config: &AuthConfig,
        reviews: Arc<Reviews>,
        client_ca: Option<Arc<ClientCa>>,
        revoked: Arc<Revoked>,
        standing: Standing,
    ) -> Result<Self, StartError> {
        // Half of `ttl`, so that a deleted pod is noticed within `ttl`.
        let pods = config.node.is_none().then(|| Pods::new(Arc::clone(&reviews), config.token_ttl / 2));
        let lifetime = EndsAt::<Known>(|known| known.until);
        let longest = config.token_ttl.saturating_add(config.max_away_age).min(DAY);
        let kept = Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(longest).build();
        Ok(Self {
            kept,
            reviews,
            pods,
            client_ca,
            audiences: config.audiences.clone(),
            node: config.node.clone(),
            ttl: config.token_ttl,
            remembered: Cache::builder().max_capacity(MAX_REMEMBERED).expire_after(lifetime).build(),
            surprising: Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(LONGEST_SURPRISE).build(),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())?,
            revoked,
            standing,
        })
    }

    /// Authenticates a request that came over a connection with these certificates.
    ///
    /// An accepted certificate takes precedence over a token, as in the apiserver. If the certificate is not accepted,
    /// the token decides.
    ///
    /// # Errors
    /// The credentials cannot be checked now.
    pub(super) async fn authenticate(
        &self,
        certificates: Option<&Arc<[CertificateDer<'static>]>>,
        headers: &HeaderMap,
    ) -> Result<Who, Unavailable> {
        if let Some(chain) = certificates {
            let known = self.certificate(chain).await?;
            if known.user.is_some() {
                return Ok(Who::User(known, Source::Certificate(Arc::clone(chain))));
            }
        }
        match bearer::token(headers) {
            Some(token) if token.len() > MAX_TOKEN => Ok(Who::TooLong),
            Some(token) => {
                let known = self.token(&token).await?;
                Ok(match &known.user {
                    Some(_) => Who::User(known, Source::Token(Secret::new(&token))),
                    None => Who::Invalid,
                })
            }
            None if certificates.is_some() => Ok(Who::Invalid),
            None => Ok(Who::Nobody),
        }
    }

    /// Checks credentials again that were accepted before.
    ///
    /// # Errors
    /// The credentials cannot be checked now.
    pub(super) async fn again(&self, source: &Source) -> Result<Known, Unavailable> {
        match source {
            Source::Token(token) => self.token(token.expose()).await,
            Source::Certificate(chain) => self.certificate(chain).await,
        }
    }

    /// A token that was accepted before.
    pub(super) async fn recall(&self, headers: &HeaderMap) -> Option<Recalled> {
        let token = bearer::token(headers).filter(|token| token.len() <= MAX_TOKEN)?;
        let hash = self.hash_of_token(&token, self.revoked.missed());
        let user = self.remembered.get(&hash).await?.user.filter(|user| !self.revoked.covers(user))?;
        let token = self.hash(b"said", [token.as_bytes()]);
        let is_accepted = self.surprising.contains_key(&token) != self.is_for_the_apiserver();
        Some(Recalled { payer: Payer::of(&user), is_accepted, token, known: hash })
    }

    /// Records what the apiserver has said to a token.
    pub(super) async fn said(&self, of: &Recalled, is_accepted: bool) {
        if !is_accepted && self.is_for_the_apiserver() {
            self.standing.forget(&of.known).await;
            self.kept.invalidate(&of.token).await;
            // At once only if it stands: a server behind the apiserver may refuse it again and again.
            if self.remembered.get(&of.known).await.is_some_and(|known| known.on.is_some()) {
                self.remembered.invalidate(&of.known).await;
            }
        }
        match is_accepted == self.is_for_the_apiserver() {
            _ if is_accepted == of.is_accepted => {}
            true => self.surprising.invalidate(&of.token).await,
            false => self.surprising.insert(of.token, ()).await,
        }
    }

    /// Whether a token that is accepted here is one for the apiserver, as long as that has said nothing else to it. One for
    /// our audiences may be for them alone.
    fn is_for_the_apiserver(&self) -> bool {
        self.audiences.is_empty()
    }

    /// How long the apiserver may still accept a token that is not valid here. `None` means without limit, because
    /// different tokens are accepted here.
    pub(super) fn doubt(&self) -> Option<Duration> {
        (self.audiences.is_empty() && self.node.is_none()).then_some(self.ttl)
    }

    /// Whether what is known of these credentials has to be asked for again: they are a token, and the deletion of what it
    /// is bound to may have been missed.
    pub(super) fn is_outdated(&self, source: &Source, known: &Known) -> bool {
        matches!(source, Source::Token(_)) && (known.missed != self.revoked.missed() || !known.holds())
    }

    /// The approximate number of cached credentials.
    pub(super) fn remembered(&self) -> u64 {
        self.remembered.entry_count()
    }

    async fn token(&self, token: &str) -> Result<Known, Unavailable> {
        let (asked, missed) = (Instant::now(), self.revoked.missed());
        let hash = self.hash_of_token(token, missed);
        let mut known = self.known(token, hash, missed).await?;
        // The cache has a clock of its own.
        if !known.holds() || known.until < asked {
            self.remembered.invalidate(&hash).await;
            known = Box::pin(self.known(token, hash, missed)).await?;
        }
        // A deletion that was seen in the meantime overrides the cached result, including results of caches elsewhere.
        if known.user.as_deref().is_some_and(|user| self.revoked.covers(user)) {
            return Ok(Known { user: None, ..known });
        }
        if known.on.is_some() {
            return Ok(known);
        }
        let Some((pods, user)) = self.pods.as_ref().zip(known.user.as_deref()) else { return Ok(known) };
        match pods.of(user).await {
            Ok(Some(Seen { there: Some(false), until })) => {
                self.kept.invalidate(&self.hash(b"said", [token.as_bytes()])).await;
                Ok(Known { user: None, until, ..known })
            }
            Ok(Some(Seen { there: Some(true), until })) => Ok(Known { until: known.until.min(until), ..known }),
            // The pod's state is unknown, so the apiserver's verdict on the token itself stands.
            Ok(Some(Seen { there: None, .. }) | None) | Err(_) => Ok(known),
        }
    }

    async fn known(&self, token: &str, hash: [u8; 32], missed: u64) -> Result<Known, Unavailable> {
        let known = self.remembered.try_get_with(hash, self.learn(token, hash, missed)).await;
        known.map_err(|error| Unavailable::clone(&error))
    }

    async fn learn(&self, token: &str, hash: [u8; 32], missed: u64) -> Result<Known, Unavailable> {
        // Take the time before the review: the verdict may be as old as the question.
        let (asked, losses) = (Instant::now(), self.standing.losses());
        if let Some(Stands { user, until, on }) = Box::pin(self.standing.again(&hash)).await {
            let until = until.min(asked + life(token, self.ttl));
            // The watches show that it is still good, as a review would.
            self.keep(token, Kept { user: Arc::clone(&user), until, missed, on: Some(Arc::clone(&on)) }).await;
            return Ok(Known { user: Some(user), until, missed, on: Some(on), kept: false });
        }
        let status = match self.reviews.token(token, &self.audiences).await {
            Err(Unavailable::Away) => return self.kept(token, missed).await,
            status => status?,
        };
        let meant_for_us =
            self.audiences.is_empty() || status.audiences.iter().any(|audience| self.audiences.contains(audience));
        let at_home = self.node.as_deref().is_none_or(|node| status.user.extra(NODE_NAME) == Some(node));
        let accepted = status.authenticated && !status.user.username.is_empty() && meant_for_us && at_home;
        let until = asked + life(token, self.ttl);
        let user = accepted.then(|| Arc::new(status.user));
        self.standing.forget(&hash).await;
        let is_refused =
            self.is_for_the_apiserver() && self.surprising.contains_key(&self.hash(b"said", [token.as_bytes()]));
        match user.as_ref().filter(|_| !is_refused) {
            Some(user) => {
                self.standing.accept(hash, token, user, (asked, losses)).await;
                self.keep(token, Kept { user: Arc::clone(user), until, missed, on: None }).await;
            }
            None => self.kept.invalidate(&self.hash(b"said", [token.as_bytes()])).await,
        }
        Ok(Known { user, until, missed, on: None, kept: false })
    }

    async fn keep(&self, token: &str, kept: Kept) {
        self.kept.insert(self.hash(b"said", [token.as_bytes()]), kept).await;
    }

    /// What a token counts for while the apiserver is away: what it counted for before, if nothing has shown since that it ended.
    ///
    /// # Errors
    /// It was not accepted last, or too long ago.
    async fn kept(&self, token: &str, missed: u64) -> Result<Known, Unavailable> {
        let kept = self.kept.get(&self.hash(b"said", [token.as_bytes()])).await.ok_or(Unavailable::Away)?;
        let now = Instant::now();
        let left = self.left(token).ok_or(Unavailable::Away)?;
        if left.is_zero() {
            return Ok(Known { user: None, until: now + LEAST_LIFE, missed, on: None, kept: true });
        }
        // What was missed may have been its end.
        let holds = kept.missed == missed && kept.on.iter().flat_map(|on| on.iter()).all(There::holds);
        let used = self.reviews.outage.uses(kept.until).filter(|_| holds);
        let (again, _) = used.ok_or(Unavailable::Away)?;
        let until = now.checked_add(left).map_or(again, |end| again.min(end));
        Ok(Known { user: Some(kept.user), until, missed, on: None, kept: true })
    }

    /// How long a token claims to be valid still, by the later of this machine's clock and the apiserver's. `None` if the time is not
    /// known.
    fn left(&self, token: &str) -> Option<Duration> {
        let Some(end) = claims::<Claims>(token).and_then(|claims| claims.exp) else { return Some(Duration::MAX) };
        let now = now()?;
        let now = self.reviews.time().map_or(now, |time| time.max(now));
        Some(Duration::try_from_secs_f64(end - now).unwrap_or_default())
    }

    async fn certificate(&self, chain: &Arc<[CertificateDer<'static>]>) -> Result<Known, Unavailable> {
        // What is not valid now is of no use for the verdict.
        let now_valid = |now: f64| {
            let ends = chain.iter().filter_map(|certificate| certificate::validity(certificate)).map(|(_, end)| end);
            ends.filter_map(|end| Duration::try_from_secs_f64(end as f64 - now).ok()).min()
        };
        let life = self.ttl.min(now().and_then(now_valid).unwrap_or(self.ttl));
        let known = |user| Known { user, until: Instant::now() + life, missed: 0, on: None, kept: false };
        let Some(client_ca) = &self.client_ca else { return Ok(known(None)) };
        let generation = client_ca.generation().to_be_bytes();
        let parts = chain.iter().map(AsRef::as_ref).chain([&generation[..]]);
        let verify = async {
            match client_ca.verify(chain) {
                Ok(user) => Ok(known(Some(Arc::new(user)))),
                Err(NotVerified::Invalid(error)) => {
                    tracing::debug!(error, "a client certificate is refused");
                    Ok(known(None))
                }
                Err(NotVerified::NoCa) => Err(Unavailable::Failed("the CA of client certificates is not known".into())),
            }
        };
        let known = self.remembered.try_get_with(self.hash(b"certificate", parts), verify).await;
        known.map_err(|error| Unavailable::clone(&error))
    }

    /// Nothing is found that was known before deletions may have been missed.
    fn hash_of_token(&self, token: &str, missed: u64) -> [u8; 32] {
        self.hash(b"token", [token.as_bytes(), &missed.to_be_bytes()])
    }

    fn hash<'a>(&self, kind: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(kind);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.sign().as_ref());
        hash
    }
}

// === impl Known ===

impl Known {
    /// Nothing that it rests on may have ended.
    fn holds(&self) -> bool {
        self.on.iter().flat_map(|on| on.iter()).all(There::holds)
    }
}

/// How long the review of a token is cached.
pub(super) fn life(token: &str, ttl: Duration) -> Duration {
    expiry(token).map_or(ttl, |left| left.max(LEAST_LIFE).min(ttl))
}

/// The remaining validity that a JWT claims. Its signature is not checked: the claim can only shorten what the
/// apiserver has accepted.
fn expiry(token: &str) -> Option<Duration> {
    let Claims { exp } = claims(token)?;
    Some(Duration::try_from_secs_f64(exp? - now()?).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
#[path = "authenticator_tests.rs"]
mod tests;
