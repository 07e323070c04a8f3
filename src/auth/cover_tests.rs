use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tokio::time::Instant;

use super::*;
use crate::auth::attributes::{Requirements, Selectors};
use crate::auth::rbac_generations::Generation;
use crate::meta::{Gvr, Verb};

/// A rule of RBAC with its binding: of all namespaces or one, of all names or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Right {
    verb: &'static str,
    namespace: Option<&'static str>,
    name: Option<&'static str>,
}

/// The accesses of one filter. A filter with several names is one access for each.
#[derive(Clone, Debug)]
struct Filter {
    namespace: &'static str,
    names: Vec<&'static str>,
    labels: &'static str,
    fields: &'static str,
}

impl Right {
    fn allows(&self, access: &Attributes) -> bool {
        self.verb == access.verb
            && self.namespace.is_none_or(|namespace| namespace == access.namespace)
            && self.name.is_none_or(|name| name == access.name)
    }
}

impl Filter {
    fn accesses(&self, verb: Verb) -> Vec<Arc<Attributes>> {
        let names = if self.names.is_empty() { &[""][..] } else { &self.names };
        let access = |name: &&str| access(verb, self.namespace, name, self.labels, self.fields);
        names.iter().map(access).collect()
    }
}

fn access(verb: Verb, namespace: &str, name: &str, labels: &str, fields: &str) -> Arc<Attributes> {
    let selectors = Selectors::parse(labels, fields);
    Arc::new(Attributes::read(verb, &Gvr::new("", "v1", "pods"), namespace, name, &selectors))
}

fn is_allowed(rights: &[Right], access: &Attributes) -> bool {
    rights.iter().any(|right| right.allows(access))
}

/// Decides with these rights. No question is asked twice.
fn decide(rights: &[Right], mut deciding: Deciding<'_>) -> Option<Cover> {
    decide_in(rights, &mut deciding)
}

fn decide_in(rights: &[Right], deciding: &mut Deciding<'_>) -> Option<Cover> {
    loop {
        match deciding.step()? {
            Step::Proved => {}
            Step::Done(cover) => return Some(cover),
            Step::Ask(question) => {
                let (now, allowed) = (Instant::now(), is_allowed(rights, &question));
                let (reason, generation) = (String::new(), Generation::default());
                let decision = Arc::new(Decision { allowed, reason, until: now, again: now, generation, kept: false });
                assert!(deciding.decisions.insert(question, decision).is_none(), "asked twice");
            }
        }
    }
}

/// The result is what each access alone gives, and the proof names a decision that includes the access.
fn assert_exact(rights: &[Right], wanted: &[Arc<Attributes>], cover: Cover) -> Option<Proof> {
    let denied = wanted.iter().position(|access| !is_allowed(rights, access));
    match cover {
        Cover::All(proof) => {
            assert_eq!(denied, None, "{rights:?} allow not all of {wanted:?}");
            let accesses: Vec<_> = proof.parts.iter().map(|part| &part.access).collect();
            assert_eq!(accesses, wanted.iter().collect::<Vec<_>>());
            for Part { access, by: Allowed { question, decision } } in &proof.parts {
                assert!(decision.allowed && is_allowed(rights, question), "{question:?}");
                let wide = Attributes {
                    namespace: access.namespace.clone(),
                    name: access.name.clone(),
                    ..(**question).clone()
                };
                assert_eq!(wide, **access, "nothing but the scope differs");
                assert!(question.namespace.is_empty() || question.namespace == access.namespace);
                assert!(question.name.is_empty() || question.name == access.name);
            }
            Some(proof)
        }
        Cover::Denied { at, access, decision } => {
            assert_eq!(denied, Some(at), "{rights:?}, {wanted:?}");
            assert_eq!(access, wanted[at]);
            assert!(!decision.allowed);
            None
        }
    }
}

fn rights() -> impl Strategy<Value = Vec<Right>> {
    let mut all = Vec::new();
    for verb in ["get", "list", "watch"] {
        for namespace in [None, Some("a"), Some("b")] {
            all.extend([None, Some("x"), Some("y")].map(|name| Right { verb, namespace, name }));
        }
    }
    let most = all.len();
    subsequence(all, 0..=most / 2)
}

