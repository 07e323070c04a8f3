//! Reads certificates and keys in DER, as far as that is needed to send, pin or select them. Certificates of version 1,
//! which the TLS library refuses to parse, are read too.

const INTEGER: u8 = 2;
const BIT_STRING: u8 = 3;
const OCTET_STRING: u8 = 4;
const OBJECT_IDENTIFIER: u8 = 6;
const UTC_TIME: u8 = 23;
const GENERALIZED_TIME: u8 = 24;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 1;

const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
/// The extended key usages that are for a server: `serverAuth` and `anyExtendedKeyUsage`.
const FOR_SERVERS: [&[u8]; 2] = [&[0x2b, 6, 1, 5, 5, 7, 3, 1], &[0x55, 0x1d, 37, 0]];

/// What follows in a DER sequence.
pub(super) struct Der<'a>(pub(super) &'a [u8]);

/// The fields of a certificate that are needed here.
pub(super) struct Certificate<'a> {
    is_v3: bool,
    /// The first and the last second of its validity, since 1970.
    pub(super) validity: (i64, i64),
    /// The content of `subjectPublicKey`.
    pub(super) key: &'a [u8],
    /// The identifier and the content of each extension.
    extensions: Vec<(&'a [u8], &'a [u8])>,
}

// === impl Der ===

impl<'a> Der<'a> {
    /// The tag and the content of the next value.
    fn value(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            length = bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    /// The content of the next value, which must have this tag.
    fn of(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.value().filter(|value| value.0 == tag).map(|value| value.1)
    }

    /// The content of the next value if it has this tag; otherwise nothing is read.
    fn maybe(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) { self.of(tag) } else { None }
    }

    pub(super) fn sequence(&mut self) -> Option<Der<'a>> {
        self.of(SEQUENCE).map(Der)
    }

    pub(super) fn octets(&mut self) -> Option<&'a [u8]> {
        self.of(OCTET_STRING)
    }

    /// A positive integer, without leading zeros.
    pub(super) fn integer(&mut self) -> Option<&'a [u8]> {
        let bytes = self.of(INTEGER)?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        (bytes.first()? & 0x80 == 0).then(|| &bytes[zeros..])
    }

    /// The content of `subjectPublicKey`, in what follows a `SubjectPublicKeyInfo`'s start.
    pub(super) fn key(mut self) -> Option<&'a [u8]> {
        self.sequence()?;
        self.bits()
    }

    fn bits(&mut self) -> Option<&'a [u8]> {
        self.of(BIT_STRING)?.split_first().map(|(_unused, bits)| bits)
    }

    /// In seconds since 1970. A two-digit year means 1950 to 2049.
    fn time(&mut self) -> Option<i64> {
        let (tag, content) = self.value()?;
        let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
        let century = match tag {
            UTC_TIME if text.get(..2)? < "50" => "20",
            UTC_TIME => "19",
            GENERALIZED_TIME => "",
            _ => return None,
        };
        let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", format!("{century}{text}")).ok()?;
        Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
    }
}

// === impl Certificate ===

impl<'a> Certificate<'a> {
    /// `None` if the bytes are no certificate.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let mut fields = Der(der).sequence()?.sequence()?;
        let is_v3 = fields.maybe(VERSION).is_some_and(|version| version == [INTEGER, 1, 2]);
        // The serial number, the algorithm and the issuer.
        for _ in 0..3 {
            fields.value()?;
        }
        let mut validity = fields.sequence()?;
        let validity = (validity.time()?, validity.time()?);
        fields.sequence()?;
        let key = fields.sequence()?.key()?;
        let mut extensions = Vec::new();
        while !fields.0.is_empty() {
            let (EXTENSIONS, content) = fields.value()? else { continue };
            let mut each = Der(content).sequence()?;
            while !each.0.is_empty() {
                let mut extension = each.sequence()?;
                let identifier = extension.of(OBJECT_IDENTIFIER)?;
                extension.maybe(BOOLEAN);
                extensions.push((identifier, extension.octets()?));
            }
        }
        Some(Self { is_v3, validity, key, extensions })
    }

    /// Whether it may issue others, by the rules of Go's `crypto/x509` for roots: version 1 says nothing about that, and
    /// version 3 must say so.
    pub(super) fn may_issue(&self) -> bool {
        let constraints = self.extension(BASIC_CONSTRAINTS).and_then(|constraints| Der(constraints).sequence());
        let is_ca = constraints.and_then(|mut fields| fields.maybe(BOOLEAN)).is_some_and(|ca| ca != [0]);
        // The sixth bit: keyCertSign.
        let signs = self.extension(KEY_USAGE).and_then(|usage| Der(usage).bits());
        !self.is_v3 || is_ca && signs.is_none_or(|usage| usage.first().is_some_and(|bits| bits & 0x04 != 0))
    }

    /// Whether a server may use it: its extended key usages include that, or it has none.
    pub(super) fn may_serve(&self) -> bool {
        let Some(usages) = self.extension(EXTENDED_KEY_USAGE) else { return true };
        let Some(mut usages) = Der(usages).sequence() else { return false };
        while let Some(usage) = usages.of(OBJECT_IDENTIFIER) {
            if FOR_SERVERS.contains(&usage) {
                return true;
            }
        }
        false
    }

    fn extension(&self, identifier: &[u8]) -> Option<&'a [u8]> {
        self.extensions.iter().find(|extension| extension.0 == identifier).map(|extension| extension.1)
    }
}
