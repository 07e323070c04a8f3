//! `informerd status --watch`: the status, every second, until it is interrupted.

use std::io::{self, Write};
use std::time::Duration;

use super::terminal;
use super::{Admin, Style, ask, ask_again};

const EVERY: Duration = Duration::from_secs(1);

/// Repaints the terminal. Elsewhere the statuses follow each other, with an empty line between them.
///
/// # Errors
/// The daemon does not answer at first, or the output is closed. Later it may be away for any time.
pub async fn watch(admin: &impl Admin, colors: bool, out: &mut (dyn Write + Send)) -> Result<(), String> {
    let mut status = ask(admin).await?;
    let painted = terminal::is_painted();
    if painted {
        write!(out, "\x1b[2J").map_err(|error| error.to_string())?;
    }
    loop {
        let size = terminal::size().filter(|_| painted);
        let style = Style { colors, width: size.map_or(usize::MAX, |(columns, _)| columns.into()) };
        let text = status.render(style);
        match paint(out, &text, size.map(|(_, rows)| rows.into())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            painted => painted.map_err(|error| error.to_string())?,
        }
        status = loop {
            tokio::time::sleep(EVERY).await;
            match ask_again(admin, &status).await {
                Ok(status) => break status,
                Err(error) => write!(out, "{}", style.red(&error, 0)).map_err(|error| error.to_string())?,
            }
            out.flush().map_err(|error| error.to_string())?;
        };
    }
}

/// `rows`: those of the terminal. What has no room is counted.
fn paint(out: &mut dyn Write, text: &str, rows: Option<usize>) -> io::Result<()> {
    let Some(rows) = rows else {
        writeln!(out, "{text}")?;
        return out.flush();
    };
    let lines: Vec<_> = text.lines().collect();
    // The last row is left for the cursor.
    let room = rows.saturating_sub(1).max(1);
    let shown = if lines.len() <= room { lines.len() } else { room - 1 };
    write!(out, "\x1b[H")?;
    for line in &lines[..shown] {
        writeln!(out, "{line}\x1b[K")?;
    }
    if shown < lines.len() {
        writeln!(out, "… {} more lines\x1b[K", lines.len() - shown)?;
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(text: &str, rows: Option<usize>) -> String {
        let mut out = Vec::new();
        paint(&mut out, text, rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn paints_as_many_lines_as_there_are_rows() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(painted(text, Some(4)), "\x1b[Hone\x1b[K\ntwo\x1b[K\nthree\x1b[K\n\x1b[J");
        assert_eq!(painted(text, Some(3)), "\x1b[Hone\x1b[K\n… 2 more lines\x1b[K\n\x1b[J");
        assert_eq!(painted(text, None), "one\ntwo\nthree\n\n");
    }
}
