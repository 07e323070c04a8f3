//! How messages become bytes: prost's encoding in buffers of their own size. The library's codec keeps 8 KiB for each
//! call, most of what a silent watch would hold, and lets the buffer of a large message grow by doubling.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// What a call holds that waits for its client's next message.
const READING: usize = 1 << 10;
/// What a call begins to write into; each message makes the room that it needs.
const WRITING: usize = 256;
/// Messages that wait for each other up to this size go out together.
const TOGETHER: usize = 32 << 10;

#[derive(Debug)]
pub struct ExactCodec<T, U>(PhantomData<(T, U)>);

#[derive(Debug)]
pub struct ExactEncoder<T>(PhantomData<T>);

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
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> ExactEncoder<T> {
        ExactEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstDecoder::new(BufferSettings::new(READING, TOGETHER))
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
