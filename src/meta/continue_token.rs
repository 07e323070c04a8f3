//! Continue tokens in the apiserver's own form, so that a page begun here may be ended there and the other way round.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::go_json::{self, Document, Value};
use super::strconv;

const VERSION: &str = "meta.k8s.io/v1";

/// Where a page ended. Opaque to clients; meaningful only for the collection it was issued for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the pages; negative for "the most recent state", never zero.
    pub rv: i64,
    /// The last key returned, relative to the request's collection, with a leading slash: `/namespace/name` for all
    /// namespaces, `/name` for one namespace or a cluster-scoped type. The next page starts after it. Tokens of etcd are
    /// written without the slash, and decoded with it.
    pub start: String,
}

// === impl ContinueToken ===

impl ContinueToken {
    /// As the apiserver writes it: base64 of compact JSON, whose start is the key followed by NUL.
    pub fn encode(&self) -> String {
        let start = strconv::json_quote(&format!("{}\0", self.start));
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{VERSION}","rv":{},"start":{start}}}"#, self.rv))
    }

    /// Reads a token of the apiserver's cache, or of its store (no leading slash).
    ///
    /// # Errors
    /// The apiserver's text for a token that is none, without the `invalid continue token: ` it is answered with.
    pub fn decode(token: &str) -> Result<Self, String> {
        Self::decode_start(token).map(|(token, _)| token)
    }

    /// As [`Self::decode`], and whether the page starts after the key. It does in every token that was ever issued;
    /// in a forged one it may start at the key.
    pub(super) fn decode_start(token: &str) -> Result<(Self, bool), String> {
        let invalid = |error: String| format!("continue key is not valid: {error}");
        let json = decode_base64(token.as_bytes()).map_err(invalid)?;
        let Fields { version, rv, start } = Fields::parse(&json).map_err(invalid)?;
        if version != VERSION {
            return Err(invalid(format!("server does not recognize this encoded version {version}")));
        }
        if rv == 0 {
            return Err(invalid(format!("incorrect encoded start resourceVersion (version {VERSION})")));
        }
        if start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {VERSION})")));
        }
        let rooted = if start.starts_with('/') { start.clone() } else { format!("/{start}") };
        if !is_clean(&rooted) {
            return Err(invalid(start));
        }
        Ok(match rooted.strip_suffix('\0') {
            Some(key) => (Self { rv, start: key.into() }, true),
            None => (Self { rv, start: rooted }, false),
        })
    }
}

#[derive(Default)]
struct Fields {
    version: String,
    rv: i64,
    start: String,
}

// === impl Fields ===

impl Fields {
    /// Fills the fields as Go's reflection does: names in any case, the last one wins, null changes nothing, and the
    /// first value of a wrong type is what is reported.
    fn parse(json: &[u8]) -> Result<Self, String> {
        let members = match go_json::parse(json)? {
            Document::Members(members) => members,
            Document::Other(Value::Null) => return Ok(Self::default()),
            Document::Other(other) => {
                let kind = other.describe();
                return Err(format!("json: cannot unmarshal {kind} into Go value of type storage.continueToken"));
            }
        };
        let mut fields = Self::default();
        let mut error = None;
        for (name, value) in members {
            // Go folds the long s too.
            let name = name.replace('\u{17f}', "s").to_ascii_lowercase();
            let outcome = match (name.as_str(), value) {
                (_, Value::Null) => Ok(()),
                ("v", Value::String(text)) => {
                    fields.version = text;
                    Ok(())
                }
                ("start", Value::String(text)) => {
                    fields.start = text;
                    Ok(())
                }
                ("rv", Value::Number(number)) => match strconv::parse_int(number.as_bytes()) {
                    Ok(rv) => {
                        fields.rv = rv;
                        Ok(())
                    }
                    Err(_) => Err((format!("number {number}"), "int64")),
                },
                ("rv", value) => Err((value.describe().into(), "int64")),
                ("v" | "start", value) => Err((value.describe().into(), "string")),
                _ => Ok(()),
            };
            if let Err((value, wanted)) = outcome {
                error.get_or_insert_with(|| {
                    format!("json: cannot unmarshal {value} into Go struct field continueToken.{name} of type {wanted}")
                });
            }
        }
        error.map_or(Ok(fields), Err)
    }
}

