//! RSA keys that the TLS library does not take: those of 1,024 to 2,047 bits, as old clusters have. Go takes them.
//! Signatures are of PKCS #1 version 1.5 and PSS (RFC 8017), with salts as long as the hash.

use std::sync::LazyLock;

use aws_lc_rs::{digest, rand};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::der::Der;

/// The least size of a modulus, in bits. Go refuses smaller ones.
const LEAST: u32 = 1024;
/// The largest private exponent that is used, in bits of its modulus. The largest that Go's TLS accepts.
const MOST: u32 = 8192;
/// From this size on, the library verifies.
const USUAL: u32 = 2048;

/// In the order in which they are preferred. A small modulus has no room for a salted SHA-512.
const SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

/// A private key.
#[derive(Clone)]
pub(super) struct Key {
    public: Public,
    exponent: BoxedUint,
}

#[derive(Clone)]
struct Public {
    /// The modulus and what is derived from it.
    modulus: BoxedMontyParams,
    exponent: BoxedUint,
    bits: u32,
}

/// A private key and the scheme that was chosen for a connection.
#[derive(Debug)]
struct Chosen {
    key: Key,
    scheme: SignatureScheme,
}

/// How a message is encoded before it is signed.
#[derive(Clone, Copy)]
struct Encoding {
    hash: &'static digest::Algorithm,
    /// The start of the `DigestInfo` of PKCS #1; `None` is PSS.
    info: Option<&'static [u8]>,
}

/// A verification by the library that small keys pass too.
#[derive(Debug)]
struct AnySize {
    usual: Algorithm,
    scheme: SignatureScheme,
}

type Algorithm = &'static dyn SignatureVerificationAlgorithm;
/// The algorithms that verify signatures of a scheme.
type OfScheme = (SignatureScheme, &'static [Algorithm]);

/// The algorithms of the library, with small keys.
pub(super) fn algorithms() -> WebPkiSupportedAlgorithms {
    // The library wants them for the life of the process, so what is made here once is leaked.
    static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
        let usual = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        let with_small_keys = |&(scheme, algorithms): &OfScheme| -> OfScheme {
            if !SCHEMES.contains(&scheme) {
                return (scheme, algorithms);
            }
            let any_size = |usual: &Algorithm| -> Algorithm { Box::leak(Box::new(AnySize { usual: *usual, scheme })) };
            (scheme, algorithms.iter().map(any_size).collect::<Vec<_>>().leak())
        };
        let mapping: &[OfScheme] = usual.mapping.iter().map(with_small_keys).collect::<Vec<_>>().leak();
        // The first that is of a key decides.
        let all = mapping.iter().flat_map(|(_, algorithms)| *algorithms).chain(usual.all).copied();
        WebPkiSupportedAlgorithms { all: all.collect::<Vec<_>>().leak(), mapping }
    });
    *ALGORITHMS
}

// === impl Key ===

