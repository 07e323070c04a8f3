//! Compares selectors with a model that stores labels in a map and does not use the implementation.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::Predicate;
use super::tests::{attributes, object, pods, predicate, scope};
use informerd_meta::Object;

/// A requirement in the form that the tests use.
#[derive(Clone, Debug)]
enum Wish {
    Has(&'static str),
    HasNot(&'static str),
    Is(&'static str, &'static str, Vec<&'static str>),
    IsNot(&'static str, &'static str, Vec<&'static str>),
    Above(&'static str, u8),
    Below(&'static str, u8),
}

impl Wish {
    fn text(&self) -> String {
        match self {
            Self::Has(key) => (*key).into(),
            Self::HasNot(key) => format!("! {key}"),
            Self::Is(key, "in", values) => format!("{key} in ({})", values.join(" , ")),
            Self::IsNot(key, "notin", values) => format!("{key}\tnotin({})", values.join(",")),
            Self::Is(key, operator, values) | Self::IsNot(key, operator, values) => {
                format!("{key} {operator} {}", values[0])
            }
            Self::Above(key, bound) => format!("{key}>{bound}"),
            Self::Below(key, bound) => format!("{key} < {bound}"),
        }
    }

    fn granted(&self, labels: &BTreeMap<&str, &str>) -> bool {
        match self {
            Self::Has(key) => labels.contains_key(key),
            Self::HasNot(key) => !labels.contains_key(key),
            Self::Is(key, _, values) => values.iter().any(|value| labels.get(key) == Some(value)),
            Self::IsNot(key, _, values) => !values.iter().any(|value| labels.get(key) == Some(value)),
            Self::Above(key, bound) => {
                labels.get(key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > i64::from(*bound))
            }
            Self::Below(key, bound) => {
                labels.get(key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < i64::from(*bound))
            }
        }
    }
}

const KEYS: [&str; 6] = ["a", "b", "a.b/c", "in", "notin", "z"];
const VALUES: [&str; 6] = ["", "x", "in", "1", "20", "3"];
/// Values of labels that no selector can name, or that are no number there.
const OTHERS: [&str; 3] = ["-7", "x5", "99999999999999999999"];

fn any_of(items: &'static [&'static str]) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(items)
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let key = || any_of(&KEYS);
    let one = || any_of(&VALUES).prop_map(|value| vec![value]);
    let many = || prop::collection::vec(any_of(&VALUES), 1..4);
    let wish = prop_oneof![
        key().prop_map(Wish::Has),
        key().prop_map(Wish::HasNot),
        (key(), any_of(&["=", "=="]), one()).prop_map(|(key, operator, values)| Wish::Is(key, operator, values)),
        (key(), many()).prop_map(|(key, values)| Wish::Is(key, "in", values)),
        (key(), one()).prop_map(|(key, values)| Wish::IsNot(key, "!=", values)),
        (key(), many()).prop_map(|(key, values)| Wish::IsNot(key, "notin", values)),
        (key(), any::<u8>()).prop_map(|(key, bound)| Wish::Above(key, bound % 30)),
        (key(), any::<u8>()).prop_map(|(key, bound)| Wish::Below(key, bound % 30)),
    ];
    prop::collection::vec(wish, 0..4)
}

fn labels() -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    prop::collection::btree_map(any_of(&KEYS), prop_oneof![4 => any_of(&VALUES), 1 => any_of(&OTHERS)], 0..6)
}

/// Field label, whether the values must be equal, and the value.
type Demand = (&'static str, bool, &'static str);

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

fn demands() -> impl Strategy<Value = Vec<Demand>> {
    let labels = any_of(&["metadata.name", "metadata.namespace", "spec.nodeName", "spec.host", "status.phase"]);
    prop::collection::vec((labels, any::<bool>(), any_of(&["n1", "n2", "n3", ""])), 0..4)
}

/// Namespace, name, node, phase.
type Place = (&'static str, &'static str, &'static str, &'static str);

fn place() -> impl Strategy<Value = Place> {
    (any_of(&NAMES), any_of(&NAMES), any_of(&["n1", "n2", ""]), any_of(&["n1", ""]))
}

fn demand_text(demands: &[Demand]) -> String {
    let terms: Vec<_> = demands
        .iter()
        .map(|(field, equal, value)| format!("{field}{}{value}", if *equal { "=" } else { "!=" }))
        .collect();
    terms.join(",")
}

fn demand_met(demand: &Demand, place: &Place) -> bool {
    let (field, equal, value) = demand;
    let actual = match *field {
        "metadata.name" => place.1,
        "metadata.namespace" => place.0,
        "status.phase" => place.3,
        _ => place.2,
    };
    (actual == *value) == *equal
}

fn pod(place: Place, labels: &BTreeMap<&str, &str>) -> Object {
    let (namespace, name, node, phase) = place;
    let fields = ["spec.nodeName", "", "", "", "", "status.phase"].map(|label| match label {
        "spec.nodeName" => node,
        "status.phase" => phase,
        _ => "",
    });
    object(namespace, name, attributes(labels, fields))
}

type Wanted = (Option<&'static str>, Vec<Wish>, Vec<Demand>);

fn wanted() -> impl Strategy<Value = Wanted> {
    (prop::option::of(any_of(&NAMES)), wishes(), demands())
}

fn build((namespace, wishes, demands): &Wanted) -> Predicate {
    let labels: Vec<_> = wishes.iter().map(Wish::text).collect();
    predicate(&pods(), scope(*namespace, None), &labels.join(","), &demand_text(demands))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn predicates_agree_with_the_model(wanted in wanted(), place in place(), labels in labels()) {
        let (namespace, wishes, demands) = &wanted;
        let want = namespace.is_none_or(|namespace| namespace == place.0)
            && wishes.iter().all(|wish| wish.granted(&labels))
            && demands.iter().all(|demand| demand_met(demand, &place));
        let predicate = build(&wanted);
        prop_assert_eq!(predicate.matches(&pod(place, &labels)), want);
        // Statements of the predicate about all its objects must hold for this object.
        if want {
            prop_assert!(!predicate.matches_nothing());
            prop_assert!(predicate.trigger().is_none_or(|node| node == place.2));
        } else {
            prop_assert!(!predicate.is_everything());
        }
    }

    #[test]
    fn implied_and_equal_predicates_select_alike(
        a in wanted(), b in wanted(), more in wanted(), place in place(), labels in labels(),
    ) {
        let pod = pod(place, &labels);
        let (p, q) = (build(&a), build(&b));
        if p.implies(&q) {
            prop_assert!(!p.matches(&pod) || q.matches(&pod));
        }
        if p == q {
            prop_assert_eq!(p.matches(&pod), q.matches(&pod));
        }
        // A selector with more terms implies one with fewer.
        let (mut wishes, mut demands) = (a.1.clone(), a.2.clone());
        wishes.extend(more.1);
        demands.extend(more.2);
        prop_assert!(build(&(a.0, wishes, demands)).implies(&p));
        prop_assert!(p.implies(&Predicate::everything()));
    }
}
