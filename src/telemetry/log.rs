//! Log lines on standard error, filtered by level and target.

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry, reload};

/// Which lines are written, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives per target: `info,informerd::cache=debug`.
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    /// One JSON object a line.
    Json,
}

/// Changes the filter of a running process. Cloning shares it.
#[derive(Clone)]
pub struct LogHandle {
    reload: reload::Handle<EnvFilter, registry::Registry>,
}

// === impl LogConfig ===

impl LogConfig {
    /// Whether a filter can be understood.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_filter(text: &str) -> Result<(), String> {
        parse_filter(text).map(|_| ())
    }

    /// Starts writing log lines. To be called once, before anything logs.
    ///
    /// # Errors
    /// The filter cannot be understood, or somebody else writes log lines already.
    pub fn install(&self) -> Result<LogHandle, String> {
        let (filter, reload) = reload::Layer::new(parse_filter(&self.filter)?);
        let lines = fmt::layer().with_writer(std::io::stderr);
        let lines = match self.format {
            LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).boxed(),
        };
        registry().with(filter).with(lines).try_init().map_err(|error| error.to_string())?;
        Ok(LogHandle { reload })
    }
}

// === impl LogHandle ===

impl LogHandle {
    /// # Errors
    /// The filter cannot be understood; the one in force stays.
    pub fn set_filter(&self, text: &str) -> Result<(), String> {
        let filter = parse_filter(text)?;
        self.reload.reload(filter).map_err(|error| error.to_string())
    }
}

fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    // A bare word that is no level would be taken for a target, and would silence everything else.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let wrong = text
        .split(',')
        .map(str::trim)
        .find(|part| !part.contains(['=', '[']) && !levels.contains(&part.to_lowercase().as_str()));
    if let Some(wrong) = wrong {
        return Err(format!("{wrong:?} is no level: want off, error, warn, info, debug, trace or target=level"));
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("{text:?} is no log filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        for text in ["info", "WARN", "off", "info,informerd::cache=debug", "informerd[watch]=trace,error"] {
            assert_eq!(LogConfig::check_filter(text), Ok(()), "{text}");
        }
        for text in ["", "loud", "info,informerd", "informerd=loud"] {
            assert!(LogConfig::check_filter(text).is_err(), "{text}");
        }
    }
}
