//! Client certificates in the TLS handshake. They are requested but not required, and are verified with each request.
//! So a client with a bad certificate gets a 401, as from the apiserver, and a changed CA also applies to connections
//! that are already open.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The most bytes of a chain of certificates, with [`EACH`] more for each of them. It is kept for as long as its connection, and nobody has verified it when it comes.
const MAX_CHAIN: usize = 16 << 10;
/// What a certificate takes besides its bytes, of which it may have none.
const EACH: usize = 64;

/// Accepts any certificate for which the client proves that it has the key.
#[derive(Debug)]
pub(super) struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

/// Disables session resumption.
#[derive(Debug)]
pub(super) struct NoTickets;

// === impl AnyClient ===

impl AnyClient {
    pub(super) fn new() -> Self {
        Self { algorithms: aws_lc_rs::default_provider().signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AnyClient {
    /// None, because the CA bundle may change while the listener runs.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain = std::iter::once(certificate).chain(intermediates);
        if chain.map(|certificate| certificate.len() + EACH).sum::<usize>() > MAX_CHAIN {
            return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

// === impl NoTickets ===

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_chain_has_a_bound() {
        let is_taken = |leaf: usize, others: &[usize]| {
            let of = |size: usize| CertificateDer::from(vec![0; size]);
            let others: Vec<_> = others.iter().copied().map(of).collect();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(1));
            AnyClient::new().verify_client_cert(&of(leaf), &others, now).is_ok()
        };
        let rest = MAX_CHAIN - 1000 - 2 * EACH;
        assert_eq!([is_taken(1000, &[rest]), is_taken(1000, &[rest + 1])], [true, false]);
        let most = MAX_CHAIN / EACH - 1;
        assert_eq!([is_taken(0, &vec![0; most]), is_taken(0, &vec![0; most + 1])], [true, false], "without bytes");
    }
}
