//! The user that a client certificate names, by the apiserver's rules: common name, organizations, and the user's UID.
//! Also reads the validity of any certificate.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aws_lc_rs::digest;

use super::user::{CREDENTIAL_ID, UserInfo, authenticated};

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
/// 1.3.6.1.4.1.57683.2
const USER_UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 6;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 23;
const GENERALIZED_TIME: u8 = 24;

/// One ASN.1 value in DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

/// The user of a certificate that is already verified.
///
/// # Errors
/// The certificate names no user, or its subject cannot be parsed.
pub fn user(certificate: &[u8]) -> Result<UserInfo, &'static str> {
    const UNREADABLE: &str = "the subject cannot be read";
    let (mut username, mut uid, mut groups) = (String::new(), String::new(), Vec::new());
    let mut names = subject(certificate).ok_or(UNREADABLE)?;
    while !names.is_empty() {
        let mut relative = take(&mut names, SET).ok_or(UNREADABLE)?;
        while !relative.is_empty() {
            let mut attribute = take(&mut relative, SEQUENCE).ok_or(UNREADABLE)?;
            let kind = take(&mut attribute, OBJECT_IDENTIFIER).ok_or(UNREADABLE)?;
            if ![COMMON_NAME, ORGANIZATION, USER_UID].contains(&kind) {
                continue;
            }
            let value = element(&mut attribute).and_then(|value| value.text()).ok_or(UNREADABLE)?;
            match kind {
                // The last one counts, as in Go's parser.
                COMMON_NAME => username = value,
                ORGANIZATION => groups.push(value),
                _ if value.is_empty() || !uid.is_empty() => return Err("the subject's user id is empty or not alone"),
                _ => uid = value,
            }
        }
    }
    if username.is_empty() {
        return Err("the subject has no common name");
    }
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![fingerprint(certificate)])]);
    Ok(authenticated(UserInfo { username, uid, groups, extra }))
}

/// The start and the end of a certificate's validity, in seconds since 1970; `None` if they cannot be parsed.
pub fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let mut validity = take(&mut after_issuer(certificate)?, SEQUENCE)?;
    Some((element(&mut validity)?.time()?, element(&mut validity)?.time()?))
}

/// The hexadecimal SHA-256 of a certificate, in the form that the apiserver uses.
fn fingerprint(certificate: &[u8]) -> String {
    let mut text = String::from("X509SHA256=");
    for byte in digest::digest(&digest::SHA256, certificate).as_ref() {
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// The content of the subject: a sequence of sets.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let mut fields = after_issuer(certificate)?;
    element(&mut fields)?;
    take(&mut fields, SEQUENCE)
}

/// Returns the fields after the issuer: validity, subject and the rest.
fn after_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let mut rest = certificate;
    let mut certificate = take(&mut rest, SEQUENCE)?;
    let mut fields = take(&mut certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields)?;
    }
    // Serial number, signature, issuer.
    for _ in 0..3 {
        element(&mut fields)?;
    }
    Some(fields)
}

fn take<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(from).filter(|element| element.tag == tag).map(|element| element.content)
}

fn element<'a>(from: &mut &'a [u8]) -> Option<Element<'a>> {
    let (&tag, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let count = usize::from(first & 0x7f);
        let (bytes, after) = rest.split_at_checked(count).filter(|_| (1..=4).contains(&count))?;
        rest = after;
        bytes.iter().fold(0usize, |length, byte| (length << 8) | usize::from(*byte))
    };
    let (content, after) = rest.split_at_checked(length)?;
    *from = after;
    Some(Element { tag, content })
}

// === impl Element ===

