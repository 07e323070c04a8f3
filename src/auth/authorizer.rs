//! Authorization by SubjectAccessReviews. Decisions are cached until rights change.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::time::{Instant, timeout};

use super::attributes::Attributes;
use super::config::AuthConfig;
use super::ends_at::EndsAt;
use super::metrics::AuthMetrics;
use super::rbac_generations::{Generation, RbacGenerations};
use super::review::{Reviews, Unavailable};
use super::settling::SETTLES;
use super::shares::{Share, Shares};
use super::user::{MASTERS, UserInfo};

/// The most memory for cached decisions.
const MAX_BYTES: u64 = 32 << 20;
/// The most memory for those that count while the apiserver is away. No decision is among them for longer than a day.
const MAX_KEPT_BYTES: u64 = 16 << 20;
const DAY: Duration = Duration::from_secs(86_400);
/// Larger questions are reviewed each time, as in the apiserver's own library.
const MAX_REMEMBERED: usize = 10_000;
/// How long an allowed access is cached if informerd would not see that it ends.
pub(super) const UNTOLD_TTL: Duration = Duration::from_secs(10);
/// How long a question waits for its review if there is an older answer, from before the rights have settled. After
/// that the older answer is used, and the question is asked again later.
const PATIENCE: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(5);
/// An older answer is looked up in this many generations: a change in one namespace may settle together with a change
/// in all namespaces.
const OLDER: u64 = 2 * SETTLES.len() as u64;
/// The prefix of the reason of every access that RBAC allowed. Other authorizers decide by state that is not watched
/// here: the pods of a node, or a webhook's own rules.
pub(super) const BY_RBAC: &str = "RBAC: allowed by ";

/// Decides accesses.
pub(super) struct Authorizer {
    reviews: Arc<Reviews>,
    generations: Arc<RbacGenerations>,
    shares: Arc<Shares>,
    /// How long an allowed access stays allowed without a new review.
    pub(super) allow_ttl: Duration,
    deny_ttl: Duration,
    decisions: Cache<DecisionKey, Arc<Decision>>,
    /// Accesses that were allowed last, with the generation of [`DecisionKey::to_keep`]. They count while the apiserver is away.
    kept: Cache<DecisionKey, Arc<Decision>>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub allowed: bool,
    /// The reason for a denial, as far as the authorizers give one. It is part of the answer.
    pub reason: String,
    /// The decision must not be used after this time.
    pub until: Instant,
    /// The review must be repeated at this time.
    pub again: Instant,
    /// The generation of the rights that the decision was made with.
    pub generation: Generation,
    /// The apiserver is away, and this is what it said before.
    pub kept: bool,
}

/// How a question is asked: who pays for the review, and whether a cached decision may answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    /// The user who pays for the review. `None` for the rights of open streams, which have a limit of their own.
    pub payer: Option<&'a UserInfo>,
    pub memory: Memory,
}

/// Whether a cached decision may answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Good,
    /// Only a decision that is made from now on counts.
    Doubtful,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DecisionKey {
    generation: Generation,
    user: Arc<UserInfo>,
    attributes: Arc<Attributes>,
}

/// What ends the validity of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// A change of roles or bindings, which are watched.
    OfRights,
    /// An event that informerd would not see.
    Untold,
    Denied,
}

// === impl Authorizer ===

