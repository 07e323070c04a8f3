//! Decides many accesses together with few questions: a user that may read a whole namespace may read each object in
//! it, and a user that may read all namespaces may read each of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::attributes::Attributes;
use super::authorizer::{Asking, Authorizer, Decision};
use super::review::Unavailable;
use super::user::UserInfo;

/// The most questions for one read. A read that needs more is refused.
const MAX_QUESTIONS: usize = 256;

/// One decision, and the accesses that it allows.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub question: Arc<Attributes>,
    pub decision: Arc<Decision>,
    pub covers: Vec<Arc<Attributes>>,
}

/// The result for all accesses together.
#[derive(Debug)]
pub(super) enum Cover {
    All(Vec<Answer>),
    /// The first access that is denied, as the client named it.
    Denied {
        at: usize,
        decision: Arc<Decision>,
    },
}

// === impl Authorizer ===

impl Authorizer {
    /// Decides all of these accesses. A wider question is asked first if its answer would cover several of them. A
    /// denial is always about an access that the client asked for.
    ///
    /// # Errors
    /// The accesses cannot be decided now, or need too many questions.
    pub(super) async fn cover(
        &self,
        user: &Arc<UserInfo>,
        wanted: &[Arc<Attributes>],
        asking: Asking<'_>,
    ) -> Result<Cover, Unavailable> {
        let worth_it = worth_asking(wanted);
        let mut answers: Vec<Answer> = Vec::new();
        // By question: the index of its answer, or `None` if it was denied.
        let mut asked: HashMap<Arc<Attributes>, Option<usize>> = HashMap::new();
        for (at, attributes) in wanted.iter().enumerate() {
            let wider = if worth_it.is_empty() { None } else { attributes.unnamed() };
            let wider = wider.into_iter().flat_map(|unnamed| [unnamed.everywhere(), unnamed]);
            let wider = wider.filter(|wider| *wider != **attributes && worth_it.contains(wider)).map(Arc::new);
            for question in wider.chain([Arc::clone(attributes)]) {
                let found = asked.get(&question).copied();
                let answer = match found {
                    Some(answer) => answer,
                    None => {
                        if asked.len() >= MAX_QUESTIONS {
                            return Err(self.too_many_questions());
                        }
                        let decision = self.authorize(user, &question, asking).await?;
                        if !decision.allowed && *question == **attributes {
                            return Ok(Cover::Denied { at, decision });
                        }
                        let answer = decision.allowed.then_some(answers.len());
                        if decision.allowed {
                            answers.push(Answer { question: Arc::clone(&question), decision, covers: Vec::new() });
                        }
                        asked.insert(question, answer);
                        answer
                    }
                };
                if let Some(answer) = answer.and_then(|answer| answers.get_mut(answer)) {
                    answer.covers.push(Arc::clone(attributes));
                    break;
                }
            }
        }
        Ok(Cover::All(answers))
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
mod tests {
    use super::*;
    use crate::meta::{Gvr, Verb};

    fn attributes(verb: Verb, namespace: &str, name: &str, fields: &str) -> Arc<Attributes> {
        Arc::new(Attributes::read(verb, &Gvr::new("", "v1", "pods"), namespace, name, "app=x", fields))
    }

    fn worth(wanted: &[Arc<Attributes>]) -> Vec<(String, String)> {
        let mut worth: Vec<_> = worth_asking(wanted).into_iter().map(|wide| (wide.namespace, wide.name)).collect();
        worth.sort_unstable();
        worth
    }

    #[test]
    fn wider_questions_are_asked_where_they_do_for_several() {
        let list = |namespace, name| attributes(Verb::List, namespace, name, "");
        let pair = |namespace: &str| (namespace.to_owned(), String::new());
        assert!(worth(&[list("a", "x")]).is_empty());
        assert_eq!(worth(&[list("a", "x"), list("a", "y")]), [pair("a")]);
        assert_eq!(worth(&[list("a", "x"), list("b", "y")]), [pair("")]);
        assert_eq!(worth(&[list("a", "x"), list("a", "y"), list("b", "")]), [pair(""), pair("a")]);
        assert_eq!(worth(&[list("", "x"), list("", "y")]), [pair("")]);
        let get = |name| attributes(Verb::Get, "a", name, "");
        assert!(worth(&[get("x"), get("y")]).is_empty(), "a get is of one object");
        let picked = |namespace| attributes(Verb::List, namespace, "", "metadata.name=x");
        assert!(worth(&[picked("a"), picked("b")]).is_empty());
        let other = Arc::new(Attributes { labels: Vec::new(), ..Attributes::clone(&list("b", "")) });
        assert!(worth(&[list("a", ""), other]).is_empty(), "what is selected differs");
    }
}
