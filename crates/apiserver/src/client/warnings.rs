//! The apiserver's warnings: the `Warning` header on every answer of a deprecated API version.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{HeaderMap, HeaderValue, WARNING};

use informerd_meta::Gvr;

/// The apiserver's warnings for reads of each resource, as it sends them on our own reads: the values of its `Warning`
/// headers, in their order. Only the apiserver knows which versions are deprecated since when, and what to use instead.
///
/// Its size is bounded by the number of deprecated resources that we read, and each entry by the size of a response's
/// head.
#[derive(Debug, Default)]
pub struct Warnings {
    by_resource: ArcSwap<HashMap<Gvr, Arc<[HeaderValue]>>>,
    /// The warnings on answers without a resource. They concern our own credentials and not the clients.
    ours: ArcSwap<Vec<HeaderValue>>,
}

/// The code of a warning that should be shown to the user (RFC 7234, 5.5.7). The apiserver uses no other.
const MISCELLANEOUS: &[u8] = b"299 ";

// === impl Warnings ===

impl Warnings {
    /// The warnings for answers to reads of the resource. Empty for most resources.
    pub fn of(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        self.by_resource.load().get(gvr).cloned().unwrap_or_default()
    }

    /// Records the warnings of an answer to one of our own reads.
    pub fn learn(&self, gvr: &Gvr, headers: &HeaderMap) {
        let ours = self.ours.load();
        let said: Vec<_> = warnings(headers).filter(|value| !ours.contains(value)).cloned().collect();
        // Nearly always there are no warnings, or the same as before.
        if *self.of(gvr) == *said {
            return;
        }
        let said: Arc<[HeaderValue]> = said.into();
        self.by_resource.rcu(|known| {
            let mut known = HashMap::clone(known);
            if said.is_empty() {
                known.remove(gvr);
            } else {
                known.insert(gvr.clone(), Arc::clone(&said));
            }
            known
        });
    }

    /// Records the warnings that the apiserver sends us for any read, for example about tokens that should no longer be
    /// used.
    pub fn learn_ours(&self, headers: &HeaderMap) {
        if !warnings(headers).eq(self.ours.load().iter()) {
            self.ours.store(Arc::new(warnings(headers).cloned().collect()));
        }
    }

    /// Forgets the resource, because it has no readers any more.
    pub fn forget(&self, gvr: &Gvr) {
        self.learn(gvr, &HeaderMap::new());
    }
}

fn warnings(headers: &HeaderMap) -> impl Iterator<Item = &HeaderValue> {
    headers.get_all(WARNING).iter().filter(|value| value.as_bytes().starts_with(MISCELLANEOUS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (WARNING, HeaderValue::from_bytes(value.as_bytes()).unwrap())).collect()
    }

    fn said(warnings: &Warnings, gvr: &Gvr) -> Vec<String> {
        warnings.of(gvr).iter().map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_last_answer_counts() {
        let warnings = Warnings::default();
        let (v1, v2) = (Gvr::new("g", "v1", "widgets"), Gvr::new("g", "v2", "widgets"));
        warnings.learn(&v1, &headers(&[r#"299 - "é is old""#, r#"299 - "use \"v2\"""#]));
        assert_eq!(said(&warnings, &v1), [r#"299 - "é is old""#, r#"299 - "use \"v2\"""#]);
        assert!(said(&warnings, &v2).is_empty());
        warnings.learn(&v1, &headers(&[r#"299 - "other""#]));
        assert_eq!(said(&warnings, &v1), [r#"299 - "other""#]);
        warnings.learn(&v1, &headers(&[]));
        assert!(said(&warnings, &v1).is_empty());
        assert!(warnings.by_resource.load().is_empty());
    }

    #[test]
    fn what_concerns_only_us_or_is_of_a_proxy_is_no_warning_for_clients() {
        let warnings = Warnings::default();
        let gvr = Gvr::new("", "v1", "endpoints");
        warnings.learn_ours(&headers(&[r#"299 - "your token is old""#]));
        let stale = r#"110 proxy "Response is Stale""#;
        warnings.learn(&gvr, &headers(&[r#"299 - "your token is old""#, stale, r#"299 - "deprecated""#]));
        assert_eq!(said(&warnings, &gvr), [r#"299 - "deprecated""#]);
        warnings.forget(&gvr);
        assert!(said(&warnings, &gvr).is_empty());
    }
}
