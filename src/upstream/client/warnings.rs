//! The apiserver's warnings: a `Warning` header on every answer of an API version that is deprecated.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{HeaderMap, HeaderValue, WARNING};

use crate::meta::Gvr;

/// What the apiserver warns of when a resource is read, as it says so on our own reads: the values of its `Warning`
/// headers, in their order. Only it knows which versions are deprecated since when, and what to use instead.
/// Cloning shares it.
///
/// Its size is bounded by the deprecated resources we read, and each entry by the size of a response's head.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_resource: ArcSwap<HashMap<Gvr, Arc<[HeaderValue]>>>,
    /// What is said on answers that are of no resource: it concerns our own credentials and not the clients.
    ours: ArcSwap<Vec<HeaderValue>>,
}

/// The code of a warning that is meant to be shown (RFC 7234, 5.5.7). The apiserver uses no other.
const MISCELLANEOUS: &[u8] = b"299 ";

// === impl Warnings ===

impl Warnings {
    /// What a read of the resource is to be answered with. Empty for most.
    pub fn of(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        self.inner.by_resource.load().get(gvr).cloned().unwrap_or_default()
    }

    /// Takes what the apiserver has just said on a read of ours.
    pub fn learn(&self, gvr: &Gvr, headers: &HeaderMap) {
        let ours = self.inner.ours.load();
        let said: Vec<_> = warnings(headers).filter(|value| !ours.contains(value)).cloned().collect();
        // Nearly always nothing, or what was said before.
        if *self.of(gvr) == *said {
            return;
        }
        let said: Arc<[HeaderValue]> = said.into();
        self.inner.by_resource.rcu(|known| {
            let mut known = HashMap::clone(known);
            if said.is_empty() {
                known.remove(gvr);
            } else {
                known.insert(gvr.clone(), Arc::clone(&said));
            }
            known
        });
    }

    /// Takes what the apiserver says to us whatever we read, as it does of tokens that are no longer to be used.
    pub fn learn_ours(&self, headers: &HeaderMap) {
        if !warnings(headers).eq(self.inner.ours.load().iter()) {
            self.inner.ours.store(Arc::new(warnings(headers).cloned().collect()));
        }
    }

    /// Nobody reads the resource any more.
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
        assert!(warnings.inner.by_resource.load().is_empty());
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
