//! Counters of the requests to the apiserver, by verb, resource and status code.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::meter::Meter;
use super::stamp::Stamp;

/// Maximum number of separate series; requests beyond it are counted under the resource "other". The resources times
/// verbs times codes of a large cluster stay far below.
const MAX_SERIES: usize = 8192;
/// Maximum length of a resource's name and group in bytes. A name has at most 63, and a longer one is not a valid name.
const MAX_NAME: usize = 253;
/// The label for names that a client calls a resource and the apiserver has not confirmed.
const OTHER: &str = "other";

/// The purpose of a request. Object lists and revision probes are separate, although both are lists on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestVerb {
    /// Lists the objects of a collection, in pages or at once.
    List,
    /// A watch from a resourceVersion.
    Watch,
    /// A watch that begins with the whole state.
    WatchList,
    /// A `limit=1` list or a short second watch: it asks for revisions, not for objects.
    Probe,
    Get,
    Discovery,
    /// Asks for the identity or the permissions of a client.
    Review,
    /// A request forwarded for a client.
    Forward,
}

/// One series of [`UpstreamMetrics::requests`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestSeries {
    pub verb: RequestVerb,
    /// For example `pods` or `deployments.apps`; empty if the request has no resource.
    pub resource: Arc<str>,
    /// The HTTP status, or 0 when no response came.
    pub code: u16,
}

/// Counters of one client. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct UpstreamMetrics {
    requests: RwLock<HashMap<RequestSeries, AtomicU64>>,
    /// Connections opened since the start.
    pub connects: Counter,
    /// Connection attempts that failed.
    pub connect_errors: Counter,
    /// How often the store was found to have a different history than an informer.
    pub contradictions: Counter,
    /// Attempts to reach an apiserver that did not answer.
    pub seeks: Counter,
    /// Attempts that informers made before the end of their backoff.
    pub early_retries: Counter,
    /// Connections open now.
    pub connections: Gauge,
    /// Requests whose response has not ended.
    pub in_flight: Gauge,
    /// How often the credentials were read again.
    pub credential_reloads: Counter,
    /// Requests that were moved to another connection because the first had not begun them.
    pub resends: Counter,
    /// Bytes of answers on the wire, both to the daemon's own requests and to forwarded ones.
    pub received_bytes: Counter,
    /// Events and bookmarks of the informers' own watches, and of the watches that prove freshness.
    pub received_events: Counter,
    /// Our own requests that have no meter of their own, because no informer has sent them.
    pub others: Arc<Meter>,
    /// When data of any answer last arrived.
    pub heard: Stamp,
    /// Bytes of request bodies that are kept until their answer begins, in case they have to be sent again.
    pub kept_request_bytes: Gauge,
}

// === impl RequestVerb ===

impl RequestVerb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::WatchList => "watchlist",
            Self::Probe => "probe",
            Self::Get => "get",
            Self::Discovery => "discovery",
            Self::Review => "review",
            Self::Forward => "forward",
        }
    }
}

// === impl UpstreamMetrics ===

impl UpstreamMetrics {
    /// Registers the metrics without labels.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, gauge) in [
            ("upstream_connections", "Open connections to the apiserver", &self.connections),
            ("upstream_requests_in_flight", "Requests whose answer is not complete", &self.in_flight),
            ("upstream_kept_request_bytes", "Request bodies kept until their answer begins", &self.kept_request_bytes),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("upstream_received_bytes", "Bytes of answers of the apiserver", &self.received_bytes),
            ("upstream_received_events", "Events and bookmarks received by informers", &self.received_events),
            ("upstream_connects", "Connections opened to the apiserver", &self.connects),
            ("upstream_connect_errors", "Failed connections to the apiserver", &self.connect_errors),
            (
                "upstream_contradictions",
                "Times that the store contradicted an informer, as after a restore",
                &self.contradictions,
            ),
            ("upstream_seeks", "Attempts to reach an apiserver that did not answer, on a new connection", &self.seeks),
            ("upstream_early_retries", "Retries of informers before the end of their back-off", &self.early_retries),
            (
                "upstream_resends",
                "Requests sent again because the apiserver had not started to process them",
                &self.resends,
            ),
            ("upstream_credential_reloads", "Times that the credentials were read again", &self.credential_reloads),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    /// All series with their counts, sorted.
    pub fn requests(&self) -> Vec<(RequestSeries, u64)> {
        let requests = self.requests.read();
        let mut all: Vec<_> =
            requests.iter().map(|(series, count)| (series.clone(), count.load(Ordering::Relaxed))).collect();
        all.sort();
        all
    }

    /// Requests of one verb with any status code, for one resource or (`None`) for all.
    pub fn total(&self, verb: RequestVerb, resource: Option<&str>) -> u64 {
        self.sum(|series| series.verb == verb && resource.is_none_or(|name| name == &*series.resource))
    }

