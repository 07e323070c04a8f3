//! Converts request messages to the parameters of the read path, and enforces the limits of a request.

use std::time::Duration;

use prost::Message;

use super::pb::v1;
use super::render::Rendering;
use super::status::Error;
use crate::meta::{Encoding, Gvr, ResourceVersion};
use crate::reads::plan::Freshness;
use crate::reads::{At, Filter, IndexKey, Reads, Selection, Wanted};

const MAX_FILTERS: usize = 256;
/// The most namespaces in a filter that are authorized one by one. With more, the filter is authorized for all
/// namespaces.
const MAX_NAMESPACES: usize = 64;
/// The most names and index values in one selection.
const MAX_VALUES: usize = 4096;
/// The most bytes of selectors, names and values in one selection. They count once for each namespace that it names.
const MAX_TEXT: usize = 1 << 20;
/// The memory of a filter and of a value without their text, in bytes.
const FILTER: usize = 256;
const VALUE: usize = 32;

/// The version may be empty, unless [`complete`] has seen the resource.
///
/// # Errors
/// INVALID_ARGUMENT without a name.
pub(super) fn gvr(resource: Option<&v1::Resource>) -> Result<Gvr, Error> {
    let Some(v1::Resource { group, version, resource }) = resource else {
        return Err(Error::invalid("the request names no resource"));
    };
    if resource.is_empty() {
        return Err(Error::invalid("a resource needs a plural name"));
    }
    // It becomes part of a URL path.
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    if ![group, version, resource].into_iter().all(|part| plain(part)) {
        return Err(Error::invalid("a resource's group, version and name are letters, digits, dots and dashes"));
    }
    Ok(Gvr::new(group, version, resource))
}

/// Writes the version that the apiserver prefers into a resource without one. Everything after this, such as tokens and
/// the comparison of workers, sees a request that names its version.
///
/// # Errors
/// INVALID_ARGUMENT without a name, NOT_FOUND for a resource that the apiserver does not have, UNAVAILABLE.
pub(super) async fn complete(reads: &Reads, resource: Option<&mut v1::Resource>) -> Result<(), Error> {
    let Some(resource) = resource else { return Ok(()) };
    if resource.version.is_empty() {
        let named = gvr(Some(resource))?;
        let found = reads.preferred(&named.group, &named.resource).await;
        resource.version = found.map_err(|refusal| Error::refusal(&named, refusal))?.version.to_string();
    }
    Ok(())
}

/// The same for all selections that mean the same, for comparisons. What says nothing explicitly stays as it is, so that
/// resume tokens of older versions stay valid.
pub(super) fn canonical(selection: &v1::Selection) -> v1::Selection {
    let mut canonical = selection.clone();
    canonical.filters.sort_by_cached_key(Message::encode_to_vec);
    if canonical.shape() == v1::Shape::Full {
        canonical.set_shape(v1::Shape::Unspecified);
    }
    if canonical.encoding() == v1::Encoding::Json {
        canonical.set_encoding(v1::Encoding::Unspecified);
    }
    canonical
}

/// # Errors
/// INVALID_ARGUMENT with a one-sentence message.
pub(super) fn selection(selection: Option<&v1::Selection>) -> Result<(Selection, Rendering), Error> {
    let Some(selection) = selection else { return Err(Error::invalid("the request has no selection")) };
    let gvr = gvr(selection.resource.as_ref())?;
    let values =
        |filter: &v1::Filter| filter.names.len() + filter.index.iter().map(|term| term.values.len()).sum::<usize>();
    if selection.filters.len() > MAX_FILTERS || selection.filters.iter().map(values).sum::<usize>() > MAX_VALUES {
        return Err(Error::invalid(format!("a selection has at most {MAX_FILTERS} filters and {MAX_VALUES} values")));
    }
    let mut filters = Vec::with_capacity(selection.filters.len());
    let mut room = MAX_TEXT;
    for filter in selection.filters.iter().map(filter) {
        by_namespace(filter?, &mut filters, &mut room)?;
    }
    // A selection without filters selects everything and is authorized for everything.
    if filters.is_empty() {
        filters.push(Filter::default());
    }
    let rendering = Rendering::new(selection.shape, selection.mask.as_ref(), &selection.drop)?;
    let encoding = encoding(selection.encoding, &rendering)?;
    // Until it is authorized, its client is not known.
    let identified = true;
    Ok((Selection { gvr, filters, shape: rendering.shape(), encoding, identified }, rendering))
}

