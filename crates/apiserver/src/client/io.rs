//! Streams of bytes, whatever they go through: TCP, TLS, or a proxy.

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to the apiserver.
pub(super) type Io = TokioIo<Box<dyn Stream>>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
