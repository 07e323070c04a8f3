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
