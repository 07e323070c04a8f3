//! One CA, and what it signs.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

/// A CA with its key, as it stands in the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ca {
    /// Also its name, so that no two are called the same.
    pub(super) made: Timestamp,
    /// PEM.
    pub(super) certificate: String,
    key: String,
}

/// A certificate with its chain, and its key, both PEM.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) chain: String,
    pub(super) key: String,
}

/// For clocks that are behind ours.
const BACKDATED: Duration = Duration::from_secs(3600);

// === impl Ca ===

impl Ca {
    pub(super) fn make(now: Timestamp, lasts: Duration) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = Self::params(now);
        set_validity(&mut params, now, lasts);
        let certificate = params.self_signed(&key)?;
        Ok(Self { made: now, certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// What a certificate of it needs to be issued: its name and its key.
    fn params(made: Timestamp) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("informerd CA {made}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    pub(super) fn issue(&self, names: &[String], now: Timestamp, lasts: Duration) -> Result<Leaf, rcgen::Error> {
        let key = KeyPair::generate()?;
        let names = CertificateParams::new(names.to_vec())?.subject_alt_names;
        Ok(Leaf { chain: self.certify(&key, names, now, lasts)?, key: key.serialize_pem() })
    }

    /// The certificate of a server that has this key, and its chain, in PEM.
    pub(super) fn certify(
        &self,
        key: &impl PublicKeyData,
        names: Vec<SanType>,
        now: Timestamp,
        lasts: Duration,
    ) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        set_validity(&mut params, now, lasts);
        params.subject_alt_names = names;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "informerd");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(Self::params(self.made), KeyPair::from_pem(&self.key)?);
        let certificate = params.signed_by(key, &issuer)?;
        Ok(format!("{}{}", certificate.pem(), self.certificate))
    }

    /// Whether certificate and key are what they should be.
    pub(super) fn check(&self) -> Result<(), String> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|e| e.to_string())?;
        let key = KeyPair::from_pem(&self.key).map_err(|error| error.to_string())?;
        match memchr::memmem::find(&certificate, key.public_key_raw()) {
            Some(_) => Ok(()),
            None => Err("a certificate does not belong to the key beside it".to_owned()),
        }
    }
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lasts: Duration) {
    let now = Duration::from_millis(u64::try_from(now.as_millisecond()).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + (now + lasts);
}
