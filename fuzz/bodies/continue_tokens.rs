//! Continue tokens, against what base64 and serde_json say of the same text.
//!
//! Go's parser takes more: names in another case, members that it does not know, members twice. No apiserver writes them, and
//! what is refused here is forwarded.

use informerd::meta::ContinueToken;
use serde_json::Value;

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    one(text);
    // As JSON, so that what lies behind base64 is reached, too.
    one(&encoded(data));
}

fn one(text: &str) {
    let token = ContinueToken::decode(text);
    let expected = decoded(text).and_then(|json| expected(&json));
    assert_eq!(
        token.as_ref().ok().map(|token| (token.rv, &token.start)),
        expected.as_ref().map(|(rv, start)| (*rv, start))
    );
    let Ok(token) = token else { return };
    assert_eq!(ContinueToken::decode(&token.encode()).as_ref(), Ok(&token));
    assert!(token.start.starts_with('/') && token.rv != 0);
}

fn expected(json: &[u8]) -> Option<(i64, String)> {
    let Ok(Value::Object(members)) = serde_json::from_slice(json) else { return None };
    let (version, rv, start) =
        (members.get("v")?.as_str()?, members.get("rv")?.as_i64()?, members.get("start")?.as_str()?);
    let key = start.strip_suffix('\0').filter(|key| !key.is_empty())?;
    let key = format!("/{}", key.strip_prefix('/').unwrap_or(key));
    let is_clean = key == "/" || key[1..].split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let names_once =
        ["\"v\"", "\"rv\"", "\"start\""].iter().all(|name| String::from_utf8_lossy(json).matches(name).count() == 1);
    // With escapes in a name the same member may stand twice unseen.
    let is_as_written = members.len() == 3 && names_once;
    (version == "meta.k8s.io/v1" && rv != 0 && is_clean && is_as_written).then_some((rv, key))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub fn encoded(bytes: &[u8]) -> String {
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        (0..=three.len()).for_each(|at| out.push(char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63])));
    }
    out
}

/// `None` also where bits are set that belong to no byte.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits =
        text.bytes().map(|byte| ALPHABET.iter().position(|digit| *digit == byte)).collect::<Option<Vec<_>>>()?;
    let mut out = Vec::new();
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        out.extend_from_slice(bytes.get(..four.len().checked_sub(1).filter(|count| *count > 0)?)?);
    }
    (encoded(&out) == text).then_some(out)
}
