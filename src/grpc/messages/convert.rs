//! Converts request messages to the parameters of the read path, and enforces the limits of a request.

use std::time::Duration;

use prost::Message;

use super::render::Rendering;
use crate::grpc::call::{Error, access, quotable};
use crate::grpc::pb::v1;
use crate::memory::{Ledger, Reservation};
use crate::meta::{Encoding, Gvr, ResourceVersion, TOO_LARGE, fields_fit, labels_fit, selectors_cost};
use crate::reads::plan::Freshness;
use crate::reads::{At, Filter, IndexKey, Selection, WantedEncoding};

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
/// The memory of an access that is authorized by itself, in bytes, and of its entry in the audit log.
const ACCESS: usize = 1 << 10;
/// The memory of a level of a mask's tree, in bytes.
const LEVEL: usize = 512;

/// The longest name of a group, a version or a resource, as of every name in Kubernetes.
const MAX_NAME: usize = 253;

/// The version may be empty, unless the selection was authorized.
///
/// # Errors
/// INVALID_ARGUMENT without a name.
pub(in crate::grpc) fn gvr(resource: Option<&v1::Resource>) -> Result<Gvr, Error> {
    let Some(v1::Resource { group, version, resource }) = resource else {
        return Err(Error::invalid("the request names no resource"));
    };
    if resource.is_empty() {
        return Err(Error::invalid("a resource needs a plural name"));
    }
    // It becomes part of a URL path.
    let plain = |part: &str| {
        part.len() <= MAX_NAME && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
    };
    if ![group, version, resource].into_iter().all(|part| plain(part)) {
        return Err(Error::invalid(
            "a resource's group, version and name are at most 253 letters, digits, dots and dashes",
        ));
    }
    Ok(Gvr::new(group, version, resource))
}

