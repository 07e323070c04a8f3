//! The span of a read: what it asked for, and how it was answered.

use tracing::Span;
use tracing::field::Empty;

use super::unserved::Refusal;
use super::{Outcome, Served, Waited, refusal};
use crate::informer::Informer;
use crate::meta::{Gvr, ResourceVersion};
use crate::telemetry::trace::{self, SPANS, cut};

pub(super) fn begin(verb: &'static str, gvr: &Gvr, namespace: Option<&str>) -> Span {
    let span = tracing::info_span!(
        target: SPANS,
        "read",
        otel.name = Empty,
        otel.status_code = Empty,
        informerd.verb = verb,
        informerd.resource = Empty,
        informerd.plan = Empty,
        informerd.reason = Empty,
        informerd.informer = Empty,
        informerd.informer_state = Empty,
        informerd.resource_version = Empty,
        k8s.namespace.name = namespace.map(cut),
    );
    if !span.is_disabled() {
        let resource = gvr.group_resource();
        let resource = cut(&resource);
        span.record("otel.name", format!("{verb} {resource}"));
        span.record("informerd.resource", resource);
    }
    span
}

/// Records the informer that will answer the current read, and its state before the read waits for it.
pub(super) fn informer(informer: &Informer) {
    if trace::is_on() {
        let span = Span::current();
        span.record("informerd.informer", informer.key().to_string());
        span.record("informerd.informer_state", informer.status().state);
    }
}

/// Records how a read of the REST side was answered.
pub(super) fn end<T>(span: &Span, outcome: &Outcome<T>, served: impl FnOnce(&T) -> Served) {
    if span.is_disabled() {
        return;
    }
    let (plan, reason) = match outcome {
        Outcome::Serve(answer) => {
            let served = served(answer);
            return serve(span, served.waited, served.rv);
        }
        Outcome::Forward(reason) => ("forward", reason.as_str()),
        Outcome::Refuse(status) => ("refuse", refusal(status)),
    };
    span.record("informerd.plan", plan);
    span.record("informerd.reason", reason);
}

/// Records how a typed read was answered.
pub(super) fn end_typed<T>(span: &Span, result: &Result<(T, Waited), Refusal>, rv: impl FnOnce(&T) -> ResourceVersion) {
    if span.is_disabled() {
        return;
    }
    match result {
        Ok((answer, waited)) => serve(span, *waited, rv(answer)),
        Err(refusal) => {
            span.record("informerd.plan", "refuse");
            span.record("informerd.reason", refusal.reason());
        }
    }
}

fn serve(span: &Span, waited: Waited, rv: ResourceVersion) {
    span.record("informerd.plan", waited.plan());
    if !waited.reason().is_empty() {
        span.record("informerd.reason", waited.reason());
    }
    span.record("informerd.resource_version", rv.to_string());
}
