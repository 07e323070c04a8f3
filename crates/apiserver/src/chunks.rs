//! The body of an answer: read in chunks, decompressed, with a limit on silence.

use std::io::Write as _;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::client::UpstreamBody;
use super::error::{Cause, UpstreamError};

/// Maximum time between two chunks of a body that is complete on the server's side.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A body, read in chunks and decompressed.
pub struct Chunks {
    body: UpstreamBody,
    gzip: Option<Box<Gunzip>>,
    wire: u64,
    plain: u64,
}

/// Decompresses in steps: a few kilobytes may expand to megabytes.
struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Input that is not decompressed yet.
    input: Bytes,
}

/// One step decompresses not much more than this number of bytes.
pub(crate) const STEP: usize = 64 << 10;

// === impl Chunks ===

impl Chunks {
    pub(crate) fn new(headers: &HeaderMap, body: UpstreamBody) -> Self {
        let gzip = headers.get(CONTENT_ENCODING).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"gzip"));
        let gunzip = || Box::new(Gunzip { decoder: MultiGzDecoder::new(Vec::new()), input: Bytes::new() });
        Self { body, gzip: gzip.then(gunzip), wire: 0, plain: 0 }
    }

    /// The whole body.
    ///
    /// # Errors
    /// As for [`Self::next`], or it has more than `limit` bytes.
    pub(crate) async fn whole(mut self, limit: usize) -> Result<Vec<u8>, UpstreamError> {
        let mut text = Vec::new();
        while let Some(chunk) = self.next(IDLE_TIMEOUT).await? {
            if text.len() + chunk.len() > limit {
                return Err(UpstreamError::Decode(Cause::new(format!("an answer larger than {limit} bytes"))));
            }
            text.extend_from_slice(&chunk);
        }
        Ok(text)
    }

    /// Returns the next chunk, `None` at the end. This is cancel safe.
    ///
    /// # Errors
    /// The body breaks off, is not valid gzip, or nothing arrives for `idle`.
    pub async fn next(&mut self, idle: Duration) -> Result<Option<Bytes>, UpstreamError> {
        let next = timeout(idle, self.read()).await;
        next.unwrap_or(Err(UpstreamError::Timeout { what: "the next piece of the answer", after: idle }))
    }

    /// The bytes of the body so far, as they were sent and unpacked.
    pub fn sizes(&self) -> (u64, u64) {
        (self.wire, self.plain)
    }

    /// [`Chunks::next`] without a timeout.
    pub async fn read(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let chunk = self.unpack().await?;
        self.plain += chunk.as_ref().map_or(0, Bytes::len) as u64;
        Ok(chunk)
    }

    async fn unpack(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            if let Some(plain) = self.gzip.as_mut().map(|gzip| gzip.step()).transpose()?.flatten() {
                return Ok(Some(plain));
            }
            let Some(frame) = self.body.frame().await else {
                return self.gzip.as_mut().map_or(Ok(None), |gzip| gzip.finish());
            };
            let Ok(data) = frame?.into_data() else { continue };
            self.wire += data.len() as u64;
            match &mut self.gzip {
                Some(gzip) => gzip.input = data,
                None if data.is_empty() => {}
                None => return Ok(Some(data)),
            }
        }
    }
}

// === impl Gunzip ===

impl Gunzip {
    /// Returns a part of the decompressed input; `None` when the input is used up.
    fn step(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        while !self.input.is_empty() && self.decoder.get_ref().len() < STEP {
            let taken = self.decoder.write(&self.input).map_err(|error| UpstreamError::Body(Cause::new(error)))?;
            if taken == 0 {
                return Err(UpstreamError::Body(Cause::new("bytes after the end of a compressed answer")));
            }
            self.input.advance(taken);
        }
        Ok(self.plain())
    }

    fn finish(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        self.decoder.try_finish().map_err(|error| UpstreamError::Body(Cause::new(error)))?;
        Ok(self.plain())
    }

    fn plain(&mut self) -> Option<Bytes> {
        let plain = std::mem::take(self.decoder.get_mut());
        (!plain.is_empty()).then(|| plain.into())
    }
}
