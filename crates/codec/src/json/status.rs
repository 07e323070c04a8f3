//! Writes errors, as a body and as the last frame of a watch.

use bytes::Bytes;

use informerd_meta::Status;

/// Writes a Status as Go's encoder does, including the final newline.
pub fn status_body(status: &Status) -> Bytes {
    format!("{}\n", status.to_json()).into()
}

/// Writes the ERROR frame of a watch. No frame may follow it.
pub fn error_frame(status: &Status) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.to_json()).into()
}
