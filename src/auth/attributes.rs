//! What a request wants to do, as the apiserver's authorizers see it.

use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use percent_encoding::percent_decode_str;

use crate::meta::{Gvr, Query, RequestInfo, Status, Verb, errors, fields_fit, labels_fit};
use crate::selector::{FieldOperator, FieldSelector, FieldTerm, LabelSelector};

/// The attributes of one request. A string is empty if the request has no such part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The requirements of the request's selectors (KEP-4601). Empty if there are no selectors or they do not parse.
    /// The request is then authorized as if it had none, which needs more rights.
    pub fields: Requirements,
    pub labels: Requirements,
    /// The selectors are too large to be read here. Only the apiserver knows what such a request asks for.
    pub unread: bool,
    /// Set for a request that names no resource.
    pub path: Option<String>,
}

/// The requirements of one selector. Clones share them. Many attributes have the same ones and are compared and looked up
/// again and again, so that costs the same for any number of them.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    all: Arc<[Requirement]>,
    hash: u64,
}

/// One requirement of a selector, in the form of a review.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Requirement {
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The selectors of a request. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    fields: Requirements,
    labels: Requirements,
    /// The name that the field selector pins.
    name: Option<Arc<str>>,
    unread: bool,
}

// === impl Attributes ===

impl Attributes {
    /// Returns the attributes of a request line. `info` was parsed from it.
    ///
    /// A request for a collection that pins `metadata.name` counts as a request for that name. This is how RBAC's
    /// `resourceNames` and the Node authorizer allow watches of single objects. Selectors count for collections only,
    /// and not under the legacy `/watch/` prefix.
    pub fn of(method: &str, path: &str, query: &str, info: &RequestInfo) -> Self {
        if !info.is_resource {
            let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
            return Self { verb: method.to_ascii_lowercase(), path: Some(path), ..Self::default() };
        }
        let mut attributes = Self {
            verb: info.verb.as_str().to_owned(),
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            ..Self::default()
        };
        if matches!(info.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) && !info.legacy_watch {
            let query = Query::parse(query);
            let text = |name| query.text(name).unwrap_or_default();
            let selectors = Selectors::parse(&text("labelSelector"), &text("fieldSelector"));
            attributes.select(&selectors, info.verb != Verb::DeleteCollection);
        }
        attributes
    }

    /// The attributes of a read, for protocols without request lines: of a collection, or of an object if `name` is
    /// set.
    pub fn read(verb: Verb, gvr: &Gvr, namespace: &str, name: &str, selectors: &Selectors) -> Self {
        let mut attributes = Self {
            verb: verb.as_str().to_owned(),
            group: gvr.group.to_string(),
            version: gvr.version.to_string(),
            resource: gvr.resource.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        };
        // As in a path: an object of `namespaces` is in the namespace of its own name. The collection is in no
        // namespace, whatever name is selected from it.
        if verb == Verb::Get
            && attributes.namespace.is_empty()
            && &*gvr.resource == "namespaces"
            && gvr.group.is_empty()
        {
            name.clone_into(&mut attributes.namespace);
        }
        if matches!(verb, Verb::List | Verb::Watch) {
            attributes.select(selectors, true);
        }
        attributes
    }

    /// The attributes of a read of the daemon's own state, which is not a Kubernetes object.
    pub fn of_path(path: &str) -> Self {
        Self { verb: "get".to_owned(), path: Some(path.to_owned()), ..Self::default() }
    }

    fn select(&mut self, selectors: &Selectors, names: bool) {
        if let Some(name) = selectors.name.as_deref().filter(|_| names && self.name.is_empty()) {
            name.clone_into(&mut self.name);
        }
        (self.labels, self.fields) = (selectors.labels.clone(), selectors.fields.clone());
        self.unread = selectors.unread;
    }

    pub fn gvr(&self) -> Gvr {
        Gvr::new(&self.group, &self.version, &self.resource)
    }

    /// The approximate number of bytes on the heap.
    pub fn size(&self) -> usize {
        let requirement = |requirement: &Requirement| {
            let values = requirement.values.iter().map(|value| value.len() + size_of::<String>()).sum::<usize>();
            size_of::<Requirement>() + requirement.key.len() + values
        };
        [&self.verb, &self.group, &self.version, &self.resource, &self.subresource, &self.namespace, &self.name]
            .iter()
            .map(|text| text.len())
            .sum::<usize>()
            + self.path.as_ref().map_or(0, String::len)
            + self.fields.iter().chain(self.labels.iter()).map(requirement).sum::<usize>()
    }

