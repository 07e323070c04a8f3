//! A CA of informerd, and the certificates that it signs.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

/// A CA with its key. The Secret contains it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ca {
    /// Part of the CA's name if `name` is `None`, so that no two CAs have the same name.
    pub(super) made: Timestamp,
    /// When its certificate expires. A Secret of an earlier version does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<Timestamp>,
    /// PEM, as is the key.
    pub certificate: String,
    pub key: String,
    #[serde(skip)]
    name: Option<&'static str>,
}

/// A certificate with its chain, and its key, both PEM.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub chain: String,
    pub key: String,
}

/// Why a certificate and a key do not form a CA.
#[derive(Debug, thiserror::Error)]
pub enum NoCa {
    #[error("{0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("{0}")]
    Key(#[from] rcgen::Error),
    #[error("a certificate does not belong to the key beside it")]
    Mismatch,
}

/// Certificates are valid from this long ago, for clients whose clock is up to a day behind ours.
pub const BACKDATED: Duration = Duration::from_secs(86_400);

// === impl Ca ===

impl Ca {
    /// `name`: a fixed name, for a CA of which only the certificate and the key are stored.
    pub fn make(now: Timestamp, lasts: Duration, name: Option<&'static str>) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let expires = now.checked_add(lasts).ok();
        let mut made = Self { made: now, expires, certificate: String::new(), key: key.serialize_pem(), name };
        let mut params = made.params();
        set_validity(&mut params, now, lasts);
        made.certificate = params.self_signed(&key)?.pem();
        Ok(made)
    }

    /// Loads a CA that was created with this name before. Both texts are PEM.
    ///
    /// # Errors
    /// They are not valid PEM, or do not match.
    pub fn kept(certificate: String, key: String, name: &'static str) -> Result<Self, NoCa> {
        let kept = Self { made: Timestamp::UNIX_EPOCH, expires: None, certificate, key, name: Some(name) };
        kept.check()?;
        Ok(kept)
    }

    /// Issuing needs only the name and the key identifier, so the certificate itself is never parsed.
    fn params(&self) -> CertificateParams {
        let name = self.name.map_or_else(|| format!("informerd CA {}", self.made), str::to_owned);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    pub fn issue(&self, names: &[String], now: Timestamp, lasts: Duration) -> Result<Leaf, rcgen::Error> {
        let key = KeyPair::generate()?;
        let names = CertificateParams::new(names.to_vec())?.subject_alt_names;
        Ok(Leaf { chain: self.certify(&key, names, now, lasts)?, key: key.serialize_pem() })
    }

    /// Returns a serving certificate for this key, and its chain, in PEM.
    pub(super) fn certify(
        &self,
        key: &impl PublicKeyData,
        names: Vec<SanType>,
        now: Timestamp,
        lasts: Duration,
    ) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::default();
        // Some clients look at the end of the CA, too.
        let rest = self.expires.map(|expires| Duration::try_from(expires.duration_since(now)).unwrap_or_default());
        set_validity(&mut params, now, rest.map_or(lasts, |rest| rest.min(lasts)));
        params.subject_alt_names = names;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "informerd");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(self.params(), KeyPair::from_pem(&self.key)?);
        let certificate = params.signed_by(key, &issuer)?;
        Ok(format!("{}{}", certificate.pem(), self.certificate))
    }

    /// Checks that certificate and key are valid and match.
    pub(super) fn check(&self) -> Result<(), NoCa> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        let key = KeyPair::from_pem(&self.key)?;
        memchr::memmem::find(&certificate, key.public_key_raw()).map(drop).ok_or(NoCa::Mismatch)
    }
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lasts: Duration) {
    let now = Duration::from_millis(u64::try_from(now.as_millisecond()).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + (now + lasts);
}