impl Key {
    /// Reads a key in PKCS #1 or PKCS #8; `None` if it is none, or too small.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        Self::parse_pkcs1(der).or_else(|| {
            let mut outer = Der(der).sequence()?;
            outer.integer()?;
            outer.sequence()?;
            Self::parse_pkcs1(outer.octets()?)
        })
    }

    fn parse_pkcs1(der: &[u8]) -> Option<Self> {
        let mut fields = Der(der).sequence()?;
        fields.integer()?;
        let public = Public::of(fields.integer()?, fields.integer()?)?;
        let exponent = fields.integer()?;
        if public.bits > MOST || exponent.len() * 8 > usize::try_from(public.precision()).ok()? {
            return None;
        }
        let exponent = BoxedUint::from_be_slice(exponent, public.precision()).ok()?;
        Some(Self { public, exponent })
    }

    /// # Errors
    /// The key cannot sign: its parts do not belong together.
    fn sign(&self, message: &[u8], scheme: SignatureScheme) -> Option<Vec<u8>> {
        let encoding = Encoding::of(scheme)?;
        let encoded = encoding.encode(message, self.public.bits)?;
        // The time that this takes does not depend on the private exponent.
        let signature = self.public.power(&encoded, &self.exponent)?;
        // A wrong signature would give the key away.
        encoding.verify(&self.public, message, &signature).then_some(signature)
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let has_room = |scheme| Encoding::of(scheme).is_some_and(|it| it.encode(&[], self.public.bits).is_some());
        let scheme = SCHEMES.into_iter().find(|scheme| offered.contains(scheme) && has_room(*scheme))?;
        Some(Box::new(Chosen { key: self.clone(), scheme }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an RSA key of {} bits", self.public.bits)
    }
}

impl Signer for Chosen {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let broken = || rustls::Error::General("the parts of the RSA key do not belong together".to_owned());
        self.key.sign(message, self.scheme).ok_or_else(broken)
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

// === impl Public ===

impl Public {
    /// Big-endian numbers without leading zeros. `None` if the modulus is even or too small, or the exponent even, 1, or
    /// longer than 4 bytes.
    fn of(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let zeros = modulus.first()?.leading_zeros();
        let bits = u32::try_from(modulus.len()).ok()?.checked_mul(8)? - zeros;
        let is_odd = exponent.last().is_some_and(|last| last % 2 == 1);
        // Go's is a signed number of 32 bits.
        let is_large = exponent.len() > 4 || exponent.len() == 4 && exponent[0] > 0x7f;
        if !(LEAST..=2 * MOST).contains(&bits) || is_large || !is_odd || *exponent == [1] {
            return None;
        }
        let precision = bits.next_multiple_of(64);
        let modulus = Option::from(Odd::new(BoxedUint::from_be_slice(modulus, precision).ok()?))?;
        let exponent = BoxedUint::from_be_slice(exponent, 64).ok()?;
        Some(Self { modulus: BoxedMontyParams::new(modulus), exponent, bits })
    }

    /// `RSAPublicKey` of RFC 8017.
    fn parse(der: &[u8]) -> Option<Self> {
        let mut fields = Der(der).sequence()?;
        Self::of(fields.integer()?, fields.integer()?)
    }

    fn precision(&self) -> u32 {
        self.bits.next_multiple_of(64)
    }

    /// The length of a signature, in bytes.
    fn size(&self) -> usize {
        usize::try_from(self.bits.div_ceil(8)).unwrap_or_default()
    }

    /// `None` if the base is not below the modulus.
    fn power(&self, base: &[u8], exponent: &BoxedUint) -> Option<Vec<u8>> {
        let base = BoxedUint::from_be_slice(base, self.precision()).ok()?;
        if base >= *self.modulus.modulus().as_ref() {
            return None;
        }
        let power = BoxedMontyForm::new(base, self.modulus.clone()).pow(exponent).retrieve().to_be_bytes();
        Some(power[power.len().checked_sub(self.size())?..].to_vec())
    }
}

// === impl Encoding ===

impl Encoding {
    fn of(scheme: SignatureScheme) -> Option<Self> {
        const SHA256: &[u8] = &[0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];
        const SHA384: &[u8] = &[0x30, 0x41, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2, 5, 0, 4, 0x30];
        const SHA512: &[u8] = &[0x30, 0x51, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3, 5, 0, 4, 0x40];
        let (hash, info) = match scheme {
            SignatureScheme::RSA_PSS_SHA256 => (&digest::SHA256, None),
            SignatureScheme::RSA_PSS_SHA384 => (&digest::SHA384, None),
            SignatureScheme::RSA_PSS_SHA512 => (&digest::SHA512, None),
            SignatureScheme::RSA_PKCS1_SHA256 => (&digest::SHA256, Some(SHA256)),
            SignatureScheme::RSA_PKCS1_SHA384 => (&digest::SHA384, Some(SHA384)),
            SignatureScheme::RSA_PKCS1_SHA512 => (&digest::SHA512, Some(SHA512)),
            _ => return None,
        };
        Some(Self { hash, info })
    }

    /// The number that is signed. `None` if the modulus has no room for it.
    fn encode(self, message: &[u8], bits: u32) -> Option<Vec<u8>> {
        match self.info {
            Some(info) => self.encode_pkcs1(info, message, bits),
            None => {
                let mut salt = vec![0; self.hash.output_len()];
                rand::fill(&mut salt).ok()?;
                self.encode_pss(message, &salt, bits)
            }
        }
    }

    /// EMSA-PKCS1-v1_5 (RFC 8017, 9.2).
    fn encode_pkcs1(self, info: &[u8], message: &[u8], bits: u32) -> Option<Vec<u8>> {
        let hash = digest::digest(self.hash, message);
        let size = usize::try_from(bits.div_ceil(8)).ok()?;
        let padding = size.checked_sub(info.len() + hash.as_ref().len() + 3).filter(|padding| *padding >= 8)?;
        Some([&[0, 1], &*vec![0xff; padding], &[0], info, hash.as_ref()].concat())
    }

    /// EMSA-PSS (RFC 8017, 9.1.1).
    fn encode_pss(self, message: &[u8], salt: &[u8], bits: u32) -> Option<Vec<u8>> {
        let size = usize::try_from((bits - 1).div_ceil(8)).ok()?;
        let padding = size.checked_sub(self.hash.output_len() + salt.len() + 2)?;
        let hash = self.salted(message, salt);
        let mut block = [&*vec![0; padding], &[1], salt].concat();
        self.mask(&mut block, hash.as_ref());
        block[0] &= Self::top(bits);
        Some([&*block, hash.as_ref(), &[0xbc]].concat())
    }

    /// EMSA-PSS (RFC 8017, 9.1.2).
    fn verify_pss(self, message: &[u8], encoded: &[u8], bits: u32) -> Option<()> {
        let length = self.hash.output_len();
        let size = usize::try_from((bits - 1).div_ceil(8)).ok()?;
        // A number of whole bytes more than the block begins with a zero.
        let (zeros, encoded) = encoded.split_at_checked(encoded.len().checked_sub(size)?)?;
        let (encoded, [0xbc]) = encoded.split_last_chunk::<1>()? else { return None };
        let (block, hash) = encoded.split_at_checked(encoded.len().checked_sub(length)?)?;
        let padding = block.len().checked_sub(length + 1)?;
        let is_of_size = zeros.iter().all(|byte| *byte == 0) && block[0] & !Self::top(bits) == 0;
        let mut block = block.to_vec();
        self.mask(&mut block, hash);
        block[0] &= Self::top(bits);
        let (start, salt) = block.split_at(padding + 1);
        let is_padded = start.iter().take(padding).all(|byte| *byte == 0) && start[padding] == 1;
        (is_of_size && is_padded && self.salted(message, salt).as_ref() == hash).then_some(())
    }

    fn verify(self, key: &Public, message: &[u8], signature: &[u8]) -> bool {
        let opened = (signature.len() == key.size()).then(|| key.power(signature, &key.exponent)).flatten();
        opened.is_some_and(|opened| match self.info {
            Some(info) => self.encode_pkcs1(info, message, key.bits).is_some_and(|expected| expected == opened),
            None => self.verify_pss(message, &opened, key.bits).is_some(),
        })
    }

    fn salted(self, message: &[u8], salt: &[u8]) -> digest::Digest {
        let hash = digest::digest(self.hash, message);
        digest::digest(self.hash, &[&[0; 8], hash.as_ref(), salt].concat())
    }

    /// MGF1 (RFC 8017, B.2.1), applied to a block.
    fn mask(self, block: &mut [u8], seed: &[u8]) {
        for (counter, part) in (0u32..).zip(block.chunks_mut(self.hash.output_len())) {
            let mask = digest::digest(self.hash, &[seed, &counter.to_be_bytes()].concat());
            part.iter_mut().zip(mask.as_ref()).for_each(|(byte, mask)| *byte ^= mask);
        }
    }

    /// The bits of the first byte that a modulus of this size leaves to the block.
    fn top(bits: u32) -> u8 {
        0xff >> ((8 - (bits - 1) % 8) % 8)
    }
}

// === impl AnySize ===

impl SignatureVerificationAlgorithm for AnySize {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let small = || {
            let key = Public::parse(key).filter(|key| key.bits < USUAL)?;
            Encoding::of(self.scheme)?.verify(&key, message, signature).then_some(())
        };
        self.usual.verify_signature(key, message, signature).or_else(|error| small().ok_or(error))
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.usual.signature_alg_id()
    }
}

#[cfg(test)]
#[path = "rsa_tests.rs"]
mod tests;