impl Authorizer {
    pub(super) fn new(
        config: &AuthConfig,
        reviews: Arc<Reviews>,
        generations: Arc<RbacGenerations>,
        metrics: Arc<AuthMetrics>,
    ) -> Self {
        let weigher = |key: &DecisionKey, decision: &Arc<Decision>| {
            let bytes =
                size_of::<DecisionKey>() + key.user.size() + key.attributes.size() + decision.reason.len() + 256;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let lifetime = EndsAt::<Arc<Decision>>(|decision| decision.again);
        let longest = config.allow_ttl.saturating_add(config.max_away_age).min(DAY);
        Self {
            reviews,
            generations,
            shares: Arc::new(Shares::new(config.max_user_rights, config.max_user_streams, metrics)),
            allow_ttl: config.allow_ttl,
            deny_ttl: config.deny_ttl,
            decisions: Cache::builder().max_capacity(MAX_BYTES).weigher(weigher).expire_after(lifetime).build(),
            kept: Cache::builder().max_capacity(MAX_KEPT_BYTES).weigher(weigher).time_to_live(longest).build(),
        }
    }

    /// Whether this user may do this. Equal questions that wait at the same time share one review.
    ///
    /// # Errors
    /// The access cannot be decided now.
    pub(super) async fn authorize(
        &self,
        user: &Arc<UserInfo>,
        attributes: &Arc<Attributes>,
        asking: Asking<'_>,
    ) -> Result<Arc<Decision>, Unavailable> {
        let generation = self.generations.of(&attributes.namespace);
        if user.is_in(MASTERS) {
            let until = Instant::now() + self.allow_ttl;
            let reason = String::new();
            return Ok(Arc::new(Decision { allowed: true, reason, until, again: until, generation, kept: false }));
        }
        if user.size() + attributes.size() > MAX_REMEMBERED {
            return self.review(user, attributes, generation, asking.payer).await;
        }
        // A decision that was in flight when the rights changed has an old generation, so it is never found.
        let key = DecisionKey { generation, user: Arc::clone(user), attributes: Arc::clone(attributes) };
        if asking.memory == Memory::Good {
            let asked = Instant::now();
            let decision = self.decisions.try_get_with(key.clone(), self.decide(&key, asking.payer)).await;
            let decision = decision.map_err(|error| Unavailable::clone(&error))?;
            // The cache has a clock of its own.
            let until = if decision.kept { decision.again } else { decision.until };
            if until >= asked {
                return Ok(decision);
            }
        }
        let decision = match self.reviewed(&key, asking.payer).await {
            Err(Unavailable::Away) if asking.memory == Memory::Good => self.kept(&key).await?,
            decision => decision?,
        };
        self.decisions.insert(key, Arc::clone(&decision)).await;
        Ok(decision)
    }

    async fn decide(&self, key: &DecisionKey, payer: Option<&UserInfo>) -> Result<Arc<Decision>, Unavailable> {
        let review = async {
            match self.reviewed(key, payer).await {
                Err(Unavailable::Away) => self.kept(key).await,
                decision => decision,
            }
        };
        let Some(older) = self.older(key).await else { return review.await };
        // The rights have not changed since the older answer. So it is still as good as before, even without reviews.
        if let Ok(Ok(decision)) = timeout(PATIENCE, review).await {
            return Ok(decision);
        }
        let again = older.until.min(Instant::now() + LATER);
        Ok(Arc::new(Decision { again, generation: key.generation, ..Decision::clone(&older) }))
    }

    /// A decision with the same rights, from before they settled further.
    async fn older(&self, key: &DecisionKey) -> Option<Arc<Decision>> {
        let Generation { change, settle } = key.generation;
        for settle in (settle.saturating_sub(OLDER)..settle).rev() {
            let key = DecisionKey { generation: Generation { change, settle }, ..key.clone() };
            // What is kept counts only while the apiserver is away, and is looked up anew then.
            let is_good = |older: &Arc<Decision>| !older.kept && older.until > Instant::now();
            if let Some(older) = self.decisions.get(&key).await.filter(is_good) {
                return Some(older);
            }
        }
        None
    }

    /// Asks the apiserver, and remembers what it allows for times when it is away.
    async fn reviewed(&self, key: &DecisionKey, payer: Option<&UserInfo>) -> Result<Arc<Decision>, Unavailable> {
        let decision = self.review(&key.user, &key.attributes, key.generation, payer).await?;
        // If the rights have settled further meanwhile, a denial may have come that was asked for later.
        let is_present = self.generations.of(&key.attributes.namespace) == key.generation;
        match decision.allowed {
            true if is_present => self.kept.insert(key.to_keep(), Arc::clone(&decision)).await,
            true => {}
            false => self.kept.invalidate(&key.to_keep()).await,
        }
        Ok(decision)
    }

    /// The decision while the apiserver is away: what was allowed last with the same rights.
    ///
    /// # Errors
    /// It was not allowed last, or too long ago, or rights have changed since.
    async fn kept(&self, key: &DecisionKey) -> Result<Arc<Decision>, Unavailable> {
        let last = self.kept.get(&key.to_keep()).await.filter(|last| last.allowed).ok_or(Unavailable::Away)?;
        let (again, until) = self.reviews.outage.uses(last.until).ok_or(Unavailable::Away)?;
        Ok(Arc::new(Decision { again, until, generation: key.generation, kept: true, ..Decision::clone(&last) }))
    }

    /// Charges the user for the questions whose decisions an open stream depends on.
    ///
    /// # Errors
    /// The user would exceed its limit.
    pub(super) fn hold(
        &self,
        payer: &UserInfo,
        subject: &Arc<UserInfo>,
        questions: HashSet<&Arc<Attributes>>,
        streams: usize,
    ) -> Result<Share, Unavailable> {
        let question = |question: &Arc<Attributes>| (Arc::clone(subject), Arc::clone(question));
        self.shares.rights(payer, questions.into_iter().map(question).collect(), streams)
    }

    /// The error for a read that needs more questions than one read may ask.
    pub(super) fn too_many_questions(&self) -> Unavailable {
        self.shares.refuse("the read needs too many decisions; read whole namespaces, or less at once")
    }

    /// The approximate number of cached decisions.
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
            // The apiserver answers such a request with an error and not with a refusal.
            return Err(Unavailable::Failed(status.evaluation_error));
        }
        let life = match life(allowed, &status.reason) {
            Life::OfRights if self.generations.is_watched() => self.allow_ttl,
            Life::OfRights | Life::Untold => self.allow_ttl.min(UNTOLD_TTL),
            Life::Denied => self.deny_ttl,
        };
        let until = asked + life;
        Ok(Arc::new(Decision { allowed, reason: status.reason, until, again: until, generation, kept: false }))
    }
}