/// Unpadded URL-safe base64 as Go decodes it: line breaks are skipped, surplus bits of the last character are ignored.
///
/// # Errors
/// Go's text, which names the offset of the character at fault.
fn decode_base64(text: &[u8]) -> Result<Vec<u8>, String> {
    let illegal = |offset: usize| format!("illegal base64 data at input byte {offset}");
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut have) = (0u32, 0);
    for (offset, byte) in text.iter().enumerate() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            b'\r' | b'\n' => continue,
            _ => return Err(illegal(offset)),
        };
        bits = bits << 6 | u32::from(value);
        have += 1;
        if have == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, have) = (0, 0);
        }
    }
    match have {
        // A lone character at the end is at fault; Go counts back from the end of the text.
        1 => return Err(illegal(text.len() - 1)),
        2 => out.extend_from_slice(&(bits << 12).to_be_bytes()[1..2]),
        3 => out.extend_from_slice(&(bits << 6).to_be_bytes()[1..3]),
        _ => {}
    }
    Ok(out)
}

/// Whether Go's `path.Clean` would leave this rooted path as it is.
fn is_clean(path: &str) -> bool {
    path == "/" || path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    #[test]
    fn what_is_no_token_is_named_as_the_apiserver_names_it() {
        for (text, want) in [
            ("!!!".into(), "illegal base64 data at input byte 0"),
            ("YWJj!".into(), "illegal base64 data at input byte 4"),
            ("YWJjZ".into(), "illegal base64 data at input byte 4"),
            ("YWJjZA==".into(), "illegal base64 data at input byte 6"),
            ("YW+j".into(), "illegal base64 data at input byte 2"),
            ("x".into(), "illegal base64 data at input byte 0"),
            ("\n".into(), "unexpected end of JSON input"),
            ("abc".into(), "invalid character 'i' looking for beginning of value"),
            ("bm90anNvbg".into(), "invalid character 'o' in literal null (expecting 'u')"),
            ("e30".into(), "server does not recognize this encoded version "),
            (token("null"), "server does not recognize this encoded version "),
            (token("[]"), "json: cannot unmarshal array into Go value of type storage.continueToken"),
            (token(r#"{"v":"v2"}"#), "server does not recognize this encoded version v2"),
            (
                token(r#"{"v":"meta.k8s.io/v1","start":"a"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                token(r#"{"v":"meta.k8s.io/v1","rv":"1"}"#),
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                token(r#"{"v":1,"RV":1.5}"#),
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (
                token(r#"{"RV":1.5}"#),
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (token(r#"{"v":"meta.k8s.io/v1","rv":1}"#), "encoded start key empty (version meta.k8s.io/v1)"),
            (token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#), "../x"),
            (token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a//b"}"#), "/a//b"),
            (token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/"}"#), "a/"),
        ] {
            assert_eq!(ContinueToken::decode(&text), Err(format!("continue key is not valid: {want}")), "{text}");
        }
    }

    #[test]
    fn both_slash_forms_and_gos_lenience_are_read() {
        for json in [
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a/b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a/b\u0000"}"#,
            r#"{"V":"x","rv":7,"v":"meta.k8s.io/v1","START":"a/b\u0000","rv":null,"more":[{}]}"#,
        ] {
            let want = ContinueToken { rv: 7, start: "/a/b".into() };
            assert_eq!(ContinueToken::decode_start(&token(json)), Ok((want, true)), "{json}");
        }
        let at = token(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a"}"#);
        assert_eq!(ContinueToken::decode_start(&at), Ok((ContinueToken { rv: 7, start: "/a".into() }, false)));
    }

    proptest! {
        #[test]
        fn base64_is_read_as_the_crate_writes_it(bytes: Vec<u8>) {
            prop_assert_eq!(decode_base64(URL_SAFE_NO_PAD.encode(&bytes).as_bytes()), Ok(bytes));
        }

        #[test]
        fn decodes_what_it_encodes(rv in 1i64.., namespace in "[a-z<&é]{1,9}", name in "[a-z.:\"\\\\]{0,8}x") {
            let token = ContinueToken { rv, start: format!("/{namespace}/{name}") };
            prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }
    }
}
