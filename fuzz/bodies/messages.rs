//! The messages of the Kubernetes API as far as informerd reads them, for another implementation of protobuf.
//!
//! Fields that may stand in a message once are repeated here, so that those which occur twice are seen; of several strings
//! or numbers the last one counts. Messages within messages are bytes here, because prost would merge them. So are strings: Go
//! takes any bytes for them, and prost does not.

use informerd::codec::CodecError;
use prost::Message;

/// What may occur several times.
type Many = Vec<Vec<u8>>;

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $of:ty = ($($prost:tt)*),)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub struct $name {
            $(#[prost($($prost)*)]
            pub $field: $of,)*
        })*
    };
}

/// Messages of bytes that may occur several times.
macro_rules! repeated {
    ($($(#[$doc:meta])* $name:ident { $($field:ident = $tag:tt),* })*) => {
        messages! { $($(#[$doc])* $name { $($field: Many = (bytes = "vec", repeated, tag = $tag),)* })* }
    };
}

repeated! {
    Unknown { type_meta = "1", raw = "2", content_encoding = "3", content_type = "4" }
    TypeMeta { api_version = "1", kind = "2" }
    WatchEvent { kind = "1", object = "2" }
    RawExtension { raw = "1" }
    List { metadata = "1", items = "2" }
    Pod { metadata = "1" }
    /// What is not looked at before somebody selects by it.
    PodFields { spec = "2", status = "3" }
    PodIp { ip = "1" }
    /// What of ObjectMeta is looked at where somebody asks for it.
    Parts { annotations = "12", owner_references = "13", managed_fields = "17" }
    Owner { uid = "4" }
    StatusMetadata { continue_token = "3" }
}

messages! {
    ListMeta {
        resource_version: Many = (bytes = "vec", repeated, tag = "2"),
        continue_token: Many = (bytes = "vec", repeated, tag = "3"),
        remaining_item_count: Option<i64> = (int64, optional, tag = "4"),
    }
    PodSpec {
        restart_policy: Many = (bytes = "vec", repeated, tag = "3"),
        service_account_name: Many = (bytes = "vec", repeated, tag = "8"),
        service_account: Many = (bytes = "vec", repeated, tag = "9"),
        node_name: Many = (bytes = "vec", repeated, tag = "10"),
        host_network: Option<bool> = (bool, optional, tag = "11"),
        scheduler_name: Many = (bytes = "vec", repeated, tag = "19"),
    }
    PodStatus {
        phase: Many = (bytes = "vec", repeated, tag = "1"),
        pod_ip: Many = (bytes = "vec", repeated, tag = "6"),
        nominated_node_name: Many = (bytes = "vec", repeated, tag = "11"),
        pod_ips: Vec<PodIp> = (message, repeated, tag = "12"),
    }
    ObjectMeta {
        name: Vec<u8> = (bytes = "vec", tag = "1"),
        namespace: Vec<u8> = (bytes = "vec", tag = "3"),
        uid: Vec<u8> = (bytes = "vec", tag = "5"),
        resource_version: Many = (bytes = "vec", repeated, tag = "6"),
        labels: Vec<Entry> = (message, repeated, tag = "11"),
    }
    /// What of ObjectMeta counts in a bookmark.
    BookmarkMeta {
        resource_version: Many = (bytes = "vec", repeated, tag = "6"),
        annotations: Vec<Entry> = (message, repeated, tag = "12"),
    }
    Entry {
        key: Vec<u8> = (bytes = "vec", tag = "1"),
        value: Vec<u8> = (bytes = "vec", tag = "2"),
    }
    Status {
        metadata: Many = (bytes = "vec", repeated, tag = "1"),
        status: Vec<u8> = (bytes = "vec", tag = "2"),
        message: Vec<u8> = (bytes = "vec", tag = "3"),
        reason: Vec<u8> = (bytes = "vec", tag = "4"),
        details: Many = (bytes = "vec", repeated, tag = "5"),
        code: u64 = (uint64, tag = "6"),
    }
    StatusDetails {
        name: Vec<u8> = (bytes = "vec", tag = "1"),
        group: Vec<u8> = (bytes = "vec", tag = "2"),
        kind: Vec<u8> = (bytes = "vec", tag = "3"),
        causes: Vec<StatusCause> = (message, repeated, tag = "4"),
        retry_after_seconds: u64 = (uint64, tag = "5"),
        uid: Vec<u8> = (bytes = "vec", tag = "6"),
    }
    StatusCause {
        reason: Vec<u8> = (bytes = "vec", tag = "1"),
        message: Vec<u8> = (bytes = "vec", tag = "2"),
        field: Vec<u8> = (bytes = "vec", tag = "3"),
    }
}

/// The apiVersion and the kind.
pub type ApiType = [String; 2];

const MAGIC: &[u8] = b"k8s\0";

/// Why an object, a list or a frame means nothing to the other reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// prost cannot decode it, or a message in it.
    Malformed,
    /// It is not in its envelope, or that has another content.
    Envelope,
    /// There is no metadata, or more than one.
    Metadata,
    /// No key that tells objects apart.
    Key,
    /// There is no decimal resourceVersion, or more than one.
    Revision,
    /// A frame without a type or an object, or with several, or of an unknown type.
    Frame,
    /// No Status.
    Status,
    /// What selectors look at is malformed, or of another type.
    Fields,
    /// A string of the server's own that is not UTF-8.
    Text,
}

impl From<prost::DecodeError> for Why {
    fn from(_: prost::DecodeError) -> Self {
        Self::Malformed
    }
}

/// The reasons for which informerd may refuse what the other reader takes. What that refuses, too, has an error of this format: the
/// first one that is found.
pub fn assert_listed(error: &CodecError, why: Option<Why>) {
    use CodecError::{Duplicate, Invalid, Missing, NotAStatus, NotUtf8, Truncated, UnknownEventType};
    let is_listed = match (error, why) {
        // Objects are put together of slices: the metadata stands first, and its length and that of the resourceVersion are
        // of the usual form, because they are written again.
        (Missing("metadata") | Invalid("metadata" | "metadata.resourceVersion"), None) => true,
        // The apiserver writes no groups. In a list, what has no length could not be passed over before it is whole.
        (Invalid("wire type" | "length of a list"), None) => true,
        (_, None) => false,
        (
            Truncated | Invalid(_) | Missing(_) | Duplicate(_) | NotUtf8 | NotAStatus(_) | UnknownEventType(_),
            Some(_),
        ) => true,
        (_, Some(_)) => false,
    };
    assert!(is_listed, "{error:?} is no reason to refuse what another reader says {why:?} of");
}

/// The type and the message of an object in its envelope.
pub fn unwrapped(bytes: &[u8]) -> Result<(ApiType, Vec<u8>), Why> {
    let unknown = Unknown::decode(bytes.strip_prefix(MAGIC).ok_or(Why::Envelope)?)?;
    let types = unknown.type_meta.iter().map(|bytes| TypeMeta::decode(&**bytes)).collect::<Result<Vec<_>, _>>()?;
    let is_plain = unknown.content_encoding.iter().chain(&unknown.content_type).all(Vec::is_empty);
    if unknown.raw.len() > 1 || !is_plain {
        return Err(Why::Envelope);
    }
    // Of types that occur twice the last one counts, if all of them can be read.
    let texts = |of: &TypeMeta| Ok::<_, Why>([last_text(&of.api_version)?, last_text(&of.kind)?]);
    let all = types.iter().map(texts).collect::<Result<Vec<_>, _>>()?;
    Ok((all.last().cloned().unwrap_or_default(), unknown.raw.into_iter().next().unwrap_or_default()))
}

/// The last string, if all are UTF-8.
pub fn last_text(all: &[Vec<u8>]) -> Result<String, Why> {
    let all = all.iter().map(|text| std::str::from_utf8(text).map_err(|_| Why::Text)).collect::<Result<Vec<_>, _>>()?;
    Ok(all.last().copied().unwrap_or_default().to_owned())
}

/// The items of a list in its envelope, and what it says of itself.
pub fn unwrapped_list(bytes: &[u8]) -> Result<(ApiType, ListMeta, Vec<Vec<u8>>), Why> {
    let unknown = Unknown::decode(bytes.strip_prefix(MAGIC).ok_or(Why::Envelope)?)?;
    if unknown.type_meta.is_empty() || unknown.raw.len() != 1 {
        return Err(Why::Envelope);
    }
    let (type_meta, message) = unwrapped(bytes)?;
    let list = List::decode(&*message)?;
    let [metadata] = &*list.metadata else { return Err(Why::Metadata) };
    let metadata = ListMeta::decode(&**metadata)?;
    // Any of them must be a number, and there must be one.
    let revisions = metadata.resource_version.iter().map(|text| decimal(text)).collect::<Option<Vec<_>>>();
    revisions.ok_or(Why::Revision)?.last().ok_or(Why::Revision)?;
    last_text(&metadata.continue_token)?;
    Ok((type_meta, metadata, list.items))
}

pub fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|_| text.iter().all(u8::is_ascii_digit))
}

/// A string as Go writes it in JSON: each byte of no character is U+FFFD.
pub fn text(mut bytes: &[u8]) -> String {
    let mut out = String::new();
    while !bytes.is_empty() {
        let mut beginnings = (1..=bytes.len().min(4)).map(|len| (len, std::str::from_utf8(&bytes[..len])));
        let (len, one) = beginnings.find(|(_, one)| one.is_ok()).unwrap_or((1, Ok("\u{fffd}")));
        out.push_str(one.unwrap_or_default());
        bytes = &bytes[len..];
    }
    out
}

/// Whether a name or a namespace with this text tells objects apart.
pub fn is_of_key(text: &str) -> bool {
    !text.contains(['/', '\u{fffd}'])
}