    /// The daemon's own requests that the apiserver has answered: one that does not answer has no work with a request.
    pub fn own(&self) -> u64 {
        self.sum(|series| series.verb != RequestVerb::Forward && series.code != 0)
    }

    /// Forwarded requests that the apiserver has answered.
    pub fn forwarded(&self) -> u64 {
        self.sum(|series| series.verb == RequestVerb::Forward && series.code != 0)
    }

    fn sum(&self, of: impl Fn(&RequestSeries) -> bool) -> u64 {
        let requests = self.requests.read();
        requests.iter().filter(|(series, _)| of(series)).map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// A client's name for a resource becomes a label only after the apiserver has answered a request for it with
    /// success.
    pub(crate) fn count_request(&self, verb: RequestVerb, resource: &Arc<str>, code: u16) {
        let mut series = RequestSeries { verb, resource: Arc::clone(resource), code };
        if let Some(count) = self.requests.read().get(&series) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut requests = self.requests.write();
        let is_known = verb != RequestVerb::Forward
            || matches!(code, 101 | 200..400)
            || resource.is_empty()
            || requests.keys().any(|known| known.resource == *resource);
        if !is_known || resource.len() > MAX_NAME || requests.len() >= MAX_SERIES {
            series.resource = OTHER.into();
        }
        requests.entry(series).or_default().fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_verb_resource_and_code() {
        let metrics = UpstreamMetrics::default();
        let pods: Arc<str> = "pods".into();
        metrics.count_request(RequestVerb::List, &pods, 200);
        metrics.count_request(RequestVerb::List, &pods, 200);
        metrics.count_request(RequestVerb::List, &pods, 429);
        metrics.count_request(RequestVerb::Watch, &"nodes".into(), 200);
        metrics.count_request(RequestVerb::Watch, &"nodes".into(), 0);
        assert_eq!(metrics.total(RequestVerb::List, Some("pods")), 3);
        assert_eq!(metrics.total(RequestVerb::List, Some("nodes")), 0);
        assert_eq!(metrics.total(RequestVerb::Watch, None), 2);
        metrics.count_request(RequestVerb::Forward, &pods, 200);
        metrics.count_request(RequestVerb::Forward, &pods, 0);
        assert_eq!((metrics.own(), metrics.forwarded()), (4, 1), "what was not answered has cost nothing");
        let series: Vec<_> = metrics.requests().into_iter().map(|(s, n)| (s.verb.as_str(), s.code, n)).collect();
        assert_eq!(
            series,
            [
                ("list", 200, 2),
                ("list", 429, 1),
                ("watch", 0, 1),
                ("watch", 200, 1),
                ("forward", 0, 1),
                ("forward", 200, 1)
            ]
        );
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let metrics = UpstreamMetrics::default();
        for i in 0..MAX_SERIES + 10 {
            metrics.count_request(RequestVerb::Forward, &format!("r{i}").into(), 200);
        }
        assert_eq!(metrics.requests().len(), MAX_SERIES + 1);
        assert_eq!(metrics.total(RequestVerb::Forward, Some("other")), 10);
        let metrics = UpstreamMetrics::default();
        let counted = [MAX_NAME, MAX_NAME + 1].map(|len| {
            let name = "n".repeat(len);
            metrics.count_request(RequestVerb::Forward, &name.as_str().into(), 200);
            metrics.total(RequestVerb::Forward, Some(&name))
        });
        assert_eq!(counted, [1, 0]);
    }

    #[test]
    fn what_a_client_makes_up_is_no_label() {
        let metrics = UpstreamMetrics::default();
        for i in 0..1000 {
            let name = format!("{}{i}", "x".repeat(60_000));
            for code in [0, 401, 403, 404] {
                metrics.count_request(RequestVerb::Forward, &name.as_str().into(), code);
            }
        }
        metrics.count_request(RequestVerb::Forward, &"y".repeat(254).into(), 200);
        metrics.count_request(RequestVerb::Forward, &"pods".into(), 403);
        metrics.count_request(RequestVerb::Forward, &"pods".into(), 200);
        metrics.count_request(RequestVerb::Forward, &"pods".into(), 403);
        let series: Vec<_> =
            metrics.requests().into_iter().map(|(series, n)| (series.resource.to_string(), series.code, n)).collect();
        let series: Vec<_> = series.iter().map(|(resource, code, n)| (&**resource, *code, *n)).collect();
        assert_eq!(
            series,
            [
                ("other", 0, 1000),
                ("other", 200, 1),
                ("other", 401, 1000),
                ("other", 403, 1001),
                ("other", 404, 1000),
                ("pods", 200, 1),
                ("pods", 403, 1)
            ]
        );
    }
}
