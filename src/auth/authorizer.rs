//! May they: SubjectAccessReviews, remembered until rights change.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use moka::Expiry;
use moka::future::Cache;
use tokio::time::{Instant, timeout};

use super::attributes::Attributes;
use super::config::AuthConfig;
use super::cover::Answer;
use super::metrics::AuthMetrics;
use super::rbac_generations::{Generation, RbacGenerations};
use super::review::{Reviews, Unavailable};
use super::settling::SETTLES;
use super::shares::{RightsShare, Shares};
use super::user::{MASTERS, UserInfo};

/// Memory of all remembered decisions.
const MAX_BYTES: u64 = 32 << 20;
/// Larger questions are asked each time, as the apiserver's own library does it.
const MAX_REMEMBERED: usize = 10_000;
/// How long an allowed access is remembered whose end nobody would tell of.
const UNTOLD_TTL: Duration = Duration::from_secs(10);
/// How long a question waits for its answer where an answer from before the rights have settled is there already. After that
/// the old one counts, and the question is asked again later.
const PATIENCE: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(5);
/// An older answer is looked for in as many places: a change in a namespace may settle together with one of all.
const OLDER: u64 = 2 * SETTLES.len() as u64;
/// How the reason of every access begins that RBAC has allowed. Other authorizers decide by what is not watched here: the
/// pods of a node, a webhook's own rules.
const BY_RBAC: &str = "RBAC: allowed by ";

/// Decides accesses.
pub(super) struct Authorizer {
    reviews: Arc<Reviews>,
    generations: Arc<RbacGenerations>,
    shares: Arc<Shares>,
    allow_ttl: Duration,
    deny_ttl: Duration,
    decisions: Cache<Key, Arc<Decision>>,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub allowed: bool,
    /// Why not, as far as the authorizers say; part of the answer.
    pub reason: String,
    /// Not to be taken for an answer after that.
    pub until: Instant,
    /// To be asked for again then.
    pub again: Instant,
    /// The generation of the rights that decided it.
    pub generation: Generation,
}

/// On which terms something is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    /// The user who pays for the review; none for the rights of open streams, which have a bound of their own.
    pub payer: Option<&'a UserInfo>,
    pub memory: Memory,
}

/// Whether what is remembered answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Good,
    /// Only what is decided from now on does.
    Doubtful,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    generation: Generation,
    user: Arc<UserInfo>,
    attributes: Arc<Attributes>,
}

/// What ends a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// A change of roles and bindings, which are watched.
    OfRights,
    /// Something that nobody tells of.
    Untold,
    Denied,
}

struct Lifetime;

// === impl Authorizer ===

