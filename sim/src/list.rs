//! LIST: selects the revision, the items and the page.

use std::io::Write;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{Response, StatusCode};

use super::body::{self, Body};
use super::encode::{self, Shape};
use super::fault::Effect;
use super::handler::Request;
use super::options::{self, Options};
use super::proto;
use super::registry::Kind;
use super::select::Selection;
use super::store::{Objects, PastError};
use super::stored::Stored;
use super::table;
use super::write::{bad_request, not_found};
use crate::types::{Status, StatusCause, StatusDetails};

/// The size in bytes above which the apiserver compresses a response, if the client accepts gzip.
const GZIP_FROM: usize = 128 * 1024;
/// The approximate size in bytes of the parts of a body.
const PIECE: usize = 64 * 1024;

pub(super) struct Page {
    pub items: Vec<Arc<Stored>>,
    pub rv: u64,
    pub continue_token: String,
    pub remaining: Option<usize>,
}

/// The parts of a list's body.
struct Pieces {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Stored>>,
    kind: Arc<Kind>,
    shape: Shape,
    /// The length of `kind` and `apiVersion` in the bytes of a built-in object.
    strip: usize,
    first: bool,
    tail: Option<Vec<u8>>,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

pub(super) async fn list(
    request: &Request<'_>,
    selection: &Selection,
    options: &Options,
) -> Result<Response<Body>, Box<Status>> {
    let page = page(request, selection, options).await?;
    let kind = request.kind;
    let verb = request.verb;
    let gzip = request.accepts_gzip && page.items.iter().map(|item| item.json.len()).sum::<usize>() > GZIP_FROM;
    let pieces = Pieces::new(request, page, gzip);
    if let Some(Effect::Cut(how)) = request.faults().take(verb, Some(kind), |effect| matches!(effect, Effect::Cut(_))) {
        let whole: Bytes = pieces.flatten().collect::<Vec<u8>>().into();
        return Ok(dressed(request, body::cut(&whole, how, request.connection.clone()), gzip));
    }
    let slow = request.faults().take(verb, Some(kind), |effect| matches!(effect, Effect::SlowBody(_)));
    let delay = if let Some(Effect::SlowBody(delay)) = slow { delay } else { Duration::ZERO };
    let body = body::streamed(stream::unfold(pieces, move |mut pieces| async move {
        let piece = pieces.next()?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Some((piece, pieces))
    }));
    Ok(dressed(request, body, gzip))
}

fn dressed(request: &Request<'_>, body: Body, gzip: bool) -> Response<Body> {
    let mut response = body::typed(StatusCode::OK, request.shape.media_type(false), body);
    if gzip {
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_ENCODING, http::HeaderValue::from_static("gzip"));
        headers.insert(http::header::VARY, http::HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

async fn page(request: &Request<'_>, selection: &Selection, options: &Options) -> Result<Page, Box<Status>> {
    let (view, id) = (request.view(), &request.kind.id);
    let past = |error| past_error(request, error);
    let rv = options.revision().map_err(|text| bad_request(&format!("invalid resource version: {text}")))?;
    let limit = usize::try_from(options.limit).unwrap_or(0);
    let prefix = selection.scope.namespace.as_ref().map_or(String::new(), |namespace| format!("{namespace}/"));
    if !options.continue_token.is_empty() {
        let (token_rv, start) = options::decode_token(&options.continue_token)?;
        if rv != 0 {
            return Err(bad_request("specifying resource version is not allowed when using continue"));
        }
        let after = format!("{prefix}{start}");
        let Ok(token_rv) = u64::try_from(token_rv) else {
            let (objects, rv) = view.snapshot(id, true).map_err(past)?;
            return Ok(cut(&objects, rv, selection, &prefix, Some(&after), limit));
        };
        return match view.snapshot_at(id, token_rv) {
            Ok(objects) => Ok(cut(&objects, token_rv, selection, &prefix, Some(&after), limit)),
            Err(PastError::TooOld) => Err(expired_token(&start)),
            Err(error) => Err(past(error)),
        };
    }
    let exact = options.rv_match == "Exact" || (options.rv_match.is_empty() && limit > 0);
    view.wait_for((!options.rv.is_empty()).then_some(rv)).await?;
    if rv == 0 {
        let (objects, rv) = view.snapshot(id, options.rv.is_empty()).map_err(past)?;
        let limit = if options.rv.is_empty() || request.kind.uncached { limit } else { 0 };
        return Ok(cut(&objects, rv, selection, &prefix, None, limit));
    }
    if exact {
        let objects = view.snapshot_at(id, rv).map_err(past)?;
        return Ok(cut(&objects, rv, selection, &prefix, None, limit));
    }
    let (objects, rv) = view.snapshot(id, true).map_err(past)?;
    Ok(cut(&objects, rv, selection, &prefix, None, limit))
}

/// Takes a page from a snapshot. Whether there is a next page follows the apiserver's rules.
fn cut(objects: &Objects, rv: u64, selection: &Selection, prefix: &str, after: Option<&str>, limit: usize) -> Page {
    let from = match after {
        Some(after) => Bound::Excluded(after),
        None => Bound::Included(prefix),
    };
    let mut raw = objects
        .range::<(Bound<&str>, Bound<&str>), str>((from, Bound::Unbounded))
        .map(|(_, stored)| stored)
        .take_while(|stored| stored.key.as_str().starts_with(prefix));
    let mut page = Page { items: Vec::new(), rv, continue_token: String::new(), remaining: None };
    while limit == 0 || page.items.len() < limit {
        let Some(stored) = raw.next() else { return page };
        if selection.matches(stored) {
            page.items.push(stored.clone());
        }
    }
    let rest = raw.count();
    if rest > 0
        && let Some(last) = page.items.last()
    {
        let start = last.key.as_str().strip_prefix(prefix).unwrap_or_default();
        page.continue_token = options::encode_token(i64::try_from(rv).unwrap_or(i64::MAX), start);
        page.remaining = selection.is_everything().then_some(rest);
    }
    page
}

fn past_error(request: &Request<'_>, error: PastError) -> Box<Status> {
    match error {
        PastError::TooOld => {
            Box::new(Status::failure(410, "Expired", "The resourceVersion for the provided list is too old."))
        }
        PastError::TooNew => too_large(u64::MAX, request.view().revision()),
        PastError::Gone => not_found(request.kind, ""),
    }
}

fn expired_token(start: &str) -> Box<Status> {
    let mut status = Status::failure(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.metadata.insert("continue", options::encode_token(-1, start));
    Box::new(status)
}

pub(super) fn too_large(wanted: u64, current: u64) -> Box<Status> {
    let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    let cause = StatusCause { reason: "ResourceVersionTooLarge", message: "Too large resource version" };
    let details = StatusDetails { causes: vec![cause], retry_after_seconds: Some(1), ..Default::default() };
    Box::new(Status::failure(504, "Timeout", message).with_details(details))
}

// === impl Pieces ===

impl Pieces {
    fn new(request: &Request<'_>, mut page: Page, gzip: bool) -> Self {
        let kind = request.kind;
        let sorted = kind.custom && request.shape == Shape::Full;
        let metadata = list_metadata(&page, sorted);
        let (version, meta) = (kind.api_version(), r#""apiVersion":"meta.k8s.io/v1""#);
        let (head, tail) = match request.shape {
            _ if sorted => {
                let tail = format!("],\"kind\":\"{}List\",\"metadata\":{metadata}}}\n", kind.kind);
                (format!(r#"{{"apiVersion":"{version}","items":["#), tail)
            }
            Shape::Partial => {
                let (open, close) = if page.items.is_empty() { ("null", "}\n") } else { ("[", "]}\n") };
                let name = "PartialObjectMetadataList";
                (format!(r#"{{"kind":"{name}",{meta},"metadata":{metadata},"items":{open}"#), close.to_owned())
            }
            Shape::Table { .. } => {
                let columns = table::columns(kind);
                let rows = format!(r#""metadata":{metadata},"columnDefinitions":{columns},"rows":["#);
                (format!(r#"{{"kind":"Table",{meta},{rows}"#), "]}\n".to_owned())
            }
            Shape::Full => {
                let items = format!(r#""apiVersion":"{version}","metadata":{metadata},"items":["#);
                (format!(r#"{{"kind":"{}List",{items}"#, kind.kind), "]}\n".to_owned())
            }
            Shape::Protobuf => (String::new(), String::new()),
        };
        let mut head = head.into_bytes();
        if request.shape == Shape::Protobuf {
            let metadata = serde_json::from_str(&metadata).unwrap_or_default();
            let items = std::mem::take(&mut page.items);
            head = proto::encode_list(&version, &kind.kind, &metadata, items.iter().map(|item| item.value()));
        }
        Self {
            head: Some(head),
            items: page.items.into_iter(),
            kind: kind.clone(),
            shape: request.shape,
            strip: if sorted { 0 } else { kind.head().len() },
            first: true,
            tail: Some(tail.into_bytes()),
            gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        }
    }

    fn fill(&mut self, out: &mut Vec<u8>) {
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        for item in self.items.by_ref() {
            if !std::mem::replace(&mut self.first, false) {
                out.push(b',');
            }
            if let Shape::Table { objects } = self.shape {
                out.extend_from_slice(&table::row(&self.kind, &item, objects));
            } else if self.shape == Shape::Full && self.strip > 0 {
                out.push(b'{');
                out.extend_from_slice(&item.json[self.strip..]);
            } else {
                out.extend_from_slice(&encode::shaped(self.shape, &item));
            }
            if out.len() >= PIECE {
                return;
            }
        }
        if let Some(tail) = self.tail.take() {
            out.extend_from_slice(&tail);
        }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while self.tail.is_some() {
            let mut out = Vec::with_capacity(PIECE + PIECE / 4);
            self.fill(&mut out);
            let Some(gzip) = &mut self.gzip else { return Some(out.into()) };
            // Compressing to memory cannot fail.
            let _ = gzip.write_all(&out);
            let packed = std::mem::take(gzip.get_mut());
            if !packed.is_empty() {
                return Some(packed.into());
            }
        }
        self.gzip.take()?.finish().ok().map(Into::into)
    }
}

/// The list's metadata: in Go's order for typed lists; for custom resources with sorted keys, and always with
/// `continue`.
fn list_metadata(page: &Page, sorted: bool) -> String {
    let mut members = vec![format!(r#""resourceVersion":"{}""#, page.rv)];
    if sorted || !page.continue_token.is_empty() {
        members.push(format!(r#""continue":"{}""#, page.continue_token));
    }
    if let Some(remaining) = page.remaining {
        members.push(format!(r#""remainingItemCount":{remaining}"#));
    }
    if sorted {
        members.sort();
    }
    format!("{{{}}}", members.join(","))
}