fn filter(filter: &v1::Filter) -> Result<Filter, Error> {
    let index = filter.index.iter().map(index_term).collect::<Result<_, _>>()?;
    Ok(Filter {
        namespace: (!filter.namespace.is_empty()).then(|| filter.namespace.as_str().into()),
        names: filter.names.clone(),
        label_selector: filter.label_selector.clone(),
        field_selector: filter.field_selector.clone(),
        index,
    })
}

/// Splits a filter with a few namespaces into one filter per namespace, so that each is authorized separately. The
/// text of all these filters is subtracted from `room`.
fn by_namespace(filter: Filter, into: &mut Vec<Filter>, room: &mut usize) -> Result<(), Error> {
    let of = filter.index.iter().position(|(key, _)| *key == IndexKey::Namespace);
    let at = of.filter(|&at| filter.namespace.is_none() && filter.index[at].1.len() <= MAX_NAMESPACES);
    let mut rest = filter;
    let namespaces = at.map(|at| rest.index.remove(at).1);
    let text = text(&rest).saturating_mul(namespaces.as_ref().map_or(1, Vec::len));
    *room = room.checked_sub(text).ok_or_else(|| {
        let message =
            format!("the selectors and values of a selection have at most {MAX_TEXT} bytes, for each namespace");
        Error::invalid(message)
    })?;
    let Some(namespaces) = namespaces else {
        into.push(rest);
        return Ok(());
    };
    for namespace in namespaces {
        into.push(Filter { namespace: Some(namespace.into()), ..rest.clone() });
    }
    Ok(())
}

/// The size in bytes of the text in a filter.
fn text(filter: &Filter) -> usize {
    let keys = filter.index.iter().filter_map(|(key, _)| match key {
        IndexKey::Label(key) | IndexKey::Field(key) => Some(key),
        IndexKey::Namespace | IndexKey::OwnerUid => None,
    });
    let values = filter.index.iter().flat_map(|(_, values)| values).chain(&filter.names);
    let selectors = [&filter.label_selector, &filter.field_selector];
    keys.chain(values).chain(selectors).map(String::len).sum()
}

/// The memory of a selection while it is read, in bytes: the message as sent, the parsed selection, and its
/// requirements.
pub(super) fn held(sent: Option<&v1::Selection>, selection: &Selection) -> usize {
    let of = |filter: &Filter| {
        let values = filter.names.len() + filter.index.iter().map(|(_, values)| values.len()).sum::<usize>();
        FILTER + VALUE * values + 2 * text(filter)
    };
    sent.map_or(0, Message::encoded_len) + selection.filters.iter().map(of).sum::<usize>()
}

fn index_term(term: &v1::IndexTerm) -> Result<(IndexKey, Vec<String>), Error> {
    use v1::index_term::Key;
    let key = match &term.key {
        Some(Key::Label(label)) => IndexKey::Label(label.clone()),
        Some(Key::Field(field)) => IndexKey::Field(field.clone()),
        Some(Key::Index(index)) => match v1::Index::try_from(*index) {
            Ok(v1::Index::Namespace) => IndexKey::Namespace,
            Ok(v1::Index::NodeName) => IndexKey::Field("spec.nodeName".to_owned()),
            Ok(v1::Index::OwnerUid) => IndexKey::OwnerUid,
            Ok(v1::Index::Unspecified) | Err(_) => return Err(Error::invalid("an index term names an unknown index")),
        },
        None => return Err(Error::invalid("an index term names no index, label or field")),
    };
    if term.values.is_empty() {
        return Err(Error::invalid("an index term has no values"));
    }
    Ok((key, term.values.clone()))
}

/// The encoding that the cache must hold.
fn encoding(wanted: i32, rendering: &Rendering) -> Result<Wanted, Error> {
    match v1::Encoding::try_from(wanted) {
        Ok(v1::Encoding::Unspecified | v1::Encoding::Json) => Ok(Wanted::Only(Encoding::Json)),
        // The paths of a mask are field names, which protobuf messages do not contain.
        Ok(v1::Encoding::Any) if rendering.needs_json() => Ok(Wanted::Only(Encoding::Json)),
        Ok(v1::Encoding::KubeProtobuf) if rendering.needs_json() => Err(Error::invalid("masks are for JSON only")),
        Ok(v1::Encoding::Any) => Ok(Wanted::Any),
        Ok(v1::Encoding::KubeProtobuf) => Ok(Wanted::Only(Encoding::Protobuf)),
        Err(_) => Err(Error::invalid("the selection names an unknown encoding")),
    }
}

