//! The output of `informerd demo`: the addresses, commands to try, and a live status line.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::admin::{Grouped, InUnits, Spared};

/// A sample of the running daemon, taken once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub objects: u64,
    /// Open watches of clients.
    pub watches: u64,
    pub spared: Spared,
}

/// A source of samples.
pub(super) trait Live {
    fn sample(&self) -> Sample;
}

/// The values in the first lines of the demo.
#[derive(Clone, Debug)]
pub(super) struct Banner<'a> {
    /// `http://127.0.0.1:8001`
    pub url: &'a str,
    pub admin: SocketAddr,
    pub kubeconfig: &'a Path,
    pub nodes: u32,
    pub pods: u32,
    pub namespaces: u32,
    /// Changes per second.
    pub churn: u32,
}

/// Formats a number of up to 99,999 million with at most six characters and a sign.
struct Short(i64);

/// How often the line is written if it cannot be rewritten in place.
const EVERY_IN_A_FILE: Duration = Duration::from_secs(10);
const EVERY_ON_A_TERMINAL: Duration = Duration::from_secs(1);

// === impl Sample ===

impl fmt::Display for Sample {
    /// One line for a terminal of 80 columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spared { requests, bytes, events, deliveries_per_event } = self.spared;
        write!(
            f,
            "{} cached, {} watches; spared {} requests, {}, {} events (x{deliveries_per_event:.1})",
            Short(i64::try_from(self.objects).unwrap_or(i64::MAX)),
            Short(i64::try_from(self.watches).unwrap_or(i64::MAX)),
            Short(requests),
            InUnits(bytes),
            Short(events),
        )
    }
}

// === impl Short ===

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.unsigned_abs() {
            0..10_000 => write!(f, "{}", Grouped(self.0)),
            10_000..10_000_000 => write!(f, "{}k", Grouped(self.0 / 1_000)),
            _ => write!(f, "{}M", Grouped(self.0 / 1_000_000)),
        }
    }
}

// === impl Banner ===

impl Banner<'_> {
    pub(super) fn render(&self) -> String {
        let Self { url, admin, nodes, pods, namespaces, churn, .. } = self;
        let kubeconfig = self.kubeconfig.display();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "informerd demo: {nodes} nodes, {pods} pods, {namespaces} namespaces, {churn} changes a second\n\n  \
             serving   {url}\n  \
             admin     http://{admin}/status\n  \
             try       kubectl --kubeconfig {kubeconfig} get pods -A\n            \
             kubectl --kubeconfig {kubeconfig} get pods -A --watch\n            \
             curl '{url}/api/v1/nodes?limit=2'\n            \
             curl -N '{url}/api/v1/pods?watch=1'\n            \
             for i in $(seq 50); do curl -sNo /dev/null '{url}/api/v1/pods?watch=1' & done\n            \
             curl http://{admin}/debug/caches\n\n  \
             Ctrl-C ends it.\n\n"
        );
        text
    }
}

/// Writes the line periodically. It returns only if writing fails, so use it in a select together with the signals.
/// [`finish`] then ends the line.
///
/// # Errors
/// The output is closed.
pub(super) async fn show(live: &(dyn Live + Sync), out: &mut (dyn Write + Send), terminal: bool) -> io::Result<()> {
    let every = if terminal { EVERY_ON_A_TERMINAL } else { EVERY_IN_A_FILE };
    let mut ticks = interval_at(Instant::now() + EVERY_ON_A_TERMINAL, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let line = live.sample();
        if terminal {
            // Return to the first column and erase the line.
            write!(out, "\r\x1b[2K{line}")?;
        } else {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}

/// Ends the live line and prints a summary.
///
/// # Errors
/// The output is closed.
pub(super) fn finish(live: &dyn Live, out: &mut dyn Write, terminal: bool) -> io::Result<()> {
    let sample = live.sample();
    if terminal {
        writeln!(out)?;
    }
    writeln!(out, "\nspared the apiserver {}; bye", sample.spared)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Still;

    impl Live for Still {
        fn sample(&self) -> Sample {
            let spared = Spared { requests: 123_456, bytes: 99 << 20, events: -98_765, deliveries_per_event: 4_321.0 };
            Sample { objects: 98_765, watches: 1_000, spared }
        }
    }

    async fn shown(terminal: bool, length: Duration) -> String {
        let mut out = Vec::new();
        let _ = tokio::time::timeout(length, show(&Still, &mut out, terminal)).await;
        String::from_utf8(out).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn rewrites_its_line_on_a_terminal() {
        let text = shown(true, Duration::from_millis(3_500)).await;
        let line = "98k cached, 1,000 watches; spared 123k requests, 99.0 MiB, -98k events (x4321.0)";
        assert!(line.len() <= 80);
        assert_eq!(text, format!("\r\x1b[2K{line}").repeat(3));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_few_lines_into_a_file() {
        let text = shown(false, Duration::from_secs(22)).await;
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_the_output_is_gone() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let ended = show(&Still, &mut Gone, true).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn numbers_and_banner() {
        let short = [0, 9_999, -10_000, 9_999_999, 1_234_567_890].map(|number| Short(number).to_string());
        assert_eq!(short, ["0", "9,999", "-10k", "9,999k", "1,234M"]);
        let banner = Banner {
            url: "http://127.0.0.1:8001",
            admin: "127.0.0.1:8002".parse().unwrap(),
            kubeconfig: Path::new("/tmp/k"),
            nodes: 20,
            pods: 500,
            namespaces: 10,
            churn: 20,
        };
        let text = banner.render();
        for part in
            ["http://127.0.0.1:8001", "--kubeconfig /tmp/k get pods", "http://127.0.0.1:8002/status", "500 pods"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let mut out = Vec::new();
        finish(&Still, &mut out, true).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("spared the apiserver 123,456 requests, 99.0 MiB, -98,765 events (4321.0 deliver"),
            "{text}"
        );
    }
}