fn filters() -> impl Strategy<Value = Vec<Filter>> {
    let names = subsequence(vec!["x", "y", "z"], 0..=3);
    let filter = (
        select(&["", "a", "b", "c"][..]),
        names.prop_shuffle(),
        select(&["", "", "app=x"][..]),
        select(&["", "", "metadata.name=x", "spec.nodeName=n"][..]),
    );
    let filter = filter.prop_map(|(namespace, names, labels, fields)| Filter { namespace, names, labels, fields });
    proptest::collection::vec(filter, 1..=6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// A read of several parts is allowed exactly if each part alone is. So it is again, after any one right is taken away,
    /// and after others are given.
    #[test]
    fn a_union_is_allowed_as_its_parts_are(
        rights in rights(),
        filters in filters(),
        verb in select(&[Verb::Get, Verb::List, Verb::Watch][..]),
        given in rights(),
    ) {
        let wanted: Vec<_> = filters.iter().flat_map(|filter| filter.accesses(verb)).collect();
        let cover = decide(&rights, Deciding::new(&wanted, None)).unwrap();
        if let Some(proof) = assert_exact(&rights, &wanted, cover) {
            for at in 0..rights.len() {
                let mut fewer = rights.clone();
                fewer.remove(at);
                let cover = decide(&fewer, Deciding::new(&wanted, Some(&proof))).unwrap();
                if let Some(proof) = assert_exact(&fewer, &wanted, cover) {
                    // Rights may change again and again.
                    let cover = decide(&given, Deciding::new(&wanted, Some(&proof))).unwrap();
                    assert_exact(&given, &wanted, cover);
                }
            }
        }
    }
}

#[test]
fn a_read_of_nothing_is_not_allowed() {
    assert!(decide(&[Right { verb: "list", namespace: None, name: None }], Deciding::new(&[], None)).is_none());
}

#[test]
fn what_allowed_a_stream_is_asked_first_again() {
    let wanted = [access(Verb::Watch, "a", "", "", ""), access(Verb::Watch, "b", "", "", "")];
    let each = ["a", "b"].map(|namespace| Right { verb: "watch", namespace: Some(namespace), name: None });
    let Some(Cover::All(proof)) = decide(&each, Deciding::new(&wanted, None)) else { panic!("allowed") };
    assert_eq!(proof.questions(), wanted.iter().collect());
    let mut again = Deciding::new(&wanted, Some(&proof));
    let Some(Step::Ask(first)) = again.step() else { panic!("nothing is remembered") };
    assert_eq!(first, wanted[0], "not the question for all namespaces, which was denied");
}

fn worth(wanted: &[Arc<Attributes>]) -> Vec<(String, String)> {
    let mut worth: Vec<_> = worth_asking(wanted).into_iter().map(|wide| (wide.namespace, wide.name)).collect();
    worth.sort_unstable();
    worth
}

#[test]
fn wider_questions_are_asked_where_they_do_for_several() {
    let list = |namespace, name| access(Verb::List, namespace, name, "app=x", "");
    let pair = |namespace: &str| (namespace.to_owned(), String::new());
    assert!(worth(&[list("a", "x")]).is_empty());
    assert_eq!(worth(&[list("a", "x"), list("a", "y")]), [pair("a")]);
    assert_eq!(worth(&[list("a", "x"), list("b", "y")]), [pair("")]);
    assert_eq!(worth(&[list("a", "x"), list("a", "y"), list("b", "")]), [pair(""), pair("a")]);
    assert_eq!(worth(&[list("", "x"), list("", "y")]), [pair("")]);
    let get = |name| access(Verb::Get, "a", name, "app=x", "");
    assert!(worth(&[get("x"), get("y")]).is_empty(), "a get is of one object");
    let picked = |namespace| access(Verb::List, namespace, "", "app=x", "metadata.name=x");
    assert!(worth(&[picked("a"), picked("b")]).is_empty());
    let other = Arc::new(Attributes { labels: Requirements::default(), ..Attributes::clone(&list("b", "")) });
    assert!(worth(&[list("a", ""), other]).is_empty(), "what is selected differs");
}

/// The largest union: as many filters as there may be, each in a namespace of its own, with rights in each.
#[test]
fn the_largest_union_of_namespaces_needs_no_more_questions_than_it_may_ask() {
    let namespaces: Vec<&'static str> = (0..256).map(|at| -> &'static str { format!("n{at}").leak() }).collect();
    for (names, in_namespace) in [(&[""][..], true), (&["x", "y"], true), (&["x"], false)] {
        let right =
            |namespace| Right { verb: "list", namespace: Some(namespace), name: (!in_namespace).then_some("x") };
        let rights: Vec<_> = namespaces.iter().map(|namespace| right(*namespace)).collect();
        let pairs = namespaces.iter().flat_map(|namespace| names.iter().map(move |name| (namespace, name)));
        let wanted: Vec<_> = pairs.map(|(namespace, name)| access(Verb::List, namespace, name, "", "")).collect();
        let mut deciding = Deciding::new(&wanted, None);
        let cover = decide_in(&rights, &mut deciding);
        assert!(matches!(cover, Some(Cover::All(_))), "{names:?}");
        let questions = deciding.decisions.len();
        assert_eq!(questions, MAX_QUESTIONS, "{names:?}");
    }
}

/// So that the task can pause after each of them.
#[test]
fn the_accesses_of_a_union_are_decided_one_by_one() {
    let wanted: Vec<_> = (0..100).map(|at| access(Verb::List, "a", &format!("x{at}"), "app=x", "")).collect();
    let mut deciding = Deciding::new(&wanted, None);
    let all = [Right { verb: "list", namespace: Some("a"), name: None }];
    let Some(Step::Ask(question)) = deciding.step() else { panic!("a question for all") };
    let (now, reason) = (Instant::now(), String::new());
    let allowed = is_allowed(&all, &question);
    let decision = Decision { allowed, reason, until: now, again: now, generation: Generation::default(), kept: false };
    deciding.decisions.insert(question, Arc::new(decision));
    for _ in &wanted {
        assert!(matches!(deciding.step(), Some(Step::Proved)), "a pause after each");
    }
    assert!(matches!(deciding.step(), Some(Step::Done(Cover::All(_)))));
}
