//! A request line: method, path and query, apart by line breaks.

use informerd::auth::Attributes;
use informerd::meta::{ListOptions, RequestInfo, Verb};
use informerd::selector::{FieldSelector, LabelSelector};

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(3, '\n');
    let (method, path, query) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let info = RequestInfo::parse(method, path, query);
    let attributes = Attributes::of(method, path, query, &info);
    assert_eq!(attributes.path.is_some(), !info.is_resource, "what names no resource is a path, and nothing else");
    if info.is_resource {
        assert_eq!(
            (&attributes.group, &attributes.version, &attributes.resource),
            (&info.group, &info.version, &info.resource)
        );
        assert_eq!((&attributes.namespace, &attributes.subresource), (&info.namespace, &info.subresource));
        assert_eq!(attributes.verb, info.verb.as_str());
        assert!(info.name.is_empty() || attributes.name == info.name, "a name in the path is the name");
    }
    if info.is_plain_read() {
        // What is read lies in what is authorized.
        let own = info.resource == "namespaces" && info.group.is_empty();
        assert!(own || info.scope().unwrap_or_default() == attributes.namespace);
        assert_eq!(info.verb == Verb::Get, !info.name.is_empty() && !info.legacy_watch);
        for part in [&info.group, &info.version, &info.resource, &info.namespace, &info.name] {
            assert!(!part.contains('/') && !matches!(part.as_str(), "." | ".."), "{part:?}");
        }
    }
    if let Ok(mut options) = ListOptions::decode(query) {
        options.set_defaults();
        let _ = (options.validate(), options.list_revision());
        if attributes.name != info.name {
            // A name that is not in the path was pinned by a selector: no other object can be in the answer.
            let fields = FieldSelector::parse(&options.field_selector);
            assert_eq!(
                fields.ok().as_ref().and_then(|f| f.requires_exact_match("metadata.name")),
                Some(&*attributes.name)
            );
        }
    }
    let labels = LabelSelector::parse(&text);
    if let Ok(labels) = labels {
        assert!(labels.requirements().all(|(key, ..)| !key.is_empty()));
    }
    let _ = FieldSelector::parse(&text);
    let _ = (attributes.denial(&text), attributes.size());
}
