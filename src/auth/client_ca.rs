//! The CA bundle that client certificates are verified with. It is read from a file or from the cluster, and replaced
//! when it changes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::Notify;

use super::caller::Caller;
use super::certificate;
use super::config::{ClientCaSource, StartError};
use super::revocation::collection;
use super::user::UserInfo;
use crate::apiserver::RequestVerb;
use crate::apiserver::client::{CallOptions, Identity, Upstream, empty};
use crate::apiserver::metadata::{Seen, follow};
use crate::lifecycle::{Fatal, spawn_supervised};

/// How often a file is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct ClientCa {
    /// Without one, no certificate can be verified.
    verifier: ArcSwapOption<Current>,
    generation: AtomicU64,
}

#[derive(Debug)]
struct Current {
    verifier: Arc<dyn ClientCertVerifier>,
    pem: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotVerified {
    /// The bundle is not available yet.
    NoCa,
    Invalid(String),
}

// === impl ClientCa ===

impl ClientCa {
    /// Reads the bundle, and follows it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn start(source: &ClientCaSource, upstream: &Upstream, fatal: &Fatal) -> Result<Arc<Self>, StartError> {
        let ca = Arc::<Self>::default();
        match source {
            ClientCaSource::File(path) => {
                let pem = std::fs::read(path).map_err(|error| StartError::Read { path: path.clone(), error })?;
                ca.replace(&pem).map_err(|error| StartError::ClientCa { path: path.clone(), error })?;
                spawn_supervised("client-ca", Arc::clone(&ca).follow_file(path.clone()), fatal);
            }
            ClientCaSource::Cluster => follow_cluster_ca(upstream, &ca, fatal),
        }
        Ok(ca)
    }

    /// Changes whenever another bundle comes into use.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the user that a certificate names. The handshake has already proved that the client holds its key.
    ///
    /// # Errors
    /// No CA of the bundle has signed the certificate, it is not valid now, or it is not meant for clients.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<UserInfo, NotVerified> {
        let current = self.verifier.load();
        let Some(current) = &*current else { return Err(NotVerified::NoCa) };
        let invalid = |error: &dyn std::fmt::Display| NotVerified::Invalid(error.to_string());
        let (own, intermediates) = chain.split_first().ok_or_else(|| invalid(&"an empty chain"))?;
        let verified = current.verifier.verify_client_cert(own, intermediates, UnixTime::now());
        verified.map_err(|error| invalid(&error))?;
        certificate::user(own).map_err(|error| invalid(&error))
    }

    /// The user that the certificate of the caller's connection names, for a server that knows clients by nothing else.
    ///
    /// # Errors
    /// It has none, or none of the CA.
    pub fn user(&self, caller: &Caller<'_>) -> Result<UserInfo, String> {
        let chain = caller.certificates.ok_or("there is no client certificate")?;
        self.verify(chain).map_err(|error| match error {
            NotVerified::NoCa => "the CA of client certificates is not known yet".to_owned(),
            NotVerified::Invalid(error) => format!("the client certificate is not valid: {error}"),
        })
    }

    /// Puts a bundle into use. Returns false if it was already in use.
    ///
    /// # Errors
    /// The bundle contains no certificate, or an invalid one.
    pub(super) fn replace(&self, pem: &[u8]) -> Result<bool, String> {
        if self.verifier.load().as_ref().is_some_and(|current| current.pem == pem) {
            return Ok(false);
        }
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("holds no certificate".into());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|error| error.to_string())?;
        self.verifier.store(Some(Arc::new(Current { verifier, pem: pem.to_vec() })));
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    /// Checks the file forever. If a change cannot be used, the error is logged, and the last bundle stays in use.
    pub(super) async fn follow_file(self: Arc<Self>, path: PathBuf) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            match tokio::fs::read(&path).await.map_err(|error| error.to_string()).and_then(|pem| self.replace(&pem)) {
                Ok(true) => tracing::info!(path = %path.display(), "CA of client certificates replaced"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), error, "CA of client certificates not replaced");
                }
            }
        }
    }
}

