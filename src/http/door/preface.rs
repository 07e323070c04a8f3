//! The first bytes of a connection, which tell its protocol.

/// The bytes that start every HTTP/2 connection with prior knowledge. They identify the protocol, so the wait for the
/// first bytes ends with the first byte that differs, or with the last of these.
pub(in crate::http) const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}
