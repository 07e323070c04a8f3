//! Decides which requests go to the read path, and parses them.

use std::time::Duration;

use http::header::{HeaderMap, UPGRADE};
use http::request::Parts;
use http::{Method, Uri};

use super::gzip;
use super::handshake::Handshake;
use super::wanted::WantedFormat;
use crate::auth::{Mode, impersonates};
use crate::codec::Shape;
use crate::codec::negotiate::ReadKind;
use crate::codec::table::Include;
use crate::http::record::duration;
use crate::meta::{ListOptions, Query, RequestInfo, Verb, fields_fit, labels_fit};
use crate::passthrough::has_own_credentials;
use crate::reads::{ForwardReason, ReadRequest};

/// A read that allows less time is left to the apiserver: whether it is answered in time is a race.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);

/// How the read path sees a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    Read(Box<ReadRequest>, WantedFormat),
    /// A read of objects that only the apiserver can answer correctly.
    Forward(ForwardReason),
    /// Not a plain read of objects.
    Other,
}

/// Parses a request for the read path.
pub fn parse(request: &Parts, info: &RequestInfo, mode: Mode) -> Parsed {
    parse_with(request, info, mode, WantedFormat::of)
}

/// Like [`parse`], but in the first form that the client accepts and that caches of objects have, regardless of its
/// preference.
pub fn parse_plain(request: &Parts, info: &RequestInfo, mode: Mode) -> Parsed {
    parse_with(request, info, mode, WantedFormat::plain)
}

