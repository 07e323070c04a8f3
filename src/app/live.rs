//! What `informerd demo` shows: where it listens, what to try, and one line of life.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Counters of the running daemon, read once a second. The totals never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub objects: u64,
    /// Open watches against the apiserver.
    pub upstream_watches: u64,
    /// Open connections of clients.
    pub clients: u64,
    /// Open watches of clients.
    pub watches: u64,
    /// Events received from the apiserver since the start.
    pub events_total: u64,
    /// Reads answered from a cache since the start, each of which the apiserver did not have to answer.
    pub served_total: u64,
    /// Lists and watches of our own against the apiserver since the start.
    pub upstream_total: u64,
}

/// Whatever can be sampled.
pub trait Live {
    fn sample(&self) -> Sample;
}

/// What the first lines of the demo name.
#[derive(Clone, Debug)]
pub struct Banner<'a> {
    /// `http://127.0.0.1:8001`
    pub url: &'a str,
    pub admin: SocketAddr,
    pub kubeconfig: &'a Path,
    pub nodes: u32,
    pub pods: u32,
    pub namespaces: u32,
    /// Changes a second.
    pub churn: u32,
}

/// How often the line is written where it cannot be rewritten in place.
const EVERY_IN_A_FILE: Duration = Duration::from_secs(10);
const EVERY_ON_A_TERMINAL: Duration = Duration::from_secs(1);

// === impl Sample ===

impl Sample {
    /// Reads the apiserver was spared.
    fn saved(&self) -> u64 {
        self.served_total.saturating_sub(self.upstream_total)
    }

    /// One line for a terminal of 80 columns: objects cached, requests saved; the rate is that since the earlier sample.
    pub fn line(&self, earlier: &Self, elapsed: Duration) -> String {
        let events = self.events_total.saturating_sub(earlier.events_total);
        // Rounded to whole events a second.
        let rate = u128::from(events) * 1000 / elapsed.as_millis().max(1);
        format!(
            "{} cached, {}, {}, {}, {rate} events/s, {} saved",
            grouped(self.objects),
            counted(self.upstream_watches, "upstream watch", "es"),
            counted(self.clients, "client", "s"),
            counted(self.watches, "watch", "es"),
            grouped(self.saved()),
        )
    }
}

fn counted(number: u64, what: &str, plural: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { plural })
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

// === impl Banner ===

impl Banner<'_> {
    pub fn render(&self) -> String {
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

/// Writes the line again and again. Never returns unless writing fails, so it stands beside the signals in a select;
/// [`finish`] then ends the line.
///
/// # Errors
/// The output is gone.
pub async fn show(live: &(dyn Live + Sync), out: &mut (dyn Write + Send), terminal: bool) -> io::Result<()> {
    let every = if terminal { EVERY_ON_A_TERMINAL } else { EVERY_IN_A_FILE };
    let mut ticks = interval_at(Instant::now() + EVERY_ON_A_TERMINAL, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut earlier, mut at) = (live.sample(), Instant::now());
    loop {
        let now = ticks.tick().await;
        let sample = live.sample();
        let line = sample.line(&earlier, now.saturating_duration_since(at));
        if terminal {
            // Back to the first column, and whatever stood there is erased.
            write!(out, "\r\x1b[2K{line}")?;
        } else {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        (earlier, at) = (sample, now);
    }
}

/// Leaves the live line and says what it all came to.
///
/// # Errors
/// The output is gone.
pub fn finish(live: &dyn Live, out: &mut dyn Write, terminal: bool) -> io::Result<()> {
    let sample = live.sample();
    if terminal {
        writeln!(out)?;
    }
    writeln!(
        out,
        "\nserved {} reads from the caches with {} lists and watches upstream; bye",
        grouped(sample.served_total),
        grouped(sample.upstream_total)
    )?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// 50 events more each time it is asked.
    #[derive(Default)]
    struct Counting(AtomicU64);

    impl Live for Counting {
        fn sample(&self) -> Sample {
            let events_total = self.0.fetch_add(50, Ordering::Relaxed);
            Sample {
                objects: 12_345,
                clients: 1,
                events_total,
                served_total: 1_000,
                upstream_total: 10,
                ..Sample::default()
            }
        }
    }

    async fn shown(terminal: bool, length: Duration) -> String {
        let mut out = Vec::new();
        let live = Counting::default();
        let _ = tokio::time::timeout(length, show(&live, &mut out, terminal)).await;
        String::from_utf8(out).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn rewrites_its_line_on_a_terminal() {
        let text = shown(true, Duration::from_millis(3_500)).await;
        let line = "12,345 cached, 0 upstream watches, 1 client, 0 watches, 50 events/s, 990 saved";
        assert_eq!(text, format!("\r\x1b[2K{line}").repeat(3));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_few_lines_into_a_file() {
        let text = shown(false, Duration::from_secs(22)).await;
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().last().unwrap().contains(" 5 events/s,"), "50 in ten seconds: {text}");
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
        let ended = show(&Counting::default(), &mut Gone, true).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn numbers_and_banner() {
        assert_eq!([grouped(0), grouped(999), grouped(1_000), grouped(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
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
        finish(&Counting::default(), &mut out, true).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("served 1,000 reads"));
    }
}
