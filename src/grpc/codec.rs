//! Encodes and decodes messages with prost, in buffers of exact size. The library's codec keeps 8 KiB for each call,
//! which is most of the memory of an idle watch, and it doubles the buffer while a large message grows. Before a
//! message is decoded, the memory that it will need is accounted for.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use super::call::Intake;

/// The size in bytes of the read buffer of a call that waits for the client's next message.
const READING: usize = 1 << 10;
/// The initial size in bytes of the write buffer. Each message reserves the space that it needs.
const WRITING: usize = 256;
/// Messages are sent together until they reach this size in bytes.
const TOGETHER: usize = 32 << 10;

#[derive(Debug)]
pub(super) struct ExactCodec<T, U>(PhantomData<(T, U)>);

#[derive(Debug)]
pub(super) struct ExactEncoder<T>(PhantomData<T>);

#[derive(Debug)]
pub(super) struct CountedDecoder<U> {
    inner: ProstDecoder<U>,
    /// Accounts for the requests of this call. `None` on the client side.
    intake: Option<Intake>,
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
    type Decoder = CountedDecoder<U>;

    fn encoder(&mut self) -> ExactEncoder<T> {
        ExactEncoder(PhantomData)
    }

    fn decoder(&mut self) -> CountedDecoder<U> {
        CountedDecoder { inner: ProstDecoder::new(BufferSettings::new(READING, TOGETHER)), intake: Intake::current() }
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

// === impl CountedDecoder ===

impl<U: Message + Default> Decoder for CountedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if let Some(intake) = &self.intake {
            // The library passes the whole message in one piece.
            intake.decode(buf.chunk())?;
        }
        self.inner.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.inner.buffer_settings()
    }
}