fn parse_with(
    request: &Parts,
    info: &RequestInfo,
    mode: Mode,
    wanted: impl FnOnce(&HeaderMap, &Uri, ReadKind) -> Option<WantedFormat>,
) -> Parsed {
    let headers = &request.headers;
    if request.method != Method::GET || !info.is_plain_read() {
        return Parsed::Other;
    }
    // A watch over a WebSocket must be upgraded: its client would wait for the end of a plain answer.
    let upgrades = headers.contains_key(UPGRADE);
    let to_no_watch = upgrades && (info.verb != Verb::Watch || Handshake::of(request).is_none());
    // On trusted listeners nothing checks the right to impersonate, so the request is forwarded.
    if to_no_watch || mode == Mode::Trust && impersonates(headers) {
        return Parsed::Forward(ForwardReason::Unsupported);
    }
    let query_text = request.uri.query().unwrap_or_default();
    let query = Query::parse(query_text);
    let kind = match info.verb {
        Verb::Get => ReadKind::Get,
        Verb::List => ReadKind::List,
        Verb::Watch => ReadKind::Watch,
        _ => return Parsed::Other,
    };
    let Some(wanted) = wanted(headers, &request.uri, kind) else {
        return Parsed::Forward(ForwardReason::Encoding);
    };
    let mut format = wanted.format;
    if let Shape::Table(shape) = &mut format.shape {
        match Include::parse(&query.text("includeObject").unwrap_or_default()) {
            Some(include) => shape.include = include,
            None => return Parsed::Forward(ForwardReason::Invalid),
        }
    }
    let options = match kind {
        ReadKind::Get if query.bytes("export").is_some() => return Parsed::Forward(ForwardReason::Unsupported),
        ReadKind::Get => ListOptions::decode_get(query_text),
        // Options that do not decode are refused by the apiserver with its own message.
        ReadKind::List | ReadKind::Watch => match ListOptions::decode(query_text) {
            Ok(options) => options,
            Err(_) => return Parsed::Forward(ForwardReason::Invalid),
        },
    };
    if !labels_fit(&options.label_selector) || !fields_fit(&options.field_selector) {
        return Parsed::Forward(ForwardReason::Unsupported);
    }
    // The parameter of the request deadline. It is ignored for requests without a deadline, and zero or less is none.
    let timeout = match query.text("timeout").filter(|_| kind != ReadKind::Watch).map(|text| duration::parse(&text)) {
        Some(None) => return Parsed::Forward(ForwardReason::Invalid),
        Some(Some(nanos @ 1..)) => Some(Duration::from_nanos(nanos.unsigned_abs())),
        Some(Some(_)) | None => None,
    };
    // The apiserver may be late for it, and says so.
    if timeout.is_some_and(|timeout| timeout < SHORTEST_TIMEOUT) {
        return Parsed::Forward(ForwardReason::Unsupported);
    }
    let request = ReadRequest {
        gvr: info.gvr(),
        namespace: info.scope().map(Into::into),
        name: (!info.name.is_empty()).then(|| info.name.as_str().into()),
        options,
        format,
        legacy_watch: info.legacy_watch,
        own_credentials: mode == Mode::Trust && has_own_credentials(headers),
        gzip: gzip::is_accepted(headers),
        local: false,
        stale: false,
        timeout,
    };
    Parsed::Read(Box::new(request), wanted)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::codec::Format;
    use crate::codec::table::TableShape;
    use crate::meta::Encoding;

    fn parsed(target: &str, headers: &[(&str, &str)]) -> Parsed {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let head = request.body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse("GET", head.uri.path(), head.uri.query().unwrap_or_default());
        parse(&head, &info, Mode::Trust)
    }

    fn read(target: &str, headers: &[(&str, &str)]) -> Option<ReadRequest> {
        match parsed(target, headers) {
            Parsed::Read(request, _) => Some(*request),
            Parsed::Forward(_) | Parsed::Other => None,
        }
    }

    #[test]
    fn what_is_asked() {
        let request = read("/api/v1/namespaces/a/pods/p?resourceVersion=0&limit=x", &[]).unwrap();
        assert_eq!((request.namespace.as_deref(), request.name.as_deref()), (Some("a"), Some("p")));
        assert_eq!(request.options.resource_version, "0");
        let request = read("/api/v1/namespaces/a", &[]).unwrap();
        assert_eq!((request.namespace.as_deref(), request.name.as_deref()), (None, Some("a")));
        let request = read("/apis/apps/v1/watch/namespaces/a/deployments/d", &[]).unwrap();
        assert!(request.legacy_watch && request.name.as_deref() == Some("d"));
        let request = read("/api/v1/pods?&watch=True&timeoutSeconds=5&timeout=6x", &[]).unwrap();
        assert_eq!((request.options.watch, request.options.timeout_seconds), (true, Some(5)));
    }

    #[test]
    fn how_long_it_may_take() {
        for (query, timeout) in [
            ("timeout=100ms", Some(Duration::from_millis(100))),
            ("timeout=2562047h", Some(Duration::from_secs(2_562_047 * 3600))),
            ("timeout=0", None),
            ("timeout=-5s", None),
            ("", None),
            ("watch=1&timeout=1ns", None),
        ] {
            assert_eq!(read(&format!("/api/v1/pods?{query}"), &[]).unwrap().timeout, timeout, "{query}");
        }
    }

    #[test]
    fn what_is_left_to_the_apiserver() {
        for (target, reason) in [
            ("/api/v1/pods?limit=x", ForwardReason::Invalid),
            ("/api/v1/pods?timeout=abc", ForwardReason::Invalid),
            ("/api/v1/pods?timeout=2562048h", ForwardReason::Invalid),
            ("/api/v1/pods?timeout=1ns", ForwardReason::Unsupported),
            ("/api/v1/pods?timeout=99.9ms", ForwardReason::Unsupported),
            ("/api/v1/namespaces/a/pods/p?export=true", ForwardReason::Unsupported),
        ] {
            assert_eq!(parsed(target, &[]), Parsed::Forward(reason), "{target}");
        }
        for header in [("accept", "application/yaml"), ("accept", "application/cbor")] {
            assert_eq!(parsed("/api/v1/pods", &[header]), Parsed::Forward(ForwardReason::Encoding), "{header:?}");
        }
        let twice = [("accept", "application/json"), ("accept", "*/*")];
        assert_eq!(parsed("/api/v1/pods", &twice), Parsed::Forward(ForwardReason::Encoding));
        for target in ["/api/v1/namespaces/a/pods/p/log", "/api/v1//pods", "/version"] {
            assert_eq!(parsed(target, &[]), Parsed::Other, "{target}");
        }
        for header in [("upgrade", "websocket"), ("impersonate-user", "x")] {
            assert_eq!(parsed("/api/v1/pods", &[header]), Parsed::Forward(ForwardReason::Unsupported), "{header:?}");
        }
        let impersonating =
            Request::get("/api/v1/pods").header("impersonate-user", "x").body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse("GET", "/api/v1/pods", "");
        assert!(matches!(parse(&impersonating, &info, Mode::Delegated), Parsed::Read(..)));
        let head = Request::head("/api/v1/pods").body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse("HEAD", "/api/v1/pods", "");
        assert_eq!(parse(&head, &info, Mode::Trust), Parsed::Other);
    }

    #[test]
    fn selectors_up_to_a_size_are_served() {
        let set = ("labelSelector=a+in+(", "b", ")");
        for (start, part, end) in [("labelSelector=", "a", ""), ("fieldSelector=", "a%3Db", ""), set] {
            let target = |count| format!("/api/v1/pods?{start}{}{end}", vec![part; count].join(","));
            assert!(read(&target(1000), &[]).is_some(), "{start}");
            assert_eq!(parsed(&target(1001), &[]), Parsed::Forward(ForwardReason::Unsupported), "{start}");
        }
    }

    #[test]
    fn what_is_not() {
        for (target, header) in [
            ("/api/v1/pods", ("accept", "*/*")),
            ("/api/v1/pods", ("accept", "application/vnd.kubernetes.protobuf,application/json")),
            ("/api/v1/pods?timeout=6m16s", ("x", "y")),
            ("/api/v1/pods?pretty=1", ("user-agent", "curl/8")),
        ] {
            assert!(read(target, &[header]).is_some(), "{target} {header:?}");
        }
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(
            read("/api/v1/pods", &[("accept", metadata)]).unwrap().format,
            Format::json(Shape::PartialObjectMetadata)
        );
        let tables = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
        for (target, include) in
            [("/api/v1/pods", Include::Metadata), ("/api/v1/pods?includeObject=None", Include::None)]
        {
            let format = read(target, &[tables]).unwrap().format;
            let shape = Shape::Table(TableShape { include, ..TableShape::default() });
            assert_eq!(format, Format { encoding: Encoding::Table, shape, json_fallback: None });
        }
        let bad = parsed("/api/v1/pods?includeObject=bad", &[tables]);
        assert_eq!(bad, Parsed::Forward(ForwardReason::Invalid));
        let protobuf = read("/api/v1/pods", &[("accept", "application/vnd.kubernetes.protobuf")]).unwrap().format;
        assert_eq!(protobuf, Format { encoding: Encoding::Protobuf, shape: Shape::Full, json_fallback: None });
    }
}
