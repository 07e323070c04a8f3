//! Log lines on standard error, filtered by level and target, and the spans of the trace export.

use std::fmt;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as lines, registry};

use super::otel::Otel;
use super::trace;

/// The filter and the format of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives per target: `info,informerd::cache=debug`.
    pub filter: String,
    /// One JSON object per line, instead of text.
    pub json: bool,
}

/// Appends the current trace and span to a line, with the field names of OpenTelemetry.
struct Traced<F> {
    inner: F,
    json: bool,
}

/// The TLS library warns about each message that a client should not have sent, so anyone who can connect could fill the log.
/// Failed handshakes are counted.
const QUIET: &str = "rustls=error";

// === impl LogConfig ===

impl LogConfig {
    /// Checks whether a filter is valid.
    ///
    /// # Errors
    /// The mistake in the filter.
    pub fn check_filter(text: &str) -> Result<(), String> {
        parse_filter(text).map(|_| ())
    }

    /// Starts to write log lines and to create spans for the export. Call it once, before anything is logged.
    ///
    /// # Errors
    /// The filter is invalid, or another logger is already installed.
    pub fn install(&self, otel: &Otel) -> Result<(), String> {
        self.subscriber(otel)?.try_init().map_err(|error| error.to_string())
    }

    fn subscriber(&self, otel: &Otel) -> Result<impl Subscriber + Send + Sync + 'static, String> {
        let filter = parse_filter(&self.filter)?;
        // A filter without a level hint would enable everything, including each of the many spans of the HTTP
        // library.
        let no_spans = filter_fn(|metadata| metadata.target() != trace::SPANS).with_max_level_hint(LevelFilter::TRACE);
        let written = lines::layer().with_writer(std::io::stderr);
        let written = if self.json {
            let written = written.json().flatten_event(true).with_current_span(false).with_span_list(false);
            written.map_event_format(|inner| Traced { inner, json: true }).boxed()
        } else {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            written.with_ansi(ansi).map_event_format(|inner| Traced { inner, json: false }).boxed()
        };
        let spans = otel.tracer().map(|tracer| {
            trace::switch_on();
            tracing_opentelemetry::layer()
                .with_tracer(tracer)
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false)
                .with_target(false)
                .with_level(false)
        });
        // Without an export, no spans are needed, so their callsites are disabled permanently. A missing layer
        // without a filter would enable everything.
        let on = spans.is_some();
        let (most, wanted) = if on { (LevelFilter::INFO, trace::SPANS) } else { (LevelFilter::OFF, "") };
        let spans = spans.with_filter(filter_fn(move |metadata| metadata.target() == wanted).with_max_level_hint(most));
        Ok(registry().with(written.with_filter(filter.and(no_spans))).with(spans))
    }
}

// === impl Traced ===

impl<S, N, F> FormatEvent<S, N> for Traced<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some((trace, span)) = trace::current() else { return self.inner.format_event(context, writer, event) };
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        match line.strip_suffix('}').filter(|_| self.json) {
            Some(open) => writeln!(writer, "{open},\"trace_id\":\"{trace}\",\"span_id\":\"{span}\"}}"),
            None => writeln!(writer, "{line} trace_id={trace} span_id={span}"),
        }
    }
}

fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    // A plain word that is not a level would be parsed as a target, and everything else would not be logged.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let wrong = text
        .split(',')
        .map(str::trim)
        .find(|part| !part.contains(['=', '[']) && !levels.contains(&part.to_lowercase().as_str()));
    if let Some(wrong) = wrong {
        return Err(format!("{wrong:?} is no level: want off, error, warn, info, debug, trace or target=level"));
    }
    let is_off = text.split(',').any(|part| part.trim().eq_ignore_ascii_case("off"));
    // A directive of the text for the same target replaces ours.
    let directives = if is_off { text.to_owned() } else { format!("{QUIET},{text}") };
    // The text may be the annotation of a pod. The automaton of a short expression can take all memory.
    let builder = EnvFilter::builder().with_regex(false);
    builder.parse(directives).map_err(|error| format!("{text:?} is no log filter: {error}"))
}

#[cfg(test)]
mod tests {
    use tracing::callsite::{Callsite, Identifier};
    use tracing::field::FieldSet;
    use tracing::metadata::Kind;
    use tracing::{Level, Metadata};

    use super::super::otel::OtelConfig;
    use super::*;

    struct Site;

    static SITE: Site = Site;
    static HTTP_LIBRARY: Metadata<'static> = metadata("h2::proto", Level::TRACE);
    static DEPENDENCY: Metadata<'static> = metadata("kube", Level::DEBUG);
    static EXPORTED: Metadata<'static> = metadata(trace::SPANS, Level::INFO);
    static LINE: Metadata<'static> = metadata("informerd::cache", Level::INFO);
    static BROKEN_CLIENT: Metadata<'static> = metadata("rustls::check", Level::WARN);

    impl Callsite for Site {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            &LINE
        }
    }

    const fn metadata(target: &'static str, level: Level) -> Metadata<'static> {
        let fields = FieldSet::new(&[], Identifier(&SITE));
        Metadata::new("site", target, level, None, None, None, fields, Kind::SPAN)
    }

    /// Unused callsites must cost nothing. A disabled callsite is evaluated once per process. An undecided one is
    /// evaluated each time, and the HTTP library passes some of them for every frame.
    #[test]
    fn unwanted_callsites_are_switched_off_for_good() {
        let log = LogConfig { filter: "info".into(), json: false };
        let subscriber = log.subscriber(&Otel::start(&OtelConfig::default()).unwrap()).unwrap();
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
        for unwanted in [&HTTP_LIBRARY, &DEPENDENCY, &EXPORTED] {
            assert!(subscriber.register_callsite(unwanted).is_never(), "{unwanted:?}");
        }
        assert!(!subscriber.register_callsite(&LINE).is_never());
    }

    #[test]
    fn whoever_connects_cannot_fill_the_log() {
        for (filter, written) in [
            ("info", false),
            ("debug", false),
            ("rustls=info,info", true),
            ("info,rustls=debug", true),
            ("info,rustls::check=warn", true),
            ("off", false),
            ("off,rustls=warn", true),
        ] {
            let log = LogConfig { filter: filter.into(), json: false };
            let subscriber = log.subscriber(&Otel::start(&OtelConfig::default()).unwrap()).unwrap();
            assert_eq!(!subscriber.register_callsite(&BROKEN_CLIENT).is_never(), written, "{filter}");
        }
    }

    #[test]
    fn filters() {
        for text in ["info", "WARN", "off", "info,informerd::cache=debug", "informerd[watch]=trace,error"] {
            assert_eq!(LogConfig::check_filter(text), Ok(()), "{text}");
        }
        for text in ["", "loud", "info,informerd", "informerd=loud"] {
            assert!(LogConfig::check_filter(text).is_err(), "{text}");
        }
        assert_eq!(LogConfig::check_filter("info,[{a=(}]=debug"), Ok(()), "a value is no regular expression");
    }
}
