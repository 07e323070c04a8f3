//! The span of a read: what it asked for, and how it was answered.

use tracing::Span;
use tracing::field::Empty;

use super::Waited;
use crate::informer::Informer;
use crate::meta::{Gvr, ResourceVersion};
use crate::telemetry::trace::{self, SPANS, cut};

pub(super) fn begin(verb: &'static str, gvr: &Gvr, namespace: Option<&str>) -> Span {
    let resource = || gvr.group_resource();
    tracing::info_span!(
        target: SPANS,
        "read",
        otel.name = format!("{verb} {}", cut(&resource())),
        informerd.verb = verb,
        informerd.resource = cut(&resource()),
        informerd.plan = Empty,
        informerd.reason = Empty,
        informerd.informer = Empty,
        informerd.informer_state = Empty,
        informerd.resource_version = Empty,
        k8s.namespace.name = namespace.map(cut),
    )
}

/// Records the informer that will answer the current read, and its state before the read waits for it.
pub(super) fn informer(informer: &Informer) {
    if trace::is_on() {
        let span = Span::current();
        span.record("informerd.informer", informer.key().to_string());
        span.record("informerd.informer_state", informer.status().state);
    }
}

/// Records how a read was answered: what it waited for and the revision that it saw, or else the plan and the reason.
pub(super) fn end(span: &Span, answered: Result<(Waited, ResourceVersion), (&str, &str)>) {
    if span.is_disabled() {
        return;
    }
    let (plan, reason) = match answered {
        Ok((waited, rv)) => {
            span.record("informerd.resource_version", rv.to_string());
            (waited.plan(), waited.reason())
        }
        Err(unserved) => unserved,
    };
    span.record("informerd.plan", plan);
    if !reason.is_empty() {
        span.record("informerd.reason", reason);
    }
}
