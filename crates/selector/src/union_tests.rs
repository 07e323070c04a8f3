use proptest::prelude::*;

use super::*;
use crate::tests::pods;
use crate::{FieldSelector, LabelSelector, ValueSet, field_table};
use informerd_codec::json::parse_item;
use informerd_meta::Object;

/// A pod with only the properties that matter here.
#[derive(Clone, Debug)]
struct Pod {
    namespace: usize,
    name: usize,
    app: Option<usize>,
    node: usize,
    owner: Option<usize>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Pod {
    fn object(&self) -> Object {
        let labels = self.app.map_or(String::new(), |app| format!(r#","labels":{{"app":"{}"}}"#, NAMES[app]));
        let owner = self.owner.map_or(String::new(), |owner| {
            format!(r#","ownerReferences":[{{"kind":"X","uid":"other"}},{{"kind":"Y","uid":"{}"}}]"#, NAMES[owner])
        });
        let json = format!(
            r#"{{"metadata":{{"name":"{}","namespace":"{}","uid":"{}","resourceVersion":"1"{labels}{owner}}},"spec":{{"nodeName":"{}"}}}}"#,
            NAMES[self.name], NAMES[self.namespace], NAMES[0], NAMES[self.node]
        );
        parse_item(json.as_bytes(), &field_table(&pods())).unwrap().0
    }

    /// The same pod as a protobuf message.
    fn message(&self) -> Object {
        let field = |number: u32, value: &[u8], out: &mut Vec<u8>| {
            prost::encoding::bytes::encode(number, &value.to_vec(), out);
        };
        let message = |fields: &[(u32, &[u8])]| {
            let mut out = Vec::new();
            fields.iter().for_each(|(number, value)| field(*number, value, &mut out));
            out
        };
        let label = self.app.map(|app| message(&[(1, b"app"), (2, NAMES[app].as_bytes())]));
        let owner = |uid: &str| message(&[(1, b"X"), (4, uid.as_bytes())]);
        let owners = self.owner.map(|of| [owner("other"), owner(NAMES[of])]);
        let mut metadata: Vec<(u32, &[u8])> = vec![
            (1, NAMES[self.name].as_bytes()),
            (3, NAMES[self.namespace].as_bytes()),
            (5, NAMES[0].as_bytes()),
            (6, b"1"),
        ];
        metadata.extend(label.iter().map(|label| (11, label.as_slice())));
        metadata.extend(owners.iter().flatten().map(|owner| (13, owner.as_slice())));
        let spec = message(&[(10, NAMES[self.node].as_bytes())]);
        let pod = message(&[(1, &message(&metadata)), (2, &spec)]);
        informerd_codec::protobuf::parse_item(&pod, &field_table(&pods())).unwrap()
    }
}

/// A filter: the accepted values of each property. An empty list accepts any value.
#[derive(Clone, Debug)]
struct Asked {
    namespaces: Vec<usize>,
    names: Vec<usize>,
    apps: Vec<usize>,
    nodes: Vec<usize>,
    owners: Vec<usize>,
}

impl Asked {
    fn accepts(&self, pod: &Pod) -> bool {
        let of = |values: &[usize], value: Option<usize>| {
            values.is_empty() || value.is_some_and(|value| values.contains(&value))
        };
        of(&self.namespaces, Some(pod.namespace))
            && of(&self.names, Some(pod.name))
            && of(&self.apps, pod.app)
            && of(&self.nodes, Some(pod.node))
            && of(&self.owners, pod.owner)
    }

    fn clause(&self) -> Clause {
        let values = |values: &[usize]| values.iter().map(|value| NAMES[*value].to_owned()).collect::<Vec<_>>();
        let (resource, table) = (pods(), field_table(&pods()));
        let mut sets = Vec::new();
        let mut fields = FieldSelector::default();
        if !self.namespaces.is_empty() {
            sets.push(ValueSet::namespaces(values(&self.namespaces)));
        }
        if !self.names.is_empty() {
            sets.push(ValueSet::names(values(&self.names)));
        }
        if !self.apps.is_empty() {
            sets.push(ValueSet::label("app", values(&self.apps)));
        }
        match self.nodes.as_slice() {
            [] => {}
            [only] => fields = fields.and_equals("spec.nodeName", NAMES[*only]),
            more => sets.push(ValueSet::field(&resource, &table, "spec.nodeName", values(more)).unwrap()),
        }
        if !self.owners.is_empty() {
            sets.push(ValueSet::owner_uids(values(&self.owners)));
        }
        Clause::new(Scope::all(), LabelSelector::default(), fields.compile(&resource, &table).unwrap(), sets)
    }
}

fn some() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![3 => Just(vec![]), 2 => prop::collection::vec(0..3_usize, 1..3)]
}

prop_compose! {
    fn asked()(namespaces in some(), names in some(), apps in some(), nodes in some(), owners in some()) -> Asked {
        Asked { namespaces, names, apps, nodes, owners }
    }
}

prop_compose! {
    fn pod()(
        namespace in 0..3_usize, name in 0..3_usize, app in prop::option::of(0..3_usize), node in 0..3_usize,
        owner in prop::option::of(0..3_usize),
    ) -> Pod {
        Pod { namespace, name, app, node, owner }
    }
}

proptest! {
    #[test]
    fn selects_what_any_filter_does(filters in prop::collection::vec(asked(), 0..4), pods in prop::collection::vec(pod(), 1..8)) {
        let predicate = Predicate::union(filters.iter().map(Asked::clause).collect());
        for pod in &pods {
            let wanted = filters.is_empty() || filters.iter().any(|filter| filter.accepts(pod));
            prop_assert_eq!(predicate.matches(&pod.object()), wanted, "{:?}", pod);
            prop_assert_eq!(predicate.matches(&pod.message()), wanted, "{:?} in protobuf", pod);
        }
    }

    #[test]
    fn implies_only_what_holds(filters in prop::collection::vec(asked(), 1..3), scope in asked(), pods in prop::collection::vec(pod(), 1..8)) {
        let predicate = Predicate::union(filters.iter().map(Asked::clause).collect());
        let scope = Predicate::union(vec![scope.clause()]);
        if predicate.implies(&scope) {
            for pod in pods.iter().map(Pod::object) {
                prop_assert!(!predicate.matches(&pod) || scope.matches(&pod));
            }
        }
    }

    #[test]
    fn order_does_not_matter(mut filters in prop::collection::vec(asked(), 0..4)) {
        let predicate = Predicate::union(filters.iter().map(Asked::clause).collect());
        filters.reverse();
        prop_assert_eq!(predicate, Predicate::union(filters.iter().map(Asked::clause).collect()));
    }
}

#[test]
fn one_plain_filter_is_a_plain_predicate() {
    let clause = |labels: &str| {
        Clause::new(Scope::namespace("a"), LabelSelector::parse(labels).unwrap(), CompiledFields::default(), vec![])
    };
    let plain = Predicate::new(Scope::namespace("a"), LabelSelector::parse("x=y").unwrap(), CompiledFields::default());
    assert_eq!(Predicate::union(vec![clause("x=y"), clause("x=y")]), plain);
    assert_eq!(Predicate::union(vec![]), Predicate::everything());
    let union = Predicate::union(vec![clause("x=y"), clause("x=z")]);
    assert_eq!(union.scope, Scope::namespace("a"));
    assert!(union.implies(&Predicate::scoped(Scope::namespace("a"))));
    assert!(!union.implies(&plain) && !Predicate::scoped(Scope::namespace("a")).implies(&union));
    assert!(union.implies(&union) && !union.is_everything() && !union.is_scope_only());
}
