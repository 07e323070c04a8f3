//! Decides many accesses together with few questions: a user that may read a whole namespace may read each object in
//! it, and a user that may read all namespaces may read each of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::task::coop::consume_budget;

use super::attributes::Attributes;
use super::authorizer::{Asking, Authorizer, Decision};
use super::review::Unavailable;
use super::user::UserInfo;

/// The most questions for one read. A read that needs more is refused. A union has at most 256 filters: one question for
/// each, and the one for all namespaces.
pub(super) const MAX_QUESTIONS: usize = 256 + 1;

/// A question, and the decision that allows it. It cannot be made from a denial.
#[derive(Clone, Debug)]
pub(super) struct Allowed {
    question: Arc<Attributes>,
    decision: Arc<Decision>,
}

/// The proof that a read is allowed. It names, for each access of the read, the decision that allows it. There is no
/// proof for a read without any access.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    parts: Vec<Part>,
}

/// One access of a read, and the decision about it or about a wider question that includes it.
#[derive(Clone, Debug)]
struct Part {
    access: Arc<Attributes>,
    by: Allowed,
}

/// The result for all accesses of a read together: the proof, or the first access that is denied, as the client named it, and
/// its index.
#[derive(Debug)]
pub(super) enum Cover {
    All(Proof),
    Denied { at: usize, access: Arc<Attributes>, decision: Arc<Decision> },
}

/// The accesses of one read while they are decided, one question after another. It asks nothing itself.
struct Deciding<'a> {
    wanted: &'a [Arc<Attributes>],
    /// The proof of the same accesses with earlier rights. Its questions are asked first.
    before: Option<&'a Proof>,
    worth_asking: HashSet<Attributes>,
    /// All decisions so far, the denials included.
    decisions: HashMap<Arc<Attributes>, Arc<Decision>>,
    /// What is proved so far: the first accesses of `wanted`.
    parts: Vec<Part>,
}

/// What is missing for a result, or the result.
enum Step {
    Ask(Arc<Attributes>),
    /// One more access is proved.
    Proved,
    Done(Cover),
}

// === impl Authorizer ===

impl Authorizer {
    /// Decides all of these accesses, at least one. A wider question is asked first if its answer would cover several of
    /// them. A denial is always about an access that the client asked for.
    ///
    /// # Errors
    /// The accesses cannot be decided now, or need too many questions.
    pub(super) async fn cover(
        &self,
        user: &Arc<UserInfo>,
        wanted: &[Arc<Attributes>],
        asking: Asking<'_>,
    ) -> Result<Cover, Unavailable> {
        self.decide_all(user, Deciding::new(wanted, None), asking).await
    }

    /// Decides the accesses of an earlier proof again. What allowed them then is asked first.
    ///
    /// # Errors
    /// As for [`Self::cover`].
    pub(super) async fn cover_again(
        &self,
        user: &Arc<UserInfo>,
        before: &Proof,
        asking: Asking<'_>,
    ) -> Result<Cover, Unavailable> {
        let wanted: Vec<_> = before.parts.iter().map(|part| Arc::clone(&part.access)).collect();
        self.decide_all(user, Deciding::new(&wanted, Some(before)), asking).await
    }

    async fn decide_all(
        &self,
        user: &Arc<UserInfo>,
        mut deciding: Deciding<'_>,
        asking: Asking<'_>,
    ) -> Result<Cover, Unavailable> {
        loop {
            // There may be thousands of accesses, and most need no answer from elsewhere.
            consume_budget().await;
            match deciding.step() {
                Some(Step::Ask(_)) if deciding.decisions.len() >= MAX_QUESTIONS => {
                    return Err(self.too_many_questions());
                }
                Some(Step::Ask(question)) => {
                    let decision = self.authorize(user, &question, asking).await?;
                    deciding.decisions.insert(question, decision);
                }
                Some(Step::Proved) => {}
                Some(Step::Done(cover)) => return Ok(cover),
                None => return Err(Unavailable::Failed("no access was named".into())),
            }
        }
    }
}

// === impl Deciding ===

impl<'a> Deciding<'a> {
    fn new(wanted: &'a [Arc<Attributes>], before: Option<&'a Proof>) -> Self {
        let worth_asking = worth_asking(wanted);
        Self { wanted, before, worth_asking, decisions: HashMap::new(), parts: Vec::with_capacity(wanted.len()) }
    }

