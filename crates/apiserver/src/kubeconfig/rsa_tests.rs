use aws_lc_rs::signature::{
    self, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    UnparsedPublicKey,
};

use super::super::der::Certificate;
use super::super::pem;
use super::*;

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/data/kubeconfigs/", $name))
    };
}

fn key(file: &[u8]) -> Key {
    Key::parse(&pem::blocks(file)[0].der).unwrap()
}

fn public(file: &[u8]) -> Vec<u8> {
    Certificate::parse(&pem::certificates(file)[0]).unwrap().key.to_vec()
}

/// What the wrapped algorithms of a scheme say.
fn verify(scheme: SignatureScheme, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let algorithms = algorithms();
    let (_, of_scheme) = algorithms.mapping.iter().find(|(of, _)| *of == scheme).unwrap();
    of_scheme[0].verify_signature(key, message, signature).is_ok()
}

#[test]
fn signs_and_verifies_with_every_scheme() {
    for (private, certificate) in
        [(&file!("rsa1024.key")[..], &file!("rsa1024.crt")[..]), (file!("rsa1536.key"), file!("rsa1536.crt"))]
    {
        let (key, public) = (key(private), public(certificate));
        for scheme in SCHEMES {
            let Some(signature) = key.sign(b"message", scheme) else {
                // 128 bytes have no room for a salted SHA-512.
                assert_eq!((scheme, key.public.bits), (SignatureScheme::RSA_PSS_SHA512, 1024));
                continue;
            };
            assert!(verify(scheme, &public, b"message", &signature), "{scheme:?}");
            assert!(!verify(scheme, &public, b"another", &signature), "{scheme:?}");
            for at in [0, signature.len() / 2, signature.len() - 1] {
                let mut broken = signature.clone();
                broken[at] ^= 1;
                assert!(!verify(scheme, &public, b"message", &broken), "{scheme:?}");
            }
            assert!(!verify(scheme, &public, b"message", &signature[1..]), "{scheme:?}");
            let other = SCHEMES.into_iter().find(|other| *other != scheme).unwrap();
            assert!(!verify(other, &public, b"message", &signature), "{scheme:?}");
        }
    }
}

/// Against the library, where it takes such keys.
#[test]
fn its_signatures_are_those_of_the_library() {
    let (small, of_small) = (key(file!("rsa1024.key")), public(file!("rsa1024.crt")));
    for (scheme, algorithm) in [
        (SignatureScheme::RSA_PKCS1_SHA256, &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        (SignatureScheme::RSA_PKCS1_SHA512, &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
    ] {
        let signature = small.sign(b"message", scheme).unwrap();
        UnparsedPublicKey::new(algorithm, &of_small).verify(b"message", &signature).unwrap();
    }
    let (usual, of_usual) = (key(file!("rsa.key")), public(file!("rsa.crt")));
    for (scheme, algorithm) in [
        (SignatureScheme::RSA_PSS_SHA256, &signature::RSA_PSS_2048_8192_SHA256),
        (SignatureScheme::RSA_PSS_SHA384, &signature::RSA_PSS_2048_8192_SHA384),
        (SignatureScheme::RSA_PSS_SHA512, &signature::RSA_PSS_2048_8192_SHA512),
        (SignatureScheme::RSA_PKCS1_SHA384, &signature::RSA_PKCS1_2048_8192_SHA384),
    ] {
        let signature = usual.sign(b"message", scheme).unwrap();
        UnparsedPublicKey::new(algorithm, &of_usual).verify(b"message", &signature).unwrap();
    }
    let theirs = signature::RsaKeyPair::from_der(&pem::blocks(file!("rsa.key"))[0].der).unwrap();
    let mut signature = vec![0; theirs.public_modulus_len()];
    let random = aws_lc_rs::rand::SystemRandom::new();
    theirs.sign(&signature::RSA_PSS_SHA256, &random, b"message", &mut signature).unwrap();
    let encoding = Encoding::of(SignatureScheme::RSA_PSS_SHA256).unwrap();
    assert!(encoding.verify(&usual.public, b"message", &signature));
    assert!(!encoding.verify(&usual.public, b"another", &signature));
}

#[test]
fn what_is_no_key_is_none() {
    assert!(Key::parse(&pem::blocks(file!("ec-pkcs8.key"))[0].der).is_none());
    assert!(Key::parse(&[]).is_none() && Key::parse(&[0x30, 0x80]).is_none());
    let whole = &pem::blocks(file!("rsa1024.key"))[0].der;
    for length in 0..whole.len() / 2 {
        assert!(Key::parse(&whole[..length]).is_none(), "{length}");
    }
    assert!(Public::of(&[0xff; 64], &[3]).is_none(), "512 bits");
    assert!(Public::of(&[0xfe; 128], &[3]).is_none(), "even");
    // Twice as many bits as a private key may have.
    assert!([2048, 2049].map(|bytes| Public::of(&vec![0xff; bytes], &[3]).is_some()) == [true, false]);
    let (good, bad): ([&[u8]; 3], [&[u8]; 7]) = (
        [&[3], &[1, 0, 1], &[0x7f, 0xff, 0xff, 0xff]],
        [&[], &[0], &[1], &[2], &[1, 0, 0], &[1, 0, 0, 0, 1], &[0x80, 0, 0, 1]],
    );
    for exponent in good {
        assert!(Public::of(&[0xff; 128], exponent).is_some(), "{exponent:?}");
    }
    for exponent in bad {
        assert!(Public::of(&[0xff; 128], exponent).is_none(), "{exponent:?}");
    }
}