/// Follows the CA bundle that the cluster publishes for aggregated API servers.
fn follow_cluster_ca(upstream: &Upstream, client_ca: &Arc<ClientCa>, fatal: &Fatal) {
    let changed = Arc::new(Notify::new());
    let (told, wake) = (Arc::clone(&changed), Arc::clone(&changed));
    let selector = "metadata.name%3Dextension-apiserver-authentication".to_owned();
    let collection = collection("/api/v1/namespaces/kube-system/configmaps", "configmaps", selector);
    let watching = follow(upstream.clone(), collection, move |seen| {
        // While its watch is lost, it could not be read either.
        if !matches!(seen, Seen::Lost { .. }) {
            told.notify_one();
        }
    });
    spawn_supervised("watching-client-ca", watching, fatal);
    let (upstream, client_ca) = (upstream.clone(), Arc::clone(client_ca));
    let reading = async move {
        loop {
            match read_cluster_ca(&upstream).await.and_then(|pem| client_ca.replace(pem.as_bytes())) {
                Ok(true) => tracing::info!("CA of client certificates taken from the cluster"),
                Ok(false) => {}
                Err(error) => tracing::warn!(error, "the CA of client certificates cannot be read from the cluster"),
            }
            wake.notified().await;
        }
    };
    spawn_supervised("reading-client-ca", reading, fatal);
}

async fn read_cluster_ca(upstream: &Upstream) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    struct ConfigMap {
        #[serde(default)]
        data: HashMap<String, String>,
    }
    let mut request = http::Request::new(empty());
    *request.uri_mut() =
        http::Uri::from_static("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
    let options = CallOptions::new(RequestVerb::Get, "configmaps").header_timeout(Duration::from_secs(30));
    let response = upstream.send_with(Identity::Own, request, &options).await.map_err(|error| error.to_string())?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("the apiserver answers {}", response.status()));
    }
    let body = http_body_util::Limited::new(response.into_body(), 4 << 20);
    let body = http_body_util::BodyExt::collect(body).await.map_err(|error| error.to_string())?;
    let found: ConfigMap = serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
    found.data.get("client-ca-file").cloned().ok_or_else(|| "the ConfigMap has no client-ca-file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::Certificates;

    #[test]
    fn a_bundle_that_cannot_be_used_leaves_the_last_one() {
        let (ours, others) = (Certificates::new(), Certificates::new());
        let chain = |pem: &str| [CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
        let (client, server) = (chain(&ours.client.0), chain(&ours.server.0));
        let ca = ClientCa::default();
        assert_eq!(ca.verify(&client), Err(NotVerified::NoCa));
        for (pem, replaced, verified) in [(&others.ca, true, false), (&others.ca, false, false), (&ours.ca, true, true)]
        {
            assert_eq!((ca.replace(pem.as_bytes()), ca.verify(&client).is_ok()), (Ok(replaced), verified));
        }
        for wrong in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(ca.replace(wrong.as_bytes()).is_err() && ca.verify(&client).is_ok(), "{wrong}");
        }
        assert_eq!(ca.generation(), 2);
        for chain in [&server[..], &[]] {
            assert!(matches!(ca.verify(chain), Err(NotVerified::Invalid(_))), "not of a client");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_file_comes_into_use() {
        let (file, first, second) = (tempfile::NamedTempFile::new().unwrap(), Certificates::new(), Certificates::new());
        std::fs::write(file.path(), &first.ca).unwrap();
        let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
        let source = ClientCaSource::File(file.path().to_owned());
        let ca = ClientCa::start(&source, &upstream, &Fatal::new()).unwrap();
        std::fs::write(file.path(), &second.ca).unwrap();
        let client = [CertificateDer::from_pem_slice(second.client.0.as_bytes()).unwrap()];
        let replaced = async {
            while ca.verify(&client).is_err() {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::time::timeout(1000 * CHECK_INTERVAL, replaced).await.expect("it is read again");
    }
}
