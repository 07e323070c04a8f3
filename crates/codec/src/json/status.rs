//! Writes errors, as a body and as the last frame of a watch.

use bytes::Bytes;

use informerd_meta::Status;

/// Writes a Status as Go's encoder does, including the final newline.
pub fn status_body(status: &Status) -> Bytes {
    let mut body = go_escapes(&status.to_json());
    body.push('\n');
    body.into()
}

/// Writes the ERROR frame of a watch. No frame may follow it.
pub fn error_frame(status: &Status) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", go_escapes(&status.to_json())).into()
}

/// Go escapes a few more characters than serde. In compact JSON they can occur only inside strings.
fn go_escapes(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            _ => out.push(c),
        }
    }
    out
}