impl Authorizer {
    pub(super) fn new(
        config: &AuthConfig,
        reviews: Arc<Reviews>,
        generations: Arc<RbacGenerations>,
        metrics: Arc<AuthMetrics>,
    ) -> Self {
        let weigher = |key: &Key, decision: &Arc<Decision>| {
            let bytes = size_of::<Key>() + key.user.size() + key.attributes.size() + decision.reason.len() + 256;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        Self {
            reviews,
            generations,
            shares: Arc::new(Shares::new(config.max_user_rights, metrics)),
            allow_ttl: config.allow_ttl,
            deny_ttl: config.deny_ttl,
            decisions: Cache::builder().max_capacity(MAX_BYTES).weigher(weigher).expire_after(Lifetime).build(),
        }
    }

    /// Whether this user may do this. Equal questions that wait together are asked once.
    ///
    /// # Errors
    /// It cannot be told now.
    pub(super) async fn authorize(
        &self,
        user: &Arc<UserInfo>,
        attributes: &Arc<Attributes>,
        asking: Asking<'_>,
    ) -> Result<Arc<Decision>, Unavailable> {
        let generation = self.generations.of(&attributes.namespace);
        if user.is_in(MASTERS) {
            let until = Instant::now() + self.allow_ttl;
            return Ok(Arc::new(Decision { allowed: true, reason: String::new(), until, again: until, generation }));
        }
        if user.size() + attributes.size() > MAX_REMEMBERED {
            return self.review(user, attributes, generation, asking.payer).await;
        }
        // A decision that was under way when rights changed has an old generation, and is found by nobody.
        let key = Key { generation, user: Arc::clone(user), attributes: Arc::clone(attributes) };
        if asking.memory == Memory::Doubtful {
            let decision = self.review(user, attributes, generation, asking.payer).await?;
            self.decisions.insert(key, Arc::clone(&decision)).await;
            return Ok(decision);
        }
        let decision = self.decisions.try_get_with(key.clone(), self.decide(&key, asking.payer)).await;
        decision.map_err(|error| Unavailable::clone(&error))
    }

    async fn decide(&self, key: &Key, payer: Option<&UserInfo>) -> Result<Arc<Decision>, Unavailable> {
        let review = self.review(&key.user, &key.attributes, key.generation, payer);
        let Some(older) = self.older(key).await else { return review.await };
        // Nothing has changed since the older answer. So it is no worse without reviews than it was before.
        if let Ok(Ok(decision)) = timeout(PATIENCE, review).await {
            return Ok(decision);
        }
        let again = older.until.min(Instant::now() + LATER);
        Ok(Arc::new(Decision { again, generation: key.generation, ..Decision::clone(&older) }))
    }

    /// What was decided by the same rights before they had settled further.
    async fn older(&self, key: &Key) -> Option<Arc<Decision>> {
        let Generation { change, settle } = key.generation;
        for settle in (settle.saturating_sub(OLDER)..settle).rev() {
            let key = Key { generation: Generation { change, settle }, ..key.clone() };
            if let Some(older) = self.decisions.get(&key).await.filter(|older| older.until > Instant::now()) {
                return Some(older);
            }
        }
        None
    }

    /// How long an allowed access stays allowed without being asked for again.
    pub(super) fn allow_ttl(&self) -> Duration {
        self.allow_ttl
    }

    /// Counts what an open stream of this user rests on.
    ///
    /// # Errors
    /// It is more than the user may have.
    pub(super) fn hold(
        &self,
        payer: &UserInfo,
        subject: &Arc<UserInfo>,
        answers: &[Answer],
    ) -> Result<RightsShare, Unavailable> {
        let question = |answer: &Answer| (Arc::clone(subject), Arc::clone(&answer.question));
        self.shares.rights(payer, answers.iter().map(question).collect())
    }

    /// A read that takes more questions than one may.
    pub(super) fn too_many_questions(&self) -> Unavailable {
        self.shares.refuse("the read needs too many decisions; read whole namespaces, or less at once")
    }

    /// How many decisions are remembered, roughly.
    pub(super) fn remembered(&self) -> u64 {
        self.decisions.entry_count()
    }

    async fn review(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
        generation: Generation,
        payer: Option<&UserInfo>,
    ) -> Result<Arc<Decision>, Unavailable> {
        let _share = payer.map(|payer| self.shares.review(payer)).transpose()?;
        let asked = Instant::now();
        let status = self.reviews.access(user, attributes).await?;
        let allowed = status.allowed && !status.denied;
        if !allowed && !status.evaluation_error.is_empty() {
            // The apiserver answers such a request with an error, not with a refusal.
            return Err(Unavailable::Failed(status.evaluation_error));
        }
        let life = match life(allowed, &status.reason) {
            Life::OfRights if self.generations.is_watched() => self.allow_ttl,
            Life::OfRights | Life::Untold => self.allow_ttl.min(UNTOLD_TTL),
            Life::Denied => self.deny_ttl,
        };
        let until = asked + life;
        Ok(Arc::new(Decision { allowed, reason: status.reason, until, again: until, generation }))
    }
}

/// Who has denied an access cannot be told: RBAC may give no reason, and others may give none either.
fn life(allowed: bool, reason: &str) -> Life {
    match allowed {
        true if reason.starts_with(BY_RBAC) => Life::OfRights,
        true => Life::Untold,
        false => Life::Denied,
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}

#[expect(clippy::disallowed_types, reason = "the signature the cache asks for")]
impl Expiry<Key, Arc<Decision>> for Lifetime {
    fn expire_after_create(&self, _: &Key, decision: &Arc<Decision>, _: std::time::Instant) -> Option<Duration> {
        Some(decision.again.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rbac_allows_lives_as_long_as_rights() {
        let rbac = r#"RBAC: allowed by RoleBinding "space/a" of Role "space" to ServiceAccount "space/a""#;
        assert_eq!(life(true, rbac), Life::OfRights);
        for other in ["", "allowed by a webhook", " RBAC: allowed by", "ABAC"] {
            assert_eq!(life(true, other), Life::Untold, "{other}");
        }
        for reason in ["", rbac, "no relationship found between node 'n' and this object"] {
            assert_eq!(life(false, reason), Life::Denied, "{reason}");
        }
    }
}
