//! Leaves out of an answer what tells how far the server's cache has come, for worlds that do not stand still.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const VERSION: &str = r#""resourceVersion":""#;
const TOKEN: &str = r#""continue":""#;
const CURRENT: &str = ", current: ";

/// The body with those revisions as `N`: the list's own, that of its token, of bookmarks, and "current" in a refusal.
pub(crate) fn mask(body: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(body) else { return body.to_vec() };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line = if line.starts_with(r#"{"type":"BOOKMARK""#) {
            number(line, VERSION, First)
        } else if line.starts_with(r#"{"kind":""#) && line.contains(r#"List","apiVersion":"#)
            || line.contains(r#""kind":"Table""#)
        {
            token(&number(line, VERSION, First), First)
        } else if line.starts_with(r#"{"apiVersion":""#) && line.contains(r#""items":["#) {
            token(&number(line, VERSION, Last), Last)
        } else {
            line.to_owned()
        };
        out.push_str(&number(&line, CURRENT, First));
    }
    out.into_bytes()
}

#[derive(Clone, Copy)]
enum Which {
    First,
    Last,
}

use Which::{First, Last};

fn find(text: &str, what: &str, which: Which) -> Option<usize> {
    let at = match which {
        First => text.find(what),
        Last => text.rfind(what),
    };
    at.map(|at| at + what.len())
}

fn number(text: &str, after: &str, which: Which) -> String {
    let Some(at) = find(text, after, which) else { return text.to_owned() };
    let rest = text[at..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}N{rest}", &text[..at])
}

/// What the token says but its revision.
fn token(text: &str, which: Which) -> String {
    let Some(at) = find(text, TOKEN, which) else { return text.to_owned() };
    let Some(end) = text[at..].find('"') else { return text.to_owned() };
    let Ok(said) = URL_SAFE_NO_PAD.decode(&text[at..at + end]) else { return text.to_owned() };
    let said = number(&String::from_utf8_lossy(&said), r#""rv":"#, First);
    format!("{}{said}{}", &text[..at], &text[at + end..])
}
