//! A certificate chain with its key, both in PEM, and why they cannot be used.

use std::io;
use std::path::PathBuf;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::config::CertificateFiles;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{path}: {error}", path = path.display())]
    Pem { path: PathBuf, error: rustls::pki_types::pem::Error },
    #[error("{path} holds no certificate", path = .0.display())]
    Empty(PathBuf),
    #[error("certificate and key: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("issuing a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("{path} does not belong to the key beside it, remove both to have a new authority made", path = .0.display())]
    Mismatch(PathBuf),
    #[error("{path} is a key that every user of this machine may use, take the rights of others away or remove it", path = .0.display())]
    Exposed(PathBuf),
}

pub(super) fn certified(files: &CertificateFiles, certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Pem { path: files.certificate.clone(), error })?;
    if chain.is_empty() {
        return Err(TlsError::Empty(files.certificate.clone()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Pem { path: files.key.clone(), error })?;
    // Checks that certificate and key match.
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
}
