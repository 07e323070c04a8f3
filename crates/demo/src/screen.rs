//! The live view: a block that is repainted in place on a terminal, and plain lines elsewhere.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

use super::load::{Loads, UNKNOWN, grouped};
use super::outage::Apiserver;
use super::tally::Reads;

/// The smallest terminal on which the block is painted, in columns and rows. Others get plain lines.
const COLUMNS: u16 = 80;
const ROWS: u16 = 14;
/// Where the view is not repainted, it is written this often.
const EVERY_LINE: Duration = Duration::from_secs(5);
/// The view is repainted this often.
pub(super) const EVERY: Duration = Duration::from_millis(500);

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Since the start.
    pub(super) time: Duration,
    pub(super) loads: Loads,
    pub(super) reads: Reads,
    pub(super) apiserver: Apiserver,
}

/// Writes views and lines.
#[derive(Debug)]
pub(super) struct Screen<W> {
    out: W,
    /// Whether the output is a terminal that understands escape sequences.
    terminal: bool,
    colors: bool,
    /// Lines of the block that is painted now.
    painted: usize,
    /// The time of the view that was written last as a line.
    written: Option<Duration>,
}

// === impl View ===

impl View {
    /// The block for a terminal of 80 columns.
    fn block(&self, colors: bool) -> Vec<String> {
        let paint = |color: &str, text: &str| {
            if colors { format!("{color}{text}{PLAIN}") } else { text.to_owned() }
        };
        let head =
            format!("{:<16}{:>18}{:>18}{:>16}", "AT THE APISERVER", "without informerd", "with informerd", "saved");
        let mut lines = vec![String::new(), paint(BOLD, &head)];
        for row in self.loads.rows() {
            let (without, with) = (format!("{:>18}", row.without), format!("{:>18}", row.with));
            let saved = paint(GREEN, &format!("{:>16}", row.saved));
            lines.push(format!("{:<16}{without}{with}{saved}", row.name));
        }
        let apiserver = match self.apiserver {
            Apiserver::Answers => paint(GREEN, "answers"),
            Apiserver::CutOffUntil(until) => {
                let left = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
                paint(RED, &format!("cut off, back in {left:.0} s"))
            }
        };
        lines.push(String::new());
        lines.push(format!("apiserver       {apiserver}"));
        lines.push(format!("clients         {}", self.clients()));
        lines.push(paint(DIM, &format!("{:<16}{} s; Ctrl-C ends it", "time", self.time.as_secs())));
        lines
    }

    /// One line for a file.
    fn line(&self) -> String {
        let rows = self.loads.rows();
        let pairs: Vec<_> = rows.iter().map(|row| format!("{} {} -> {}", row.name, row.without, row.with)).collect();
        let away = if self.apiserver == Apiserver::Answers { "" } else { "  (apiserver cut off)" };
        format!("{:>4} s  {}{away}", self.time.as_secs(), pairs.join(", "))
    }

    fn clients(&self) -> String {
        let Reads { open, ended, any, newest } = self.reads;
        let refused = any.refused + newest.refused;
        let mut text = format!(
            "{} watches open, {} ended; {} lists",
            grouped(open),
            grouped(ended),
            grouped(any.answered + newest.answered)
        );
        if refused > 0 {
            text.push_str(&format!(", {} refused", grouped(refused)));
        }
        text
    }

    /// What was saved, at the end.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("In {} s, the apiserver was spared", self.time.as_secs());
        let rows = self.loads.rows();
        let known = rows.iter().filter(|row| row.saved != UNKNOWN);
        let (named, rest): (Vec<_>, Vec<_>) = known.partition(|row| row.saved.ends_with('%'));
        let parts: Vec<_> = named
            .iter()
            .map(|row| format!("\n  {} of the {} ({} instead of {})", row.saved, row.name, row.with, row.without))
            .collect();
        if parts.is_empty() {
            text.push_str(" nothing yet: its caches had to be filled first");
        } else {
            text.push(':');
        }
        text.push_str(&parts.concat());
        if !named.is_empty() && !rest.is_empty() {
            let names: Vec<_> = rest.iter().map(|row| row.name).collect();
            text.push_str(&format!("\n  nothing yet of the {}", names.join(" and ")));
        }
        text.push('\n');
        text
    }
}

