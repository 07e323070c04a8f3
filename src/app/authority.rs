//! Starts the components that obtain a certificate that is neither in files nor self-issued, and the signer for other
//! processes.

use std::sync::Arc;

use jiff::Timestamp;

use super::process::Context;
use crate::apiserver::Upstream;
use crate::apiserver::client::ConfigSource;
use crate::auth::certificate_validity;
use crate::authority::{Give, Keeper, Requester, Serving, SignerMetrics};
use crate::config::Config;
use crate::http::Certificates;
use crate::lifecycle;

/// Starts the components that the configuration asks for. `certificates` is `None` if no listener uses TLS. Returns the
/// metrics of the signer.
pub(super) fn start(
    config: &Config,
    upstream: &Upstream,
    source: ConfigSource,
    certificates: Option<Arc<Certificates>>,
    context: &Context,
) -> Arc<SignerMetrics> {
    let Context { fatal, readiness, .. } = context;
    if let (Some(request), Some(certificates)) = (&config.certificate_request, &certificates) {
        let requester = Requester::new(request.clone(), upstream.clone(), give(Arc::clone(certificates)));
        lifecycle::spawn_supervised("certificate", requester.run(readiness.latch("certificate")), fatal);
    }
    let metrics = Arc::<SignerMetrics>::default();
    let Some(authority) = config.authority.clone() else { return metrics };
    let serving = certificates.map(|certificates| Serving {
        names: certificates.names_to_give().unwrap_or_default().to_vec(),
        give: give(certificates),
    });
    let keeper = Keeper::new(authority, upstream.clone(), source, serving);
    let signer = keeper.signer(Arc::clone(&metrics));
    lifecycle::spawn_supervised("authority", keeper.run(readiness.latch("certificate")), fatal);
    if let Some(signer) = signer {
        lifecycle::spawn_supervised("signer", signer.run(), fatal);
    }
    metrics
}

fn give(certificates: Arc<Certificates>) -> Give {
    Box::new(move |chain, key| {
        certificates.give(chain, key).map_err(|error| error.to_string())?;
        let validity = certificates.chain().first().and_then(|leaf| certificate_validity(leaf));
        let until = validity.and_then(|(_, until)| Timestamp::from_second(until).ok());
        until.ok_or_else(|| "until when it is valid cannot be read".to_owned())
    })
}
