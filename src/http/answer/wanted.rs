//! The form in which a client wants its answer, and the form of an error.

use http::Uri;
use http::header::{ACCEPT, HeaderMap, USER_AGENT};

use super::handshake::one;
use crate::codec::Format;
use crate::codec::negotiate::{self, ReadKind, StatusForm};
use crate::meta::{Encoding, Query, is_indented_for};

/// How a read has to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedFormat {
    pub format: Format,
    /// JSON with line breaks. The apiserver never indents a watch.
    pub indent: bool,
    pub status: StatusForm,
}

// === impl WantedFormat ===

impl WantedFormat {
    /// `None` for forms that only the apiserver produces.
    pub fn of(headers: &HeaderMap, uri: &Uri, kind: ReadKind) -> Option<Self> {
        let (format, pretty_param) = negotiate::accept(accept(headers)?, kind)?;
        let indent = pretty_param || is_pretty(headers, uri);
        Some(Self { format, indent, status: status(headers, uri)? })
    }

    /// The first form that the client accepts and that contains the objects themselves (no table), regardless of its
    /// preference.
    pub fn plain(headers: &HeaderMap, uri: &Uri, kind: ReadKind) -> Option<Self> {
        let accept = headers.get(ACCEPT).map_or(Ok(""), |line| line.to_str()).ok()?;
        let mut forms = accept.split(',').filter_map(|clause| negotiate::accept(clause.trim(), kind));
        let (format, pretty_param) = forms.find(|(format, _)| format.encoding != Encoding::Table)?;
        let indent = pretty_param || is_pretty(headers, uri);
        Some(Self { format, indent, status: status(headers, uri).unwrap_or_default() })
    }
}

/// The form in which the client of a request gets a refusal; `None` if only the apiserver can produce it.
pub(in crate::http) fn status(headers: &HeaderMap, uri: &Uri) -> Option<StatusForm> {
    let mut form = negotiate::status(accept(headers)?)?;
    form.indent |= is_pretty(headers, uri);
    Some(form)
}

/// The `Accept` header: "" if there is none, `None` if there is more than one line or the value is not text.
fn accept(headers: &HeaderMap) -> Option<&str> {
    if headers.contains_key(ACCEPT) { one(headers, &ACCEPT) } else { Some("") }
}

/// The apiserver indents if the `pretty` parameter is true. Without the parameter it indents for clients that people
/// read directly.
fn is_pretty(headers: &HeaderMap, uri: &Uri) -> bool {
    // The apiserver searches for the word before it decodes the query.
    let query = Query::parse(uri.query().filter(|query| query.contains("pretty")).unwrap_or_default());
    match query.text("pretty").as_deref() {
        None | Some("") => headers.get(USER_AGENT).is_some_and(|agent| is_indented_for(agent.as_bytes())),
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn who_is_indented_for() {
        for (query, agent, expected) in [
            ("", "curl/8.1", true),
            ("", "Wget", true),
            ("", "Mozilla/5.0 (X11)", true),
            ("", "Mozilla/4.0", false),
            ("", "my-curl", false),
            ("", "", false),
            ("pretty=1", "", true),
            ("pretty=T", "", true),
            ("pretty=yes", "curl", false),
            ("pretty=0", "curl", false),
            ("pretty=false&pretty=1", "curl", false),
            ("pretty", "curl", true),
            ("pretty=", "curl", true),
            ("pretty=&pretty=0", "curl", true),
            ("p%72etty=0", "curl", true),
            ("p%72etty=1", "", false),
            ("p%72etty=1&x=pretty", "", true),
        ] {
            let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
            let uri = format!("/api/v1/pods?{query}").parse().unwrap();
            assert_eq!(is_pretty(&headers, &uri), expected, "{query} {agent}");
        }
    }

    #[test]
    fn a_status_is_indented_on_its_own_terms() {
        let wanted = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            WantedFormat::of(&headers, &"/api/v1/pods".parse().unwrap(), ReadKind::List)
                .map(|wanted| (wanted.format.encoding, wanted.indent, wanted.status.encoding, wanted.status.indent))
        };
        use Encoding::{Json, Protobuf};
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(wanted(list), Some((Json, false, Json, true)));
        assert_eq!(wanted("application/json;pretty=1"), Some((Json, true, Json, true)));
        assert_eq!(
            wanted("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;pretty=1,application/json"),
            Some((Json, true, Json, false))
        );
        assert_eq!(
            wanted("application/vnd.kubernetes.protobuf,application/json;pretty=1"),
            Some((Protobuf, true, Protobuf, false))
        );
        assert_eq!(
            wanted("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/yaml"),
            None,
            "a refusal would be in YAML"
        );
    }
}