    /// Decides about the next access, if its decisions are there. `None` if no access is wanted.
    fn step(&mut self) -> Option<Step> {
        let at = self.parts.len();
        let Some(access) = self.wanted.get(at) else {
            let parts = std::mem::take(&mut self.parts);
            return (!parts.is_empty()).then_some(Step::Done(Cover::All(Proof { parts })));
        };
        let mut allowed = None;
        for question in self.wider(at, access) {
            let Some(decision) = self.decisions.get(&question) else { return Some(Step::Ask(question)) };
            allowed = Allowed::by(&question, decision);
            if allowed.is_some() {
                break;
            }
        }
        if allowed.is_none() {
            // Nothing wider allows it. So the decision about the access itself is the one that counts.
            let Some(decision) = self.decisions.get(access) else { return Some(Step::Ask(Arc::clone(access))) };
            allowed = Allowed::by(access, decision);
            if allowed.is_none() {
                let (access, decision) = (Arc::clone(access), Arc::clone(decision));
                return Some(Step::Done(Cover::Denied { at, access, decision }));
            }
        }
        self.parts.extend(allowed.map(|by| Part { access: Arc::clone(access), by }));
        Some(Step::Proved)
    }

    /// The questions that include an access and are asked before the access itself.
    fn wider(&self, at: usize, access: &Arc<Attributes>) -> impl Iterator<Item = Arc<Attributes>> + use<> {
        let before = self.before.and_then(|before| before.parts.get(at)).map(|part| Arc::clone(&part.by.question));
        let unnamed = if self.worth_asking.is_empty() { None } else { access.unnamed() };
        let wider = unnamed.into_iter().flat_map(|unnamed| [unnamed.everywhere(), unnamed]);
        let wider: Vec<_> =
            wider.filter(|wider| *wider != **access && self.worth_asking.contains(wider)).map(Arc::new).collect();
        before.into_iter().chain(wider)
    }
}

// === impl Allowed ===

impl Allowed {
    fn by(question: &Arc<Attributes>, decision: &Arc<Decision>) -> Option<Self> {
        let (question, decision) = (Arc::clone(question), Arc::clone(decision));
        decision.allowed.then_some(Self { question, decision })
    }
}

// === impl Proof ===

impl Proof {
    /// The decisions that the read depends on, and their questions. Those that allow several accesses come several times.
    pub(super) fn decisions(&self) -> impl Iterator<Item = (&Arc<Attributes>, &Decision)> {
        self.parts.iter().map(|part| (&part.by.question, &*part.by.decision))
    }

    /// Each question once.
    pub(super) fn questions(&self) -> HashSet<&Arc<Attributes>> {
        self.decisions().map(|(question, _)| question).collect()
    }
}

// === impl Attributes ===

impl Attributes {
    /// The access to the whole collection in its namespace, if that access includes this one: a user that may list or
    /// watch a collection sees every object in it.
    fn unnamed(&self) -> Option<Self> {
        let is_collection = matches!(self.verb.as_str(), "list" | "watch") && self.path.is_none();
        (is_collection && self.fields.iter().all(|field| field.key != "metadata.name"))
            .then(|| Self { name: String::new(), ..self.clone() })
    }

    /// The same access for all namespaces.
    fn everywhere(&self) -> Self {
        Self { namespace: String::new(), ..self.clone() }
    }
}

/// The wider questions whose answers would cover more than one of these accesses.
fn worth_asking(wanted: &[Arc<Attributes>]) -> HashSet<Attributes> {
    let (mut names, mut namespaces) = (HashMap::new(), HashMap::new());
    if wanted.len() > 1 {
        for unnamed in wanted.iter().filter_map(|attributes| attributes.unnamed()) {
            let first = !names.contains_key(&unnamed);
            *namespaces.entry(unnamed.everywhere()).or_insert(0) += usize::from(first);
            *names.entry(unnamed).or_insert(0) += 1;
        }
    }
    names.into_iter().chain(namespaces).filter(|(_, fits)| *fits > 1).map(|(wider, _)| wider).collect()
}

#[cfg(test)]
#[path = "cover_tests.rs"]
mod tests;
