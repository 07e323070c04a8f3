//! The response format that a client requests.

use informerd_meta::Encoding;

use super::Shape;

/// An encoding and a shape for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    pub encoding: Encoding,
    pub shape: Shape,
    /// The shape in which the client accepts JSON if the encoding is not available. Protobuf, for example, is not
    /// available for full custom resources. `None` if the client does not accept JSON, or if the encoding already is
    /// JSON.
    pub json_fallback: Option<Shape>,
}

// === impl Format ===

impl Format {
    pub const fn json(shape: Shape) -> Self {
        Self { encoding: Encoding::Json, shape, json_fallback: None }
    }

    /// The `Content-Type` of response bodies, or of a watch stream, in this encoding.
    pub const fn media_type(encoding: Encoding, stream: bool) -> &'static str {
        match (encoding, stream) {
            (Encoding::Json | Encoding::Table, _) => "application/json",
            (Encoding::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Encoding::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}
