//! Encodes and decodes messages with prost, in buffers of exact size. The library's codec keeps 8 KiB for each call,
//! which is most of the memory of an idle watch, and it doubles the buffer while a large message grows. A server may
//! refuse a message before it is decoded.

use std::marker::PhantomData;
use std::sync::Arc;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Called with the bytes of each request before they are decoded. An error ends the call.
pub type Check = Arc<dyn Fn(&[u8]) -> Result<(), Status> + Send + Sync>;

tokio::task_local! {
    /// The check of the call that is being served.
    static CHECK: Check;
}

/// The size in bytes of the read buffer of a call that waits for the client's next message.
const READING: usize = 1 << 10;
/// The initial size in bytes of the write buffer. Each message reserves the space that it needs.
const WRITING: usize = 256;
/// Messages are sent together until they reach this size in bytes.
const TOGETHER: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct ExactCodec<T, U>(PhantomData<(T, U)>);

#[derive(Debug)]
pub(crate) struct ExactEncoder<T>(PhantomData<T>);

pub(crate) struct CheckedDecoder<U> {
    inner: ProstDecoder<U>,
    /// `None` on the client side.
    check: Option<Check>,
}

/// Runs `answer`, which serves a call. Its requests are checked, also those that are read after its end.
pub async fn checked<F: Future>(check: Check, answer: F) -> F::Output {
    CHECK.scope(check, answer).await
}

// === impl ExactCodec ===

impl<T, U> Default for ExactCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for ExactCodec<T, U>
where
    T: Message + 'static,
    U: Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ExactEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> ExactEncoder<T> {
        ExactEncoder(PhantomData)
    }

    fn decoder(&mut self) -> CheckedDecoder<U> {
        let check = CHECK.try_with(Arc::clone).ok();
        CheckedDecoder { inner: ProstDecoder::new(BufferSettings::new(READING, TOGETHER)), check }
    }
}

// === impl ExactEncoder ===

impl<T: Message> Encoder for ExactEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(item.encoded_len());
        item.encode(buf).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(WRITING, TOGETHER)
    }
}

// === impl CheckedDecoder ===

impl<U: Message + Default> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if let Some(check) = &self.check {
            // The library passes the whole message in one piece.
            check(buf.chunk())?;
        }
        self.inner.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.inner.buffer_settings()
    }
}
