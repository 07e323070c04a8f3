//! How small the objects of each kind become, and how long that takes, without a server.

use anyhow::ensure;
use bytes::Bytes;
use informerd::packing::{Body, Packing, PackingConfig, PackingForm, SAMPLES, Visit};
use tokio::time::Instant;

/// The figures of one kind, of objects that the dictionary was not trained on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindCost {
    pub(crate) objects: usize,
    pub(crate) samples: usize,
    /// Of all objects.
    pub(crate) plain_bytes: usize,
    pub(crate) train_ms: f64,
    /// Packed to plain; objects that stay plain count as such.
    pub(crate) ratio: f64,
    pub(crate) stay_plain: usize,
    pub(crate) pack_micros: f64,
    pub(crate) unpack_micros: f64,
}

pub(crate) fn run(objects: &[Bytes]) -> anyhow::Result<KindCost> {
    let config = PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes: 0 };
    let packer = Packing::new(config).packer(None);
    // At least every second object stays unseen.
    let stride = objects.len().div_ceil(SAMPLES).max(2);
    let samples: Vec<Bytes> = objects.iter().step_by(stride).cloned().collect();
    let plain_bytes = objects.iter().map(Bytes::len).sum();
    let begun = Instant::now();
    packer.train(&samples, plain_bytes);
    let train_ms = begun.elapsed().as_secs_f64() * 1e3;
    let unseen: Vec<&Bytes> =
        objects.iter().enumerate().filter(|(i, _)| i % stride != 0).map(|(_, object)| object).collect();
    let bodies: Vec<Body> = unseen.iter().map(|object| Body::new(Bytes::clone(object))).collect();
    let plain: usize = bodies.iter().map(Body::size).sum();
    let begun = Instant::now();
    let stay_plain = bodies.iter().filter(|body| body.pack(&packer, 0) == Visit::Plain).count();
    let pack = begun.elapsed();
    let packed: usize = bodies.iter().map(Body::size).sum();
    let begun = Instant::now();
    let unpacked: Vec<Bytes> = bodies.iter().map(Body::bytes).collect();
    let unpack = begun.elapsed();
    ensure!(unpacked.iter().eq(unseen.iter().copied()), "bytes differ after they were unpacked");
    let each = 1e6 / bodies.len().max(1) as f64;
    Ok(KindCost {
        objects: objects.len(),
        samples: samples.len(),
        plain_bytes,
        train_ms,
        ratio: packed as f64 / plain.max(1) as f64,
        stay_plain,
        pack_micros: pack.as_secs_f64() * each,
        unpack_micros: unpack.as_secs_f64() * each,
    })
}