/// The same for all selections that mean the same, for comparisons. What says nothing explicitly stays as it is, so that
/// resume tokens of older versions stay valid.
pub(in crate::grpc) fn canonical(selection: &v1::Selection) -> v1::Selection {
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

/// The parsed selection, and the memory for it, which is reserved before anything is made of it.
///
/// # Errors
/// INVALID_ARGUMENT with a one-sentence message, or RESOURCE_EXHAUSTED.
pub(in crate::grpc) fn selection(
    selection: Option<&v1::Selection>,
    ledger: &Ledger,
) -> Result<(Selection, Rendering, Reservation), Error> {
    let Some(selection) = selection else { return Err(Error::invalid("the request has no selection")) };
    let held = ledger.lasting(cost(selection)?);
    let held = held.map_err(|_| Error::no_memory("there is no memory for the selection"))?;
    let gvr = gvr(selection.resource.as_ref())?;
    let mut filters = Vec::with_capacity(selection.filters.len());
    for sent in &selection.filters {
        let mut parsed = filter(sent)?;
        match split_at(sent) {
            Some(at) => {
                let (_, namespaces) = parsed.index.remove(at);
                let of = |namespace: String| Filter { namespace: Some(namespace.into()), ..parsed.clone() };
                filters.extend(namespaces.into_iter().map(of));
            }
            None => filters.push(parsed),
        }
    }
    // A selection without filters selects everything and is authorized for everything.
    if filters.is_empty() {
        filters.push(Filter::default());
    }
    let rendering = Rendering::new(selection.shape, selection.mask.as_ref(), &selection.drop)?;
    let encoding = encoding(selection.encoding, &rendering)?;
    // Until it is authorized, its client is not known.
    let identified = true;
    Ok((Selection { gvr, filters, shape: rendering.shape(), encoding, identified }, rendering, held))
}

/// The memory of a selection for as long as it is read, in bytes: the message as sent, the parsed selection, what it asks of
/// authorizers, and its predicate.
///
/// # Errors
/// INVALID_ARGUMENT: it is too large to be read.
fn cost(selection: &v1::Selection) -> Result<usize, Error> {
    if selection.filters.len() > MAX_FILTERS || selection.filters.iter().map(values).sum::<usize>() > MAX_VALUES {
        return Err(Error::invalid(format!("a selection has at most {MAX_FILTERS} filters and {MAX_VALUES} values")));
    }
    let paths = selection.mask.iter().flat_map(|mask| &mask.paths).map(String::as_bytes);
    let levels: usize = paths.map(|path| memchr::memchr_iter(b'.', path).count()).sum();
    let (mut all_text, mut memory) = (0_usize, selection.encoded_len() + LEVEL * levels);
    for filter in &selection.filters {
        let (labels, fields) = (&filter.label_selector, &filter.field_selector);
        if !labels_fit(labels) || !fields_fit(fields) {
            return Err(Error::invalid(TOO_LARGE));
        }
        let split = split_at(filter).map(|at| &filter.index[at]);
        let namespaces = split.map_or(std::slice::from_ref(&filter.namespace), |term| &term.values);
        // Each access has its namespace.
        if namespaces.iter().any(|namespace| namespace.len() > MAX_NAME) {
            return Err(Error::invalid(format!("a namespace has at most {MAX_NAME} bytes")));
        }
        // As in a path. With a slash, a name would be that of an object in another namespace than the one of the permission.
        let is_segment = |name: &String| !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']);
        if !namespaces.iter().chain(&filter.names).all(is_segment) {
            return Err(Error::invalid("a name or namespace contains no '/' and no '%', and is neither '.' nor '..'"));
        }
        let times = namespaces.len();
        let text = text(filter) - split.map_or(0, text_of);
        all_text = all_text.saturating_add(times.saturating_mul(text + labels.len() + fields.len()));
        let values = values(filter) - split.map_or(0, |term| term.values.len());
        let accesses = filter.names.len().clamp(1, access::MAX_NAMES);
        let each = FILTER + VALUE * values + 2 * text + ACCESS * accesses + selectors_cost(labels, fields);
        memory += times * each;
    }
    if all_text > MAX_TEXT {
        let message =
            format!("the selectors and values of a selection have at most {MAX_TEXT} bytes, for each namespace");
        return Err(Error::invalid(message));
    }
    Ok(memory)
}

/// The number of names and values in a filter.
fn values(filter: &v1::Filter) -> usize {
    filter.names.len() + filter.index.iter().map(|term| term.values.len()).sum::<usize>()
}

/// The size in bytes of the text in a filter, without its selectors.
fn text(filter: &v1::Filter) -> usize {
    filter.names.iter().map(String::len).sum::<usize>() + filter.index.iter().map(text_of).sum::<usize>()
}

fn text_of(term: &v1::IndexTerm) -> usize {
    use v1::index_term::Key;
    let key = match &term.key {
        Some(Key::Label(key) | Key::Field(key)) => key.len(),
        Some(Key::Index(_)) | None => 0,
    };
    key + term.values.iter().map(String::len).sum::<usize>()
}

/// The index term whose namespaces become filters of their own, if there are only a few: each is authorized separately.
fn split_at(filter: &v1::Filter) -> Option<usize> {
    let namespace = Some(v1::index_term::Key::Index(v1::Index::Namespace.into()));
    let at = filter.index.iter().position(|term| term.key == namespace)?;
    (filter.namespace.is_empty() && filter.index[at].values.len() <= MAX_NAMESPACES).then_some(at)
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
fn encoding(wanted: i32, rendering: &Rendering) -> Result<WantedEncoding, Error> {
    match v1::Encoding::try_from(wanted) {
        Ok(v1::Encoding::Unspecified | v1::Encoding::Json) => Ok(WantedEncoding::Only(Encoding::Json)),
        // The paths of a mask are field names, which protobuf messages do not contain.
        Ok(v1::Encoding::Any) if rendering.needs_json() => Ok(WantedEncoding::Only(Encoding::Json)),
        Ok(v1::Encoding::KubeProtobuf) if rendering.needs_json() => Err(Error::invalid("masks are for JSON only")),
        Ok(v1::Encoding::Any) => Ok(WantedEncoding::Any),
        Ok(v1::Encoding::KubeProtobuf) => Ok(WantedEncoding::Only(Encoding::Protobuf)),
        Err(_) => Err(Error::invalid("the selection names an unknown encoding")),
    }
}

/// The requested state, and the maximum staleness: how long the apiserver may have been silent.
pub(in crate::grpc) fn consistency(consistency: Option<&v1::Consistency>) -> Result<(At, Option<Duration>), Error> {
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

pub(in crate::grpc) fn resource_version(text: &str) -> Result<ResourceVersion, Error> {
    ResourceVersion::parse(text).ok_or_else(|| Error::invalid(format!("{:?} is no resource version", quotable(text))))
}

/// A duration that must not be negative; `None` if absent.
pub(in crate::grpc) fn span(duration: Option<&prost_types::Duration>, name: &str) -> Result<Option<Duration>, Error> {
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
    use crate::grpc::testing;

    /// What is read of a selection of pods with these filters, and the memory that it takes.
    fn pods(filters: Vec<v1::Filter>) -> Result<(Vec<Filter>, usize), Error> {
        let read = selection(Some(&testing::selection("pods", filters)), &Ledger::default());
        read.map(|(selection, _, held)| (selection.filters, held.bytes()))
    }

    fn selected(filters: Vec<v1::Filter>) -> Vec<Filter> {
        pods(filters).unwrap().0
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
            pods(vec![v1::Filter { label_selector, ..filter }]).map(|(_, held)| held)
        };
        assert!((2000..10_000).contains(&of(1000, 1).unwrap()));
        assert!((64 * 2000..300_000).contains(&of(1000, 64).unwrap()), "once for each");
        assert!(of(MAX_TEXT - 2, 1).is_ok() && of(MAX_TEXT - 1, 1).is_err());
        assert!(of(MAX_TEXT / 64 - 2, 64).is_ok() && of(MAX_TEXT / 64, 64).is_err());
    }

    #[test]
    fn a_selection_has_so_many_filters_and_values() {
        let is_read = |filters| pods(filters).is_ok();
        let named = |count: usize| v1::Filter { names: vec!["n".to_owned(); count], ..Default::default() };
        assert!([0, 1].map(|more| is_read(vec![named(1); MAX_FILTERS + more])) == [true, false]);
        assert!([0, 1].map(|more| is_read(vec![named(MAX_VALUES + more)])) == [true, false]);
    }

    /// The rest of it is tested with calls.
    #[test]
    fn a_selector_counts_before_anything_is_made_of_it() {
        let small = Ledger::new(400_000, crate::memory::Pressure::default());
        let of = |count: usize| {
            let filter = v1::Filter { label_selector: vec!["a"; count].join(","), ..Default::default() };
            selection(Some(&testing::selection("pods", vec![filter])), &small).map(drop)
        };
        assert_eq!(of(1000).map_err(|error| tonic::Status::from(error).code()), Err(tonic::Code::ResourceExhausted));
        assert!(of(100).is_ok());
        assert_eq!(small.used(), 0);
    }

    #[test]
    fn names_and_masks_count_as_what_they_become() {
        let of = |change: &dyn Fn(&mut v1::Selection)| {
            let mut sent = testing::selection("pods", vec![namespaces(&["x"])]);
            change(&mut sent);
            selection(Some(&sent), &Ledger::default()).map(|(.., held)| held.bytes())
        };
        let long = |length: usize| "n".repeat(length);
        for length in [253, 254, 1 << 20] {
            let own = of(&|sent| sent.filters[0].namespace = long(length));
            let indexed = of(&|sent| sent.filters = vec![namespaces(&[&long(length)])]);
            let resource = of(&|sent| sent.resource.as_mut().unwrap().resource = long(length));
            assert_eq!([own, indexed, resource].map(|held| held.is_ok()), [length == 253; 3], "{length}");
        }
        let deep = of(&|sent| {
            sent.set_shape(v1::Shape::Masked);
            sent.mask = Some(prost_types::FieldMask { paths: vec![vec!["a"; 500].join("."); 256] });
        });
        assert!(deep.unwrap() > 256 * 499 * 450, "a level is a node of a tree");
    }

    #[test]
    fn a_name_is_no_path() {
        let is_read = |namespace: &str, name: &str| {
            pods(vec![v1::Filter { namespace: namespace.into(), names: vec![name.into()], ..Default::default() }])
                .is_ok()
        };
        for name in ["kube-system/x", "/", "a%2Fb", ".", ".."] {
            assert!(!is_read("", name) && !is_read(name, "x"), "{name}");
            assert!(pods(vec![namespaces(&["x", name])]).is_err(), "{name}");
        }
        assert!(["x", "a.b", "system:node", "..."].iter().all(|name| is_read("", name)));
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
        assert_eq!(selected(vec![namespaces(&many[..MAX_NAMESPACES])]).len(), MAX_NAMESPACES);
    }
}