/// The requested state, and the maximum staleness: how long the apiserver may have been silent.
pub(super) fn consistency(consistency: Option<&v1::Consistency>) -> Result<(At, Option<Duration>), Error> {
    use v1::consistency::Bound;
    let Some(consistency) = consistency else { return Ok((At::Latest(Freshness::Any), None)) };
    let at = match &consistency.bound {
        None | Some(Bound::Any(true)) => At::Latest(Freshness::Any),
        Some(Bound::Consistent(true)) => At::Latest(Freshness::Consistent),
        Some(Bound::Any(false) | Bound::Consistent(false)) => {
            return Err(Error::invalid("a consistency is chosen by setting it to true"));
        }
        Some(Bound::NotOlderThan(rv)) => At::Latest(match resource_version(rv)? {
            ResourceVersion::ZERO => Freshness::Any,
            rv => Freshness::NotOlderThan(rv),
        }),
        Some(Bound::Exact(rv)) => match resource_version(rv)? {
            ResourceVersion::ZERO => return Err(Error::invalid("no state has the resource version 0")),
            rv => At::Exact(rv),
        },
    };
    Ok((at, span(consistency.max_staleness.as_ref(), "max_staleness")?))
}

pub(super) fn resource_version(text: &str) -> Result<ResourceVersion, Error> {
    ResourceVersion::parse(text).ok_or_else(|| Error::invalid(format!("{text:?} is no resource version")))
}

/// A duration that must not be negative; `None` if absent.
pub(super) fn span(duration: Option<&prost_types::Duration>, name: &str) -> Result<Option<Duration>, Error> {
    let Some(duration) = duration else { return Ok(None) };
    let seconds = u64::try_from(duration.seconds);
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    match (seconds, nanos) {
        (Ok(seconds), Some(nanos)) => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(Error::invalid(format!("{name} is no duration, or negative"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(filters: Vec<v1::Filter>) -> Vec<Filter> {
        let resource = Some(v1::Resource { group: String::new(), version: "v1".into(), resource: "pods".into() });
        selection(Some(&v1::Selection { resource, filters, ..Default::default() })).unwrap().0.filters
    }

    fn namespaces(values: &[&str]) -> v1::Filter {
        let key = Some(v1::index_term::Key::Index(v1::Index::Namespace.into()));
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let index = vec![v1::IndexTerm { key, values }];
        v1::Filter { label_selector: "a=b".into(), index, ..Default::default() }
    }

    #[test]
    fn nothing_asked_is_everything() {
        assert_eq!(selected(vec![]), [Filter::default()]);
    }

    #[test]
    fn what_is_said_for_each_namespace_has_a_bound() {
        let of = |text: usize, values: usize| {
            let many: Vec<_> = (0..values).map(|n| n.to_string()).collect();
            let filter = namespaces(&many.iter().map(String::as_str).collect::<Vec<_>>());
            let label_selector = format!("a={}", "b".repeat(text));
            let sent = v1::Selection {
                resource: Some(v1::Resource { version: "v1".into(), resource: "pods".into(), ..Default::default() }),
                filters: vec![v1::Filter { label_selector, ..filter }],
                ..Default::default()
            };
            selection(Some(&sent)).map(|(selection, _)| held(Some(&sent), &selection))
        };
        assert!((2000..10_000).contains(&of(1000, 1).unwrap()));
        assert!((64 * 2000..200_000).contains(&of(1000, 64).unwrap()), "once for each");
        assert!(of(MAX_TEXT - 2, 1).is_ok() && of(MAX_TEXT - 1, 1).is_err());
        assert!(of(MAX_TEXT / 64 - 2, 64).is_ok() && of(MAX_TEXT / 64, 64).is_err());
    }

    #[test]
    fn each_namespace_stands_for_itself() {
        let of =
            |name: &str| Filter { namespace: Some(name.into()), label_selector: "a=b".into(), ..Filter::default() };
        assert_eq!(selected(vec![namespaces(&["x", "y"])]), [of("x"), of("y")]);
        let narrowed = v1::Filter { namespace: "z".into(), ..namespaces(&["x"]) };
        assert_eq!(selected(vec![narrowed])[0].index.len(), 1, "both must hold");
        let many: Vec<_> = (0..65).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(selected(vec![namespaces(&many)]).len(), 1);
    }
}