impl Element<'_> {
    /// The time in seconds since 1970. A two-digit year means 1950 to 2049.
    fn time(&self) -> Option<i64> {
        let text = std::str::from_utf8(self.content).ok()?.strip_suffix('Z')?;
        let (year, rest) = text.split_at_checked(match self.tag {
            UTC_TIME => 2,
            GENERALIZED_TIME => 4,
            _ => return None,
        })?;
        let mut year: i16 = year.parse().ok()?;
        if self.tag == UTC_TIME {
            year += if year < 50 { 2000 } else { 1900 };
        }
        let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
        let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
        let time = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
        Some(time.duration_since(jiff::civil::datetime(1970, 1, 1, 0, 0, 0, 0)).as_secs())
    }

    /// Decodes the string types that are used in names.
    fn text(&self) -> Option<String> {
        const UTF8: u8 = 12;
        const PRINTABLE: u8 = 19;
        const TELETEX: u8 = 20;
        const IA5: u8 = 22;
        const BMP: u8 = 30;
        match self.tag {
            UTF8 => String::from_utf8(self.content.to_vec()).ok(),
            PRINTABLE | IA5 if self.content.is_ascii() => String::from_utf8(self.content.to_vec()).ok(),
            TELETEX => Some(self.content.iter().map(|byte| char::from(*byte)).collect()),
            BMP if self.content.len().is_multiple_of(2) => {
                let units: Vec<u16> =
                    self.content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
                String::from_utf16(&units).ok()
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn uid() -> DnType {
        DnType::from_oid(&[1, 3, 6, 1, 4, 1, 57683, 2])
    }

    #[test]
    fn certificates_say_how_long_they_are_valid() {
        for (year, expected) in [(1970, 0), (2026, 1_767_225_600), (2050, 2_524_608_000), (9999, 253_370_764_800)] {
            let mut params = CertificateParams::default();
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(1950, 1, 1), rcgen::date_time_ymd(year, 1, 1));
            let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
            assert_eq!(validity(&der), Some((-631_152_000, expected)), "{year}");
            for cut in 0..der.len() - 1 {
                assert_eq!(validity(&der[..cut]), None);
            }
        }
        let time = |tag: u8, text: &str| Element { tag, content: text.as_bytes() }.time();
        assert_eq!(time(GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
        for wrong in ["261301000000Z", "2601010000Z", "260101000000", "é60101000000Z", ""] {
            assert_eq!(time(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_subject_names_user_groups_and_id() {
        let der = certificate(&[
            (DnType::OrganizationName, "system:nodes"),
            (DnType::CommonName, "system:node:é"),
            (uid(), "7"),
            (DnType::CountryName, "CH"),
        ]);
        let user = user(&der).unwrap();
        assert_eq!((user.username.as_str(), user.uid.as_str()), ("system:node:é", "7"));
        assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
        assert_eq!(user.extra(CREDENTIAL_ID), Some(fingerprint(&der).as_str()));
    }

    #[test]
    fn without_a_name_it_is_nobodys() {
        assert!(user(&certificate(&[(DnType::OrganizationName, "system:masters")])).is_err());
        assert!(user(&certificate(&[(DnType::CommonName, "u"), (uid(), "")])).is_err());
        assert!(user(b"").is_err());
    }

    #[test]
    fn lengths_and_texts_are_those_of_der() {
        for (length, content, expected) in [
            (&[0][..], 0, Some((0, 0))),
            (&[0x7f], 0x80, Some((0x7f, 1))),
            (&[0x80], 0x90, None),
            (&[0x81, 0x80], 0x80, Some((0x80, 0))),
            (&[0x81, 0], 0, Some((0, 0))),
            (&[0x84, 0, 0, 0, 1], 1, Some((1, 0))),
            (&[0x85, 0, 0, 0, 0, 1], 1, None),
            (&[0x81], 0, None),
            (&[0x81, 2], 1, None),
        ] {
            let der = [&[12][..], length, &vec![b'x'; content]].concat();
            let mut rest = &der[..];
            let found = element(&mut rest).map(|element| (element.content.len(), rest.len()));
            assert_eq!(found, expected, "{length:x?}");
        }
        for (tag, content, expected) in [
            (12, &b"a\xc3\xa9"[..], Some("aé")),
            (12, b"a\xff", None),
            (19, b"a", Some("a")),
            (19, b"a\xc3\xa9", None),
            (22, b"a", Some("a")),
            (20, b"a\xe9", Some("aé")),
            (30, b"\0a\0\xe9", Some("aé")),
            (30, b"\0a\0", None),
            (30, b"\xd8\0", None),
            (4, b"a", None),
        ] {
            assert_eq!(Element { tag, content }.text().as_deref(), expected, "{tag} {content:x?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..512), at in any::<prop::sample::Index>(), byte: u8) {
            user(&bytes).ok();
            let mut der = certificate(&[(DnType::CommonName, "u"), (DnType::OrganizationName, "g")]);
            let at = at.index(der.len());
            der[at] = byte;
            user(&der).ok();
            user(&der[..at]).ok();
        }
    }

    #[test]
    fn a_certificate_is_known_by_its_digest() {
        assert_eq!(fingerprint(b""), "X509SHA256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