// === impl Screen ===

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, terminal: bool, colors: bool) -> Self {
        Self { out, terminal, colors, painted: 0, written: None }
    }

    /// Shows the current view. Lines are written only every few seconds.
    ///
    /// # Errors
    /// The output is closed.
    pub(super) fn show(&mut self, view: &View, size: Option<(u16, u16)>) -> io::Result<()> {
        self.erase()?;
        if self.terminal && size.is_some_and(|(columns, rows)| columns >= COLUMNS && rows >= ROWS) {
            let block = view.block(self.colors);
            for line in &block {
                writeln!(self.out, "{line}")?;
            }
            self.painted = block.len();
        } else if self.written.is_none_or(|written| view.time >= written + EVERY_LINE) {
            // The block begins with an empty line, too.
            let before = if self.written.is_none() { "\n" } else { "" };
            writeln!(self.out, "{before}{}", view.line())?;
            self.written = Some(view.time);
        }
        self.out.flush()
    }

    /// Writes text as it is, in place of the view.
    ///
    /// # Errors
    /// The output is closed.
    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        self.erase()?;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes lines that stay, above the next view.
    ///
    /// # Errors
    /// The output is closed.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        let (on, off) = if self.colors { (BOLD, PLAIN) } else { ("", "") };
        self.write(&format!("{on}{text}{off}\n"))
    }

    /// Removes the painted block.
    fn erase(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.painted) {
            0 => Ok(()),
            lines => write!(self.out, "\x1b[{lines}A\r\x1b[J"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Load;
    use super::super::tally::Lists;
    use super::*;

    const HUGE: Load = Load {
        requests: 9_999_999_999,
        watches: 12_345,
        events: 9_999_999_999,
        bytes: 999 << 40,
        cpu: Some(Duration::from_secs(9_999_999)),
    };

    fn view(without: Load, with: Load, apiserver: Apiserver) -> View {
        let lists = Lists { answered: 123_456, refused: 1_234 };
        let reads = Reads { open: 12_345, ended: 1_234, any: lists, newest: lists };
        View { time: Duration::from_secs(100_000), loads: Loads { without, with }, reads, apiserver }
    }

    /// A view, a line that stays, the same view, and one that is 5 s later.
    fn shown(mut view: View, terminal: bool, colors: bool, size: Option<(u16, u16)>) -> String {
        let mut screen = Screen::new(Vec::new(), terminal, colors);
        screen.show(&view, size).unwrap();
        screen.say("told").unwrap();
        screen.show(&view, size).unwrap();
        view.time += EVERY_LINE;
        screen.show(&view, size).unwrap();
        String::from_utf8(screen.out).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_block_fits_80_columns() {
        let cut = Apiserver::CutOffUntil(Instant::now() + Duration::from_secs(7));
        for view in [view(HUGE, Load::default(), cut), view(Load::default(), HUGE, Apiserver::Answers)] {
            let block = view.block(false);
            for line in &block {
                assert!(line.chars().count() <= 80, "{line}");
                assert!(!line.contains(" -") && !line.contains('\x1b'), "no negative number and no color: {line}");
            }
            assert!(block.len() < usize::from(ROWS));
        }
        let block = view(HUGE, Load::default(), cut).block(true);
        assert!(block.iter().any(|line| line.contains("\x1b[31mcut off, back in 7 s\x1b[0m")), "{block:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn repaints_in_place_on_a_terminal_that_is_large_enough() {
        let view = view(HUGE, Load::default(), Apiserver::Answers);
        let block = view.block(false).join("\n");
        let erase = format!("\x1b[{}A\r\x1b[J", view.block(false).len());
        let text = shown(view, true, false, Some((80, 24)));
        let later = block.replace("100000 s", "100005 s");
        assert_eq!(text, format!("{block}\n{erase}told\n{block}\n{erase}{later}\n"));
        let line = view.line();
        let later = line.replace("100000 s", "100005 s");
        for (terminal, size) in [(true, Some((79, 24))), (true, Some((80, 5))), (true, None), (false, Some((80, 24)))] {
            assert_eq!(shown(view, terminal, false, size), format!("\n{line}\ntold\n{later}\n"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_and_summaries_have_no_negative_numbers() {
        let fresh = view(Load::default(), HUGE, Apiserver::Answers);
        assert_eq!(
            fresh.summary(),
            "In 100000 s, the apiserver was spared nothing yet: its caches had to be filled first\n"
        );
        assert!(fresh.line().contains("requests 0 -> 9,999,999,999, "), "{}", fresh.line());
        let without = Load { requests: 400, watches: 51, events: 1_000, bytes: 1 << 30, cpu: None };
        let with = Load { requests: 500, watches: 8, events: 100, bytes: 1 << 20, cpu: None };
        let summary = view(without, with, Apiserver::Answers).summary();
        assert_eq!(
            summary,
            "In 100000 s, the apiserver was spared:\n  84 % of the open watches (8 instead of 51)\n  90 % of the events \
             (100 instead of 1,000)\n  99 % of the bytes (1.0 MiB instead of 1.0 GiB)\n  nothing yet of the requests\n"
        );
        let cut = view(without, with, Apiserver::CutOffUntil(Instant::now()));
        assert!(cut.line().ends_with("bytes 1.0 GiB -> 1.0 MiB  (apiserver cut off)"), "{}", cut.line());
    }

    #[test]
    fn a_closed_output_is_an_error() {
        let mut screen = Screen::new(&mut [][..], false, false);
        assert_eq!(screen.say("x").unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
