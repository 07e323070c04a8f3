//! The validity of the certificates that the process depends on.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::apiserver::Upstream;
use crate::auth::certificate_validity;
use crate::http::Certificates;

/// Reads the certificates at every scrape, because they are replaced while the process runs.
pub(super) struct Validity {
    /// `None` if no listener uses TLS.
    pub(super) serving: Option<Arc<Certificates>>,
    pub(super) upstream: Upstream,
}

/// The use of a certificate, and the start and end of its validity, in seconds since 1970.
type Known = (&'static str, i64, i64);

// === impl Validity ===

impl Validity {
    fn known(&self) -> Vec<Known> {
        let chain = self.serving.as_ref().map(|serving| serving.chain()).unwrap_or_default();
        let upstream = self.upstream.certificates();
        let kinds: [(&'static str, Vec<&[u8]>); 4] = [
            ("serving", chain.iter().take(1).map(|der| &der[..]).collect()),
            ("serving_ca", chain.iter().skip(1).map(|der| &der[..]).collect()),
            ("client", upstream.client.iter().map(|der| &der[..]).collect()),
            ("apiserver_ca", upstream.authorities.iter().map(|der| &der[..]).collect()),
        ];
        // A bundle has several certificates during a rotation. The one that is valid for the longest time counts.
        let of = |(kind, all): (&'static str, Vec<&[u8]>)| {
            let last = all.into_iter().filter_map(certificate_validity).max_by_key(|(_, until)| *until);
            last.map(|(from, until)| (kind, from, until))
        };
        kinds.into_iter().filter_map(of).collect()
    }
}

impl Collector for Validity {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let known = self.known();
        for (name, help, value) in [
            (
                "not_before",
                "Time from which a certificate is valid, in seconds since 1970",
                (|known| known.1) as fn(&Known) -> i64,
            ),
            ("expiration", "Time at which a certificate expires, in seconds since 1970", |known| known.2),
        ] {
            let name = format!("informerd_certificate_{name}_timestamp_seconds");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for known in &known {
                let labels = [("certificate", known.0)];
                ConstGauge::new(value(known) as f64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Validity")
    }
}
