//! How small the objects of each kind become, and how long that takes, without a server.

use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use informerd::packing::{Body, Packing, PackingConfig, PackingForm, Reading, SAMPLES, Visit};
use tokio::time::Instant;

/// The figures of one kind, or the sums of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindCost {
    pub(crate) objects: usize,
    pub(crate) samples: usize,
    /// Of all objects.
    pub(crate) plain_bytes: usize,
    train: Duration,
    unseen: Unseen,
}

/// Objects that the dictionary was not trained on.
#[derive(Clone, Copy, Debug, Default)]
struct Unseen {
    objects: usize,
    stay_plain: usize,
    plain: usize,
    /// Objects that stay plain count as such.
    packed: usize,
    /// The highest ratio of one object.
    worst: f64,
    pack: Duration,
    unpack: Duration,
}

/// Each kind has a dictionary of its own.
pub(crate) fn run(objects: &[Bytes]) -> anyhow::Result<KindCost> {
    let config = PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes: 0 };
    let packer = Packing::new(config).packer(None);
    // At least every second object stays unseen.
    let stride = objects.len().div_ceil(SAMPLES).max(2);
    let samples: Vec<Bytes> = objects.iter().step_by(stride).cloned().collect();
    let plain_bytes = objects.iter().map(Bytes::len).sum();
    let begun = Instant::now();
    packer.train(&samples, plain_bytes);
    let train = begun.elapsed();
    let unseen: Vec<&Bytes> =
        objects.iter().enumerate().filter(|(i, _)| i % stride != 0).map(|(_, object)| object).collect();
    let bodies: Vec<Body> = unseen.iter().map(|object| Body::new(Bytes::clone(object))).collect();
    let plain: Vec<usize> = bodies.iter().map(Body::size).collect();
    let begun = Instant::now();
    let stay_plain = bodies.iter().filter(|body| body.pack(&packer, 0) == Visit::Plain).count();
    let pack = begun.elapsed();
    let packed: Vec<usize> = bodies.iter().map(Body::size).collect();
    let begun = Instant::now();
    let unpacked = bodies.iter().map(|body| body.bytes(Reading::Answer)).collect::<Result<Vec<Bytes>, _>>()?;
    let unpack = begun.elapsed();
    ensure!(unpacked.iter().eq(unseen.iter().copied()), "bytes differ after they were unpacked");
    let worst = packed.iter().zip(&plain).map(|(packed, plain)| ratio(*packed, *plain)).fold(0.0, f64::max);
    let unseen = Unseen {
        objects: bodies.len(),
        stay_plain,
        plain: plain.iter().sum(),
        packed: packed.iter().sum(),
        worst,
        pack,
        unpack,
    };
    Ok(KindCost { objects: objects.len(), samples: samples.len(), plain_bytes, train, unseen })
}

fn ratio(packed: usize, plain: usize) -> f64 {
    packed as f64 / plain.max(1) as f64
}

// === impl KindCost ===

impl KindCost {
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { objects, samples, plain_bytes, train, unseen } = other;
        self.objects += objects;
        self.samples += samples;
        self.plain_bytes += plain_bytes;
        self.train += *train;
        self.unseen.objects += unseen.objects;
        self.unseen.stay_plain += unseen.stay_plain;
        self.unseen.plain += unseen.plain;
        self.unseen.packed += unseen.packed;
        self.unseen.worst = self.unseen.worst.max(unseen.worst);
        self.unseen.pack += unseen.pack;
        self.unseen.unpack += unseen.unpack;
    }

    /// A row of the table whose head is [`Self::HEAD`].
    pub(crate) fn row(&self, name: &str) -> String {
        let Unseen { objects, stay_plain, plain, packed, worst, pack, unpack } = self.unseen;
        let micros = |all: Duration| all.as_secs_f64() * 1e6 / objects.max(1) as f64;
        format!(
            "| {name} | {} | {:.0} | {} | {:.0} | {:.3} | {worst:.3} | {stay_plain} | {:.1} | {:.1} |",
            self.objects,
            self.plain_bytes as f64 / self.objects.max(1) as f64,
            self.samples,
            self.train.as_secs_f64() * 1e3,
            ratio(packed, plain),
            micros(pack),
            micros(unpack),
        )
    }

    pub(crate) const HEAD: &str = "| kind | objects | bytes each | samples | ms to train | packed ÷ plain | worst object | stay plain | µs to pack | µs to unpack |\n|---|---|---|---|---|---|---|---|---|---|";
}
