//! A request line: method, path and query, apart by line breaks.

use informerd::auth::Attributes;
use informerd::meta::{ListOptions, ListRevision, RequestInfo, Verb};
use informerd::selector::FieldSelector;

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
        check_options(&options);
        if attributes.name != info.name {
            // A name that is not in the path was pinned by a selector: no other object can be in the answer.
            let fields = FieldSelector::parse(&options.field_selector);
            assert_eq!(
                fields.ok().as_ref().and_then(|f| f.requires_exact_match("metadata.name")),
                Some(&*attributes.name)
            );
        }
    }
    let denial = attributes.denial(&text);
    assert!(denial.starts_with("User \"") && !denial.contains(['<', '>', '\n']), "{denial:?}");
}

fn check_options(options: &ListOptions) {
    let mut again = options.clone();
    again.set_defaults();
    assert_eq!(again, *options, "defaults are applied once");
    let (rv, rule) = (options.resource_version.as_str(), options.resource_version_match.as_str());
    if options.validate().is_ok() && !rule.is_empty() {
        assert!(matches!(rule, "Exact" | "NotOlderThan") && options.continue_token.is_empty(), "{options:?}");
        assert_eq!(options.send_initial_events.is_some(), options.watch, "{options:?}");
        assert!(options.watch || !rv.is_empty(), "no revision is {rule}: {options:?}");
    }
    let is_exact = rule == "Exact" || rule.is_empty() && options.limit > 0;
    let revision = rv.parse::<u64>().ok();
    match options.list_revision() {
        _ if !options.continue_token.is_empty() => {}
        Ok(ListRevision::MostRecent) => assert!(rv.is_empty(), "{options:?}"),
        Ok(ListRevision::Any) => assert_eq!(rv, "0"),
        Ok(ListRevision::Exact(at)) => assert_eq!((Some(at.get()), is_exact), (revision, true)),
        Ok(ListRevision::NotOlderThan(at)) => assert_eq!((Some(at.get()), is_exact), (revision, false)),
        Ok(ListRevision::Unusual) => assert!(rv.len() > 1 && revision == Some(0), "{options:?}"),
        Ok(ListRevision::Continue(token)) => panic!("{token:?} of no token"),
        Err(_) => assert!(revision.is_none() || rv.starts_with('+'), "{options:?}"),
    }
}
