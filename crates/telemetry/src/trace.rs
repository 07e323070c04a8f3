//! The interface to tracing for all modules: the target of spans that are exported, and the context that connects
//! spans across processes, according to W3C Trace Context.
//!
//! While nothing is exported, the callsite of a span is disabled. It costs one relaxed load, and its fields are not
//! evaluated. No header is changed then, so a forwarded request keeps its client's trace context.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of every exported span. No log line uses it.
pub const SPANS: &str = "informerd::spans";

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The longest text in a span, in bytes. A client can send any length, and spans wait in memory for their export.
const LONGEST: usize = 256;
/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const TRACEPARENT_LEN: usize = 55;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether spans are created at all. Check it before expensive computations for the fields of a span.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(super) fn switch_on() {
    ON.store(true, Ordering::Relaxed);
}

/// Makes the span a child of the span that the headers of a request name. The span must not have been entered yet.
pub fn continue_from(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    if let Some(parent) = named(headers) {
        // It fails only for spans that are not exported or that have already been entered.
        span.set_parent(Context::new().with_remote_span_context(parent)).ok();
    }
}

/// Sets the span as the parent in the headers of an outgoing request. Baggage is not changed.
pub fn hand_on(span: &Span, headers: &mut HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    let span = context.span();
    let own = span.span_context();
    if !own.is_valid() {
        return;
    }
    let flags = (own.trace_flags() & TraceFlags::SAMPLED).to_u8();
    let parent = format!("00-{}-{}-{flags:02x}", own.trace_id(), own.span_id());
    if let Ok(parent) = HeaderValue::from_str(&parent) {
        headers.insert(TRACEPARENT, parent);
    }
    match HeaderValue::from_str(&own.trace_state().header()) {
        Ok(state) if !state.is_empty() => headers.insert(TRACESTATE, state),
        // The state belongs to a trace that this request is not part of.
        _ => headers.remove(TRACESTATE),
    };
}

/// A text for a span.
pub fn cut(text: &str) -> &str {
    let beyond = text.char_indices().find(|(at, character)| at + character.len_utf8() > LONGEST);
    beyond.map_or(text, |(at, _)| &text[..at])
}

/// The trace and span of a log line.
pub(super) fn current() -> Option<(TraceId, SpanId)> {
    if !is_on() {
        return None;
    }
    let context = Context::current();
    let span = context.span();
    let own = span.span_context();
    own.is_valid().then(|| (own.trace_id(), own.span_id()))
}

/// The parent in the headers. `None` if there is none or it is not valid by the standard; then a new trace begins.
fn named(headers: &HeaderMap) -> Option<SpanContext> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    let text = line.to_str().ok()?;
    let (version, trace, parent, flags) = (text.get(..2)?, text.get(3..35)?, text.get(36..52)?, text.get(53..55)?);
    let dashes = [2, 35, 52].iter().all(|&at| text.as_bytes()[at] == b'-');
    let end = match text.as_bytes().get(TRACEPARENT_LEN) {
        None => true,
        // A later version may have additional fields.
        Some(next) => *next == b'-' && version != "00",
    };
    let (version, flags) = (digits(version)?, digits(flags)?);
    if !dashes || !end || version == 0xff {
        return None;
    }
    let trace = TraceId::from_bytes(digits(trace)?.to_be_bytes());
    let parent = SpanId::from_bytes(u64::try_from(digits(parent)?).ok()?.to_be_bytes());
    let states: Vec<_> = headers.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok()).collect();
    // A state that cannot be parsed is dropped, but the trace continues.
    let state = TraceState::from_str(&states.join(",")).unwrap_or_default();
    let flags = TraceFlags::new(u8::try_from(flags).ok()?) & TraceFlags::SAMPLED;
    let named = SpanContext::new(trace, parent, flags, true, state);
    named.is_valid().then_some(named)
}

/// Parses hexadecimal digits. The standard requires lower case.
fn digits(text: &str) -> Option<u128> {
    let all = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if all { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(lines: &[(&'static str, &str)]) -> Option<SpanContext> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        named(&headers)
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"é".repeat(200)).len(), 256);
        assert!(cut(&format!("a{}", "é".repeat(200))).len() == 255);
    }

    #[test]
    fn takes_what_the_standard_takes() {
        let found = of(&[("traceparent", GOOD), ("tracestate", "a=1"), ("tracestate", "b=2")]).unwrap();
        assert_eq!(found.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(found.span_id().to_string(), "b7ad6b7169203331");
        assert!(found.is_sampled() && found.is_remote());
        assert_eq!(found.trace_state().header(), "a=1,b=2");
        // Unknown flags are not an error. Only the known flag counts.
        assert!(!of(&[("traceparent", &GOOD.replace("-01", "-fe"))]).unwrap().is_sampled());
        let later = format!("cc{}-what-will-be", &GOOD[2..]);
        assert!(of(&[("traceparent", &later)]).is_some());
        assert!(of(&[("traceparent", GOOD), ("tracestate", "no state")]).is_some());
    }

    #[test]
    fn begins_anew_where_the_parent_is_none() {
        let zero_trace = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let zero_span = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let (upper, longer) = (GOOD.replace("af", "AF"), format!("{GOOD}-more"));
        let (signed, no_dash) = (GOOD.replace("00-", "+0-"), format!("cc{}x", &GOOD[2..]));
        let wrong = [
            zero_trace,
            zero_span,
            &upper,
            &longer,
            &signed,
            &no_dash,
            &GOOD.replace("00-", "ff-"),
            &GOOD[..54],
            "é",
            "",
        ];
        for text in wrong {
            assert_eq!(of(&[("traceparent", text)]), None, "{text}");
        }
        assert_eq!(of(&[("traceparent", GOOD), ("traceparent", GOOD)]), None);
        assert_eq!(of(&[]), None);
    }
}
