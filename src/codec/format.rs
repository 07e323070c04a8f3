//! What a client wants to be answered with.

use crate::meta::Encoding;

use super::Shape;

/// An encoding and a shape to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    pub encoding: Encoding,
    pub shape: Shape,
    /// The shape in which the client accepts JSON where the encoding is not available, such as protobuf of full custom
    /// resources; `None` if it does not, and for JSON itself.
    pub json_fallback: Option<Shape>,
}

// === impl Format ===

impl Format {
    pub const fn json(shape: Shape) -> Self {
        Self { encoding: Encoding::Json, shape, json_fallback: None }
    }

    /// The `Content-Type` of bodies, or of a watch's stream, in this encoding.
    pub const fn media_type(encoding: Encoding, stream: bool) -> &'static str {
        match (encoding, stream) {
            (Encoding::Json | Encoding::Table, _) => "application/json",
            (Encoding::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Encoding::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}