// === impl DecisionKey ===

impl DecisionKey {
    /// With the last change of the rights, however far it has settled.
    fn to_keep(&self) -> Self {
        Self { generation: Generation { settle: 0, ..self.generation }, ..self.clone() }
    }
}

/// For a denial the authorizer is unknown: RBAC may give no reason, and neither may others.
fn life(allowed: bool, reason: &str) -> Life {
    match allowed {
        true if reason.starts_with(BY_RBAC) => Life::OfRights,
        true => Life::Untold,
        false => Life::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::client::Upstream;
    use crate::auth::testing::{allowing, reviews_by, watch_of};

    fn decision(until: Instant, again: Instant) -> Arc<Decision> {
        let (reason, generation) = (String::new(), Generation::default());
        Arc::new(Decision { allowed: true, reason, until, again, generation, kept: false })
    }

    #[tokio::test]
    async fn a_decision_is_used_for_its_own_time() {
        // No review is answered.
        let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
        let (config, metrics) = (AuthConfig::default(), Arc::<AuthMetrics>::default());
        let reviews = Arc::new(reviews_by(upstream, &config, &metrics));
        let authorizer = Authorizer::new(&config, reviews, Arc::new(RbacGenerations::default()), metrics);
        let (user, attributes) = (Arc::<UserInfo>::default(), Arc::<Attributes>::default());
        let generation = authorizer.generations.of("");
        let key = DecisionKey { generation, user: Arc::clone(&user), attributes: Arc::clone(&attributes) };
        let asking = Asking { payer: None, memory: Memory::Good };
        let soon = Duration::from_millis(100);
        let (now, later) = (Instant::now(), Instant::now() + 3000 * soon);
        authorizer.decisions.insert(key.clone(), decision(now + soon, now + soon)).await;
        authorizer.decisions.insert(key.clone(), decision(later, later)).await;
        tokio::time::sleep(2 * soon).await;
        assert!(authorizer.authorize(&user, &attributes, asking).await.is_ok(), "the second one is still good");
        // One that is still there after its end is not used.
        authorizer.decisions.insert(key, decision(now + soon, later)).await;
        assert!(authorizer.authorize(&user, &attributes, asking).await.is_err());
        // A large one is always asked for.
        for (more, is_remembered) in [(0, true), (1, false)] {
            let name = "x".repeat(MAX_REMEMBERED - user.size() - attributes.size() + more);
            let large = Arc::new(Attributes { name, ..Attributes::default() });
            let key = DecisionKey { generation, user: Arc::clone(&user), attributes: Arc::clone(&large) };
            authorizer.decisions.insert(key, decision(later, later)).await;
            assert_eq!(authorizer.authorize(&user, &large, asking).await.is_ok(), is_remembered);
        }
        for n in 0..64 {
            let attributes = Arc::new(Attributes { name: n.to_string(), ..Attributes::default() });
            let key = DecisionKey { generation, user: Arc::clone(&user), attributes };
            let large = Decision { reason: "x".repeat(1 << 20), ..Decision::clone(&decision(later, later)) };
            authorizer.decisions.insert(key, Arc::new(large)).await;
        }
        authorizer.decisions.run_pending_tasks().await;
        assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&authorizer.decisions.weighted_size()));
        assert_eq!(authorizer.kept.policy().max_capacity(), Some(MAX_KEPT_BYTES));
    }

    /// While a change of rights settles, the answer from before is as good as it was.
    #[tokio::test]
    async fn an_older_answer_stands_in_for_a_review_until_rights_change() {
        let (rights, access, _server) = allowing(&[("jane", "a")], &AuthConfig::default()).await;
        let delegated = access.delegated.as_ref().unwrap();
        let (authorizer, generations) = (&delegated.authorizer, &delegated.generations);
        let [jane, root] = [("jane", "x"), ("root", MASTERS)].map(|(username, group)| {
            let groups = vec![group.to_owned()];
            Arc::new(UserInfo { username: username.into(), groups, ..UserInfo::default() })
        });
        let watch = watch_of("a");
        let ask = async |user, memory| authorizer.authorize(user, &watch, Asking { payer: None, memory }).await;
        for (asked, memory) in [(1, Memory::Doubtful), (2, Memory::Doubtful), (2, Memory::Good), (3, Memory::Doubtful)]
        {
            let decision = ask(&jane, memory).await.unwrap();
            assert_eq!((decision.allowed, rights.asked.lock().len()), (true, asked));
            assert_eq!(decision.until > Instant::now() + UNTOLD_TTL, asked > 1, "the rights are watched");
            generations.set_watched(true);
        }
        rights.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
        generations.settle("a");
        let (before, older) = (Instant::now(), ask(&jane, Memory::Good).await.unwrap());
        assert!(older.allowed && older.generation == generations.of("a"));
        assert!(before < older.again && older.again <= Instant::now() + LATER, "it is tried again");
        assert!(ask(&root, Memory::Doubtful).await.unwrap().until > before, "needs no review");
        generations.change("a");
        assert!(ask(&jane, Memory::Good).await.is_err());
    }

    #[tokio::test]
    async fn while_the_apiserver_is_away_an_access_counts_that_was_allowed_last_with_the_same_rights() {
        let ttl = Duration::from_millis(1);
        let config = AuthConfig { allow_ttl: ttl, deny_ttl: ttl, ..AuthConfig::default() };
        let (rights, access, _server) = allowing(&[("jane", "a"), ("jane", "b"), ("jane", "c")], &config).await;
        let delegated = access.delegated.as_ref().unwrap();
        let (authorizer, generations) = (&delegated.authorizer, &delegated.generations);
        let user = |username: &str| UserInfo { username: username.into(), ..UserInfo::default() };
        let (jane, joe) = (Arc::new(user("jane")), Arc::new(user("joe")));
        let in_group = Arc::new(UserInfo { groups: vec!["g".into()], ..user("jane") });
        let ask = async |user, attributes: &Arc<Attributes>, memory| {
            tokio::time::sleep(20 * ttl).await;
            authorizer.authorize(user, attributes, Asking { payer: None, memory }).await
        };
        let [a, b, c, d] = ["a", "b", "c", "d"].map(watch_of);
        for (access, expected) in [(&a, true), (&b, true), (&c, true), (&d, false)] {
            assert_eq!(ask(&jane, access, Memory::Good).await.unwrap().allowed, expected);
        }
        rights.given.lock().remove(&("jane".to_owned(), "c".to_owned()));
        assert!(!ask(&jane, &c, Memory::Good).await.unwrap().allowed);

        let (begun, asked) = (Instant::now(), rights.asked.lock().len());
        delegated.outage.begin(begun);
        let kept = ask(&jane, &a, Memory::Good).await.unwrap();
        assert!(kept.allowed && kept.kept && kept.generation == generations.of("a"));
        assert!(begun + Duration::from_secs(5) <= kept.again && kept.again <= kept.until);
        assert!(kept.until <= Instant::now() + Duration::from_secs(20));
        let named = Arc::new(Attributes { name: "n".into(), ..Attributes::clone(&a) });
        for (user, access, memory) in [
            (&joe, &a, Memory::Good),
            (&in_group, &a, Memory::Good),
            (&jane, &named, Memory::Good),
            (&jane, &c, Memory::Good),
            (&jane, &d, Memory::Good),
            (&jane, &a, Memory::Doubtful),
        ] {
            assert_eq!(ask(user, access, memory).await, Err(Unavailable::Away), "{user:?} {access:?}");
        }
        for _ in SETTLES {
            generations.settle("a");
            assert!(ask(&jane, &a, Memory::Good).await.unwrap().kept, "the same rights");
        }
        generations.change("b");
        assert_eq!(ask(&jane, &b, Memory::Good).await, Err(Unavailable::Away), "rights have changed");
        assert_eq!(rights.asked.lock().len(), asked, "nobody is asked");

        // Afterwards, reviews count. Without one, nothing that is kept stands in for them.
        delegated.outage.end();
        rights.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(ask(&jane, &a, Memory::Good).await.unwrap().kept, "for some seconds");
        generations.settle("a");
        assert!(ask(&jane, &a, Memory::Good).await.is_err());
    }

    #[tokio::test]
    async fn what_was_asked_before_rights_have_settled_further_is_not_kept() {
        let (_rights, access, _server) = allowing(&[("jane", "a")], &AuthConfig::default()).await;
        let delegated = access.delegated.as_ref().unwrap();
        let (authorizer, generations) = (&delegated.authorizer, &delegated.generations);
        let user = Arc::new(UserInfo { username: "jane".into(), ..UserInfo::default() });
        let key = DecisionKey { generation: generations.of("a"), user, attributes: watch_of("a") };
        for is_kept in [true, false] {
            assert!(authorizer.reviewed(&key, None).await.unwrap().allowed);
            assert_eq!(authorizer.kept.get(&key.to_keep()).await.is_some(), is_kept);
            authorizer.kept.invalidate(&key.to_keep()).await;
            generations.settle("a");
        }
    }

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
