//! Continue tokens in the apiserver's format. A client can get one page from informerd and the next one from the
//! apiserver, or vice versa.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::Invalid;
use super::strconv::json_quote;

const VERSION: &str = "meta.k8s.io/v1";

/// The position where a page ended. Clients must treat it as opaque. It is valid only for the collection that it was
/// issued for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the pages. A negative value means "the most recent state". It is never zero.
    pub rv: i64,
    /// The last key returned, relative to the collection of the request, with a leading slash: `/namespace/name` for
    /// all namespaces, `/name` for one namespace or a cluster-scoped type. The next page starts after it. Tokens for
    /// etcd are encoded without the slash and decoded with it.
    pub start: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    v: String,
    rv: i64,
    start: String,
}

// === impl ContinueToken ===

impl ContinueToken {
    /// Encodes the token as the apiserver does: base64 of compact JSON, where `start` is the key followed by NUL.
    pub fn encode(&self) -> String {
        let start = json_quote(&format!("{}\0", self.start));
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{VERSION}","rv":{},"start":{start}}}"#, self.rv))
    }

    /// Decodes a token that an apiserver issued, from its cache or from its store (without a leading slash).
    ///
    /// # Errors
    /// For any other token. Go's parsers accept some of these, for example names in another case. No server issues
    /// such tokens, so the apiserver itself must decide about them.
    pub fn decode(token: &str) -> Result<Self, Invalid> {
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|_| Invalid)?;
        let Fields { v, rv, start } = serde_json::from_slice(&json).map_err(|_| Invalid)?;
        let start = start.strip_suffix('\0').ok_or(Invalid)?;
        let rooted = if start.starts_with('/') { start.to_owned() } else { format!("/{start}") };
        if v != VERSION || rv == 0 || start.is_empty() || !is_clean(&rooted) {
            return Err(Invalid);
        }
        Ok(Self { rv, start: rooted })
    }
}

/// Whether Go's `path.Clean` would leave this rooted path unchanged.
fn is_clean(path: &str) -> bool {
    path == "/" || path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    /// The fuzz target `continue_tokens` compares all else with another reader.
    #[test]
    fn what_no_apiserver_writes_is_not_read() {
        for text in ["!!!", "YWJj!", "YWJjZA==", "YW+j", "x", "\n", "abc", "bm90anNvbg", "e30"] {
            assert_eq!(ContinueToken::decode(text), Err(Invalid), "{text}");
        }
        for json in [
            "null",
            "[]",
            r#"{"v":"v2","rv":1,"start":"a\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","start":"a\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":"1","start":"a\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1.5,"start":"a\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a//b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/\u0000"}"#,
            // It starts at a key instead of after a key.
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a"}"#,
            // Go accepts these.
            r#"{"V":"x","rv":7,"v":"meta.k8s.io/v1","START":"a/b\u0000"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"a/b\u0000","more":[{}]}"#,
        ] {
            assert_eq!(ContinueToken::decode(&token(json)), Err(Invalid), "{json}");
        }
    }
}
