//! The client certificate and its key.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use super::der::{Certificate, Der};
use super::{pem, rsa};

/// The certificate that is shown to a server that asks for one. An exec plugin may replace it.
#[derive(Debug, Default)]
pub(super) struct Shown(pub(super) ArcSwapOption<CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }

    fn has_certs(&self) -> bool {
        self.0.load().is_some()
    }
}

/// A certificate with its chain, and its key, both in PEM. The certificate may be of any version, because it is only
/// sent. The key may be in PKCS #1, PKCS #8 or SEC 1, whatever its label says, as in Go.
///
/// # Errors
/// One of them is missing or cannot be used, or they do not belong together. The message is one line without secrets.
pub(super) fn pair(certificates: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    // Headers of a block do not matter here, as they do for a CA.
    let chain: Vec<_> =
        pem::blocks(certificates).into_iter().filter(|it| it.label == "CERTIFICATE").map(|it| it.der).collect();
    let Some(first) = chain.first() else { return Err("the client certificate has no certificate in it".to_owned()) };
    let shown = Certificate::parse(first).ok_or("the client certificate cannot be read")?.key;
    let is_key = |block: &pem::Block| block.label == "PRIVATE KEY" || block.label.ends_with(" PRIVATE KEY");
    let block = pem::blocks(key).into_iter().find(is_key).ok_or("the client key has no private key in it")?;
    if block.has_headers || block.label == "ENCRYPTED PRIVATE KEY" {
        return Err("the client key is encrypted, and a kubeconfig has no passphrase for it: \
                    `openssl pkey -in KEY -out PLAIN` decrypts it"
            .to_owned());
    }
    let key = signer(&block.der).ok_or("the client key is of no supported kind")?;
    let own = key.public_key();
    if own.is_some_and(|own| Der(own.as_ref()).sequence().and_then(Der::key).is_none_or(|own| own != shown)) {
        return Err("the client key does not belong to the client certificate".to_owned());
    }
    Ok(CertifiedKey::new(chain.into_iter().map(CertificateDer::from).collect(), key))
}

fn signer(der: &[u8]) -> Option<Arc<dyn SigningKey>> {
    let formats: [PrivateKeyDer<'_>; 3] = [
        PrivatePkcs1KeyDer::from(der).into(),
        PrivatePkcs8KeyDer::from(der).into(),
        PrivateSec1KeyDer::from(der).into(),
    ];
    let usual = formats.iter().find_map(|key| rustls::crypto::aws_lc_rs::sign::any_supported_type(key).ok());
    usual.or_else(|| rsa::Key::parse(der).map(|key| Arc::new(key) as Arc<dyn SigningKey>))
}