    /// The message that names what the user cannot do, in the apiserver's format. HTML special characters are escaped
    /// in the same way.
    pub fn denial(&self, username: &str) -> String {
        let quoted = |text: &str| crate::meta::strconv::quote(text.as_bytes());
        let user = quoted(username);
        let text = match &self.path {
            Some(path) => format!("User {user} cannot {} path {}", self.verb, quoted(path)),
            None => {
                let resource = match self.subresource.as_str() {
                    "" => quoted(&self.resource),
                    subresource => quoted(&format!("{}/{subresource}", self.resource)),
                };
                let place = match self.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", quoted(namespace)),
                };
                let group = quoted(&self.group);
                format!("User {user} cannot {} resource {resource} in API group {group} {place}", self.verb)
            }
        };
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }

    /// A 403 with the apiserver's message.
    pub(super) fn forbidden(&self, username: &str, reason: &str) -> Status {
        let mut detail = self.denial(username);
        if !reason.is_empty() {
            detail = format!("{detail}: {reason}");
        }
        errors::forbidden(&self.gvr(), &self.name, detail)
    }
}

// === impl Selectors ===

impl Selectors {
    pub fn parse(labels: &str, fields: &str) -> Self {
        if !labels_fit(labels) || !fields_fit(fields) {
            return Self { unread: true, ..Self::default() };
        }
        let (labels, fields) = (LabelSelector::parse(labels), FieldSelector::parse(fields));
        // The apiserver uses the name only if all options decode.
        let name = match (&labels, &fields) {
            (Ok(_), Ok(fields)) => fields.requires_exact_match("metadata.name").filter(|name| is_path_segment(name)),
            _ => None,
        };
        let name = name.map(Into::into);
        // The apiserver selects by it, and refuses it in a review.
        if fields.as_ref().is_ok_and(|fields| fields.terms().iter().any(|term| term.field.is_empty())) {
            return Self { unread: true, ..Self::default() };
        }
        let labels = labels.map(|labels| labels.requirements().map(Requirement::of_label).collect());
        let fields = fields.map(|fields| fields.terms().iter().map(Requirement::of_field).collect());
        Self { labels: labels.unwrap_or_default(), fields: fields.unwrap_or_default(), name, unread: false }
    }
}

// === impl Requirements ===

/// Secret, so that nobody can choose requirements that collide.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let all: Arc<[_]> = requirements.into_iter().collect();
        let hash = if all.is_empty() { 0 } else { HASHES.hash_one(&all) };
        Self { all, hash }
    }
}

impl Deref for Requirements {
    type Target = [Requirement];

    fn deref(&self) -> &[Requirement] {
        &self.all
    }
}

impl PartialEq for Requirements {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.all, &other.all) || self.hash == other.hash && self.all == other.all
    }
}

impl Eq for Requirements {}

impl Hash for Requirements {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

// === impl Requirement ===

impl Requirement {
    fn of_label((key, operator, values): (&str, &'static str, &[Box<str>])) -> Self {
        Self { key: key.to_owned(), operator, values: values.iter().map(ToString::to_string).collect() }
    }

    fn of_field(term: &FieldTerm) -> Self {
        let operator = match term.operator {
            FieldOperator::Equals => "In",
            FieldOperator::NotEquals => "NotIn",
        };
        Self { key: term.field.to_string(), operator, values: vec![term.value.to_string()] }
    }
}

/// Whether an object can have this name in a path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, target: &str) -> Attributes {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Attributes::of(method, path, query, &RequestInfo::parse(method, path, query))
    }

    #[test]
    fn names_come_from_paths_and_exact_selectors() {
        for (target, verb, namespace, name) in [
            ("/api/v1/namespaces/a/pods/p", "get", "a", "p"),
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list", "a", "p"),
            ("/api/v1/namespaces/a/pods?watch=1&fieldSelector=spec.nodeName=n,metadata.name==p", "watch", "a", "p"),
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name!=p", "list", "a", ""),
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p%252F", "list", "a", ""),
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name=..", "list", "a", ""),
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p&labelSelector=!!", "list", "a", ""),
            ("/api/v1/watch/namespaces/a/pods?fieldSelector=metadata.name=p", "watch", "a", ""),
            ("/api/v1/namespaces/a", "get", "a", "a"),
            ("/api/v1/namespaces", "list", "", ""),
        ] {
            let attributes = of("GET", target);
            let found = (&*attributes.verb, &*attributes.namespace, &*attributes.name);
            assert_eq!(found, (verb, namespace, name), "{target}");
        }
    }

