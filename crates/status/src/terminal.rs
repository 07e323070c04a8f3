//! The terminal that the output goes to.

use std::io::{self, IsTerminal as _};

/// Colors are for people. `NO_COLOR` turns them off.
pub fn is_colored() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the output is a terminal that can be repainted.
pub fn is_painted() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Columns and rows of the terminal; `None` if the output is none, or does not know them.
pub fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some((size.ws_col, size.ws_row)).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

/// The text, with the numbers of its control characters in their place: a terminal obeys these, and anybody may have chosen a
/// name.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_of_a_text() {
        let text = "a\u{1b}]0;x\u{7}\r\n\u{7f}\u{9b}2J é…";
        assert_eq!(escaped(text), r"a\u{1b}]0;x\u{7}\u{d}\u{a}\u{7f}\u{9b}2J é…");
    }
}
