//! TLS with a server: whom we trust. What Go's `crypto/x509` accepts as the certificate of
//! a server is accepted here too, as far as the library can.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::der::Certificate;
use super::error::KubeconfigError;
use super::{pem, rsa};

/// Trusts the CAs of a configuration, and servers whose own certificate is among them.
#[derive(Debug)]
struct Verifier {
    trusted: Vec<CertificateDer<'static>>,
    /// `None` if no trusted certificate may issue others.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

/// Trusts every server, because the configuration says so.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

/// The TLS of connections to the server of a configuration, without a certificate of ours.
///
/// # Errors
/// The CAs cannot be used.
pub(crate) fn bare_client_config(config: &kube::Config) -> Result<ClientConfig, KubeconfigError> {
    let wrong = |error: &dyn std::fmt::Display| KubeconfigError(format!("TLS: {error}"));
    if config.root_cert.is_none() && !config.accept_invalid_certs {
        // The CAs of the system.
        use kube::client::ConfigExt as _;
        let mut bare = kube::Config::new(config.cluster_url.clone());
        bare.tls_server_name.clone_from(&config.tls_server_name);
        return bare.rustls_client_config().map_err(|error| wrong(&error));
    }
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.signature_verification_algorithms = rsa::algorithms();
    let provider = Arc::new(provider);
    let verifier: Arc<dyn ServerCertVerifier> = if config.accept_invalid_certs {
        Arc::new(Anybody(provider.signature_verification_algorithms.supported_schemes()))
    } else {
        // In a pod, the file may be newer than what was read from it.
        let read = config.root_cert_file.as_ref().and_then(|path| std::fs::read(path).ok());
        let read = read.map(|text| pem::certificates(&text)).filter(|read| !read.is_empty());
        let trusted = read.as_ref().or(config.root_cert.as_ref()).map(Vec::as_slice).unwrap_or_default();
        Arc::new(Verifier::new(trusted, &provider))
    };
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map_err(|error| wrong(&error))?.dangerous().with_custom_certificate_verifier(verifier);
    Ok(tls.with_no_client_auth())
}

// === impl Verifier ===

impl Verifier {
    fn new(trusted: &[Vec<u8>], provider: &Arc<CryptoProvider>) -> Self {
        let trusted: Vec<_> = trusted.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let mut roots = RootCertStore::empty();
        let issuers = trusted.iter().filter(|der| Certificate::parse(der).is_some_and(|it| it.may_issue()));
        // As Go, which leaves out what it cannot read.
        roots.add_parsable_certificates(issuers.cloned());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        Self { trusted, authorities: verifier.build().ok(), provider: Arc::clone(provider) }
    }

    /// A server whose own certificate is trusted: only its name, its time and its purpose are left to check.
    fn pinned(der: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let certificate = Certificate::parse(der).ok_or(CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < certificate.validity.0 {
            return Err(CertificateError::NotValidYet);
        }
        if now > certificate.validity.1 {
            return Err(CertificateError::Expired);
        }
        if !certificate.may_serve() {
            return Err(CertificateError::InvalidPurpose);
        }
        let parsed = ParsedCertificate::try_from(der).map_err(|_| CertificateError::BadEncoding)?;
        verify_server_name(&parsed, name).map_err(|error| match error {
            rustls::Error::InvalidCertificate(error) => error,
            _ => CertificateError::NotValidForName,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.iter().any(|trusted| trusted == certificate) {
            return Self::pinned(certificate, name, now)
                .map(|()| ServerCertVerified::assertion())
                .map_err(rustls::Error::InvalidCertificate);
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

// === impl Anybody ===

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    // A key of a certificate that anybody may have proves nothing.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