    #[test]
    fn selectors_become_requirements() {
        let attributes = of("GET", "/api/v1/pods?labelSelector=b+in+(y,x),a,!c,d!=1,e>5&fieldSelector=b!=2,a=1%5C,1");
        let read = |all: &Requirements| -> Vec<_> {
            all.iter().map(|r| format!("{} {} {}", r.key, r.operator, r.values.join("|"))).collect()
        };
        let labels = ["a Exists ", "b In x|y", "c DoesNotExist ", "d NotIn 1"];
        assert_eq!(read(&attributes.labels), labels, "comparisons are left out");
        assert_eq!(read(&attributes.fields), ["a In 1,1", "b NotIn 2"]);
        assert!(of("GET", "/api/v1/watch/pods?labelSelector=a").labels.is_empty());
        assert!(of("GET", "/api/v1/pods?labelSelector=!!").labels.is_empty());
        assert_eq!(of("DELETE", "/api/v1/pods?fieldSelector=metadata.name=p").name, "", "as the apiserver has it");
    }

    #[test]
    fn selectors_that_are_too_large_are_not_read() {
        for selector in ["labelSelector", "fieldSelector"] {
            let list = |count: usize| format!("/api/v1/pods?{selector}={}", vec!["a=b"; count].join(","));
            let (most, more) = (of("GET", &list(1000)), of("GET", &list(1001)));
            assert_eq!((most.labels.len() + most.fields.len(), most.unread), (1000, false), "{selector}");
            assert_eq!((more.labels.len() + more.fields.len(), more.unread), (0, true), "{selector}");
        }
        for nameless in ["==x", "=x", "!=x", "a=b,=x"] {
            assert!(of("GET", &format!("/api/v1/pods?fieldSelector={nameless}")).unread, "{nameless}");
        }
        assert!(!of("GET", "/api/v1/pods?fieldSelector==").unread, "it is ignored");
        let selectors = Selectors::parse("a in (b)", "c=d");
        let named = |name| Attributes::read(Verb::List, &Gvr::new("", "v1", "pods"), "", name, &selectors);
        assert!(Arc::ptr_eq(&named("x").labels.all, &named("y").labels.all), "names share what is selected");
        assert!(Arc::ptr_eq(&named("x").fields.all, &named("y").fields.all));
    }

    #[test]
    fn equal_requirements_have_equal_hashes_wherever_they_come_from() {
        let hash = |requirements: &Requirements| HASHES.hash_one(requirements);
        let parsed = |labels: &str| Selectors::parse(labels, "").labels;
        for (one, other, equal) in [
            ("a,b", "b,a", true),
            ("a in (x,y)", "a in (y,x)", true),
            ("", "!!", true),
            ("a", "b", false),
            ("a", "", false),
        ] {
            let (one, other) = (parsed(one), parsed(other));
            assert_eq!((one == other, hash(&one) == hash(&other)), (equal, equal), "{one:?} {other:?}");
        }
        let none = Requirements::from_iter([]);
        assert_eq!((none == Requirements::default(), hash(&none) == hash(&Requirements::default())), (true, true));
    }

    #[test]
    fn both_ways_to_the_same_attributes() {
        let pods = Gvr::new("", "v1", "pods");
        assert_eq!(
            Attributes::read(Verb::Watch, &pods, "a", "", &Selectors::parse("app=x", "metadata.name=p")),
            of("GET", "/api/v1/namespaces/a/pods?watch=1&labelSelector=app%3Dx&fieldSelector=metadata.name%3Dp")
        );
        assert_eq!(
            Attributes::read(Verb::Get, &Gvr::new("", "v1", "namespaces"), "", "a", &Selectors::default()),
            of("GET", "/api/v1/namespaces/a")
        );
        for (verb, watch) in [(Verb::List, ""), (Verb::Watch, "watch=1&")] {
            let ours = Attributes::read(verb, &Gvr::new("", "v1", "namespaces"), "", "a", &Selectors::default());
            let theirs = of("GET", &format!("/api/v1/namespaces?{watch}fieldSelector=metadata.name%3Da"));
            assert_eq!(ours, Attributes { fields: Requirements::default(), ..theirs }, "at the cluster scope");
        }
    }

    #[test]
    fn denials_are_worded_as_the_apiserver_words_them() {
        for (target, what) in [
            ("/api/v1/namespaces/a/pods", r#"list resource "pods" in API group "" in the namespace "a""#),
            ("/apis/apps/v1/deployments", r#"list resource "deployments" in API group "apps" at the cluster scope"#),
            ("/api/v1/namespaces/a/pods/p/log", r#"get resource "pods/log" in API group "" in the namespace "a""#),
            ("/metrics", r#"get path "/metrics""#),
        ] {
            assert_eq!(of("GET", target).denial("u<"), format!(r#"User "u&lt;" cannot {what}"#));
        }
    }
}
