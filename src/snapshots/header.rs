//! The beginning of a file: what it is a snapshot of, and how to read it.

use std::io::{self, Read};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::codec::Form;
use crate::codec::json::Style;
use crate::meta::Encoding;

/// The cluster that a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The uid of the namespace `kube-system`.
    pub uid: String,
    /// The digest of the certificate authorities that are trusted for the apiserver.
    pub authorities: String,
    /// The version of the apiserver: another one may write the same objects differently.
    pub version: String,
}

/// What a snapshot is of. It is used only by a cache that has the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub cluster: Cluster,
    /// `v1/pods`, `apps/v1/deployments`.
    pub resource: String,
    /// The state of the definition of a custom resource; empty for a built-in type.
    pub definition: String,
    pub namespace: String,
    pub field_selector: String,
    pub label_selector: String,
    pub encoding: String,
    /// The digest of the fields whose values are kept with the objects.
    pub fields: String,
}

/// The header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    pub(super) identity: Identity,
    /// Random, so that no two files have the same header.
    pub(super) file: String,
    /// When the file was begun, in seconds since 1970.
    pub(super) written: i64,
    pub(super) encrypted: bool,
    custom: bool,
    api_version: String,
    kind: String,
    list_kind: String,
}

/// The first bytes of every snapshot. They name the version of the format.
const MAGIC: &[u8] = b"informerd snapshot 1\n";

/// A header is smaller than this.
const LARGEST: usize = 64 << 10;

// === impl Identity ===

impl Identity {
    /// The same name for every snapshot of the same part of the same resource, whatever else has changed: a new one
    /// replaces it.
    pub(super) fn file_name(&self) -> String {
        let Self { cluster, resource, namespace, field_selector, label_selector, encoding, .. } = self;
        let place = [&cluster.uid, resource, namespace, field_selector, label_selector, encoding];
        let text = serde_json::to_vec(&place).unwrap_or_default();
        let readable: String =
            resource.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '.' }).take(80).collect();
        format!("{readable}-{}.snapshot", &hex(digest(&SHA256, &text).as_ref())[..24])
    }
}

// === impl Header ===

impl Header {
    pub(super) fn new(identity: &Identity, form: &Form, encrypted: bool, written: i64) -> Self {
        Self {
            identity: identity.clone(),
            file: hex(&rand::random::<[u8; 32]>()),
            written,
            encrypted,
            custom: form.style() == Style::Inline,
            api_version: form.api_version().to_string(),
            kind: form.kind().to_string(),
            list_kind: form.list_kind().to_string(),
        }
    }

    /// How objects of this type are encoded.
    pub(super) fn form(&self, encoding: Encoding) -> Form {
        let style = if self.custom { Style::Inline } else { Style::Stripped };
        Form::new(encoding, style, &self.api_version, &self.kind, &self.list_kind)
    }

    /// The bytes of the header. All blocks of the file are bound to them.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec(self)?;
        let len = u32::try_from(text.len()).map_err(io::Error::other)?;
        Ok([MAGIC, &len.to_le_bytes(), &text].concat())
    }

    /// Reads a header and returns its bytes, too.
    ///
    /// # Errors
    /// There is none, or it is of another version of the format.
    pub(super) fn read(input: &mut impl Read) -> io::Result<(Self, Vec<u8>)> {
        let mut bytes = vec![0; MAGIC.len() + 4];
        input.read_exact(&mut bytes)?;
        let (magic, len) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(invalid("it is no snapshot of this version of the format"));
        }
        let len = len.try_into().map_or(usize::MAX, |len| u32::from_le_bytes(len) as usize);
        if len > LARGEST {
            return Err(invalid("its header is too large"));
        }
        let mut text = vec![0; len];
        input.read_exact(&mut text)?;
        let header = serde_json::from_slice(&text)?;
        bytes.extend(text);
        Ok((header, bytes))
    }
}

pub(super) fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The digest of a text, for an [`Identity`].
pub fn fingerprint(text: &[u8]) -> String {
    hex(digest(&SHA256, text).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::testing::identity;

    #[test]
    fn a_header_has_a_bound() {
        let form = Form::new(Encoding::Json, Style::Stripped, "v1", "Pod", "PodList");
        let bytes = |selector: usize| {
            let identity = Identity { label_selector: "x".repeat(selector), ..identity() };
            Header::new(&identity, &form, false, 0).to_bytes().unwrap()
        };
        let rest = bytes(0).len() - MAGIC.len() - 4;
        for (len, is_read) in [(LARGEST, true), (LARGEST + 1, false)] {
            assert_eq!(Header::read(&mut &bytes(len - rest)[..]).is_ok(), is_read, "{len}");
        }
    }
}
