//! When two answers are the same, and the only list of what they may differ in.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

#[path = "exchange.rs"]
pub(crate) mod exchange;
#[path = "moving.rs"]
mod moving;

use std::fmt;

use exchange::{Answer, Ask, End, Framing};

/// A difference that no client can hold against anybody, and why.
pub(crate) struct Tolerance {
    pub what: &'static str,
    pub why: &'static str,
}

/// Everything that is tolerated. The names of headers are read from here; the rest is done where it says.
pub(crate) const TOLERATED: &[Tolerance] = &[
    Tolerance { what: "header date", why: "the second at which it was written; both sides have one or neither" },
    Tolerance {
        what: "header audit-id",
        why: "names one request; both sides have one or neither, and where the request brings its own they are equal",
    },
    Tolerance {
        what: "headers last-modified and expires of /openapi/v3",
        why: "reckoned from the time of the answer; both sides have one or neither",
    },
    Tolerance {
        what: "header x-kubernetes-pf-flowschema-uid",
        why: "names the queue a request stood in; a read that is served from the cache stands in none",
    },
    Tolerance { what: "header x-kubernetes-pf-prioritylevel-uid", why: "as the one before" },
    Tolerance {
        what: "`Connection: close` of a 401 over HTTP/1.1",
        why: "informerd ends the connection of somebody whom nobody knows after a few of them",
    },
    Tolerance {
        what: "ages in the cells of a Table",
        why: "they are reckoned from the time of the answer, so two answers to one client differ too (see without_ages); \
              in the phase of tables they are compared, between answers of the same second",
    },
    Tolerance {
        what: "Date of an answer to an upgrade and of a target that is none, and the framing of its refusal",
        why: "the apiserver's WebSocket library, and its HTTP library before any handler, write to the bare connection and \
              close it: they say no date and no length, which every other HTTP library adds (see is_bare)",
    },
    Tolerance {
        what: "where a server's window of events begins",
        why: "the number in brackets of `too old resource version: 1 (212)` tells since when this server has looked on, \
              and differs between two kube-apiservers of one cluster (see without_window)",
    },
    Tolerance {
        what: "after how long to ask again, where a watch of events, which the apiserver does not cache, names a revision of the future",
        why: "the apiserver draws `retryAfterSeconds` by lot there, so two answers to one client differ too (see \
              without_lot)",
    },
    Tolerance {
        what: "in a 500, the authority of a target that has one",
        why: "the apiserver quotes the target as it came, and to each side came its own (see without_authority)",
    },
    Tolerance {
        what: "a request that the apiserver does not survive",
        why: "a handler that panics answers nothing and drops the connection; informerd says so in a 503 (see is_panic)",
    },
    Tolerance {
        what: "revisions that nobody asked for, where the world moves",
        why: "a list that is not pinned to a revision, the bookmarks of a watch, and the revision that a refusal calls \
              the current one tell how far the server's cache has come, which differs between two kube-apiservers of \
              one cluster too; with the cluster of the harness nothing writes, and they are compared (see Moving)",
    },
];

/// What differs.
#[derive(Debug)]
pub(crate) enum Difference {
    Status(u16, u16),
    Reason(String, String),
    /// A header's values on both sides.
    Header(String, Vec<String>, Vec<String>),
    Framing(Framing, Framing),
    End(End, End),
    Body {
        at: usize,
        lengths: (usize, usize),
    },
    /// Only what is reckoned from the time of the answer differs.
    Ages {
        at: usize,
    },
    /// One side gave no answer.
    Broken(String, String),
    /// Both agree, but not with what is known of the answer.
    Unexpected(String),
}

/// Compares the answers to one request.
pub(crate) fn compare(ask: &Ask, direct: &Answer, through: &Answer, still: bool) -> Vec<Difference> {
    let mut found = Vec::new();
    if direct.status != through.status {
        found.push(Difference::Status(direct.status, through.status));
    } else if direct.reason != through.reason {
        found.push(Difference::Reason(direct.reason.clone(), through.reason.clone()));
    }
    headers(ask, direct, through, &mut found);
    if direct.end != through.end {
        found.push(Difference::End(direct.end, through.end));
    }
    let masks = |answer: &Answer| {
        let mut body = answer.body.clone();
        if ask.headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("accept") && value.contains("as=Table")) {
            body = without_ages(&body);
        }
        body = without_window(body);
        if answer.status == 500 && ask.target.starts_with("http://") {
            body = without_authority(&body);
        }
        if ask.target.contains("/events") {
            body = without_lot(body);
        }
        if still { body } else { moving::mask(&body) }
    };
    let bodies = (masks(direct), masks(through));
    if bodies.0 != bodies.1 {
        let at = bodies.0.iter().zip(&bodies.1).position(|(a, b)| a != b);
        let at = at.unwrap_or_else(|| bodies.0.len().min(bodies.1.len()));
        found.push(Difference::Body { at, lengths: (direct.body.len(), through.body.len()) });
    } else if framing_differs(direct, through) && !is_bare(ask, direct) {
        found.push(Difference::Framing(direct.framing, through.framing));
    }
    found
}

/// The lengths of bodies that were compared with something left out of them may differ.
fn framing_differs(direct: &Answer, through: &Answer) -> bool {
    match (direct.framing, through.framing) {
        // Bodies that are equal but for what is left out of them have the lengths that they have.
        (Framing::Length(a), Framing::Length(b)) => a != b && direct.body.len() == through.body.len(),
        (a, b) => a != b,
    }
}

/// An answer that was written to the bare connection: by a library for WebSockets, or to a target that is none.
fn is_bare(ask: &Ask, direct: &Answer) -> bool {
    let upgrades = ask.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
    direct.framing == Framing::Close && (upgrades || direct.body == b"400 Bad Request")
}

fn headers(ask: &Ask, direct: &Answer, through: &Answer, found: &mut Vec<Difference>) {
    // The framing is compared by itself.
    const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];
    let mut names: Vec<&str> = direct.headers.iter().chain(&through.headers).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names.into_iter().filter(|name| !FRAMING.contains(name)) {
        let of = |answer: &Answer| -> Vec<String> {
            answer.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.clone()).collect()
        };
        let (want, have) = (of(direct), of(through));
        let equal = match name {
            "last-modified" | "expires" if ask.target.starts_with("/openapi/v3") => want.len() == have.len(),
            "date" => want.len() == have.len() || is_bare(ask, direct),
            "audit-id" if !ask.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case("audit-id")) => {
                want.len() == have.len()
            }
            "connection" => want == have || direct.status == 401 && have == ["close"],
            _ if is_tolerated(name) => true,
            _ => want == have,
        };
        if !equal {
            found.push(Difference::Header(name.to_owned(), want, have));
        }
    }
}

fn is_tolerated(header: &str) -> bool {
    header != "audit-id" && TOLERATED.iter().any(|entry| entry.what.strip_prefix("header ") == Some(header))
}

/// A Table without the cells that are reckoned from the time of the answer: `5s`, `3m20s`, `4d`.
fn without_ages(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(start) = rest.iter().position(|&byte| byte == b'"') {
        let after = &rest[start + 1..];
        let mut is_escaped = false;
        let ends = |&byte: &u8| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        };
        let end = after.iter().position(ends).unwrap_or(after.len());
        out.extend_from_slice(&rest[..=start]);
        if is_age(&after[..end]) {
            out.extend_from_slice(b"AGE");
        } else {
            out.extend_from_slice(&after[..end]);
        }
        rest = &after[end..];
        if let [b'"', more @ ..] = rest {
            out.push(b'"');
            rest = more;
        }
    }
    out.extend_from_slice(rest);
    out
}

/// A refusal without the number in its brackets.
pub(super) fn without_window(body: Vec<u8>) -> Vec<u8> {
    const OLD: &[u8] = b"too old resource version: ";
    let Some(at) = body.windows(OLD.len()).position(|window| window == OLD) else { return body };
    let after = &body[at..];
    let (Some(from), Some(to)) =
        (after.iter().position(|&byte| byte == b'('), after.iter().position(|&byte| byte == b')'))
    else {
        return body;
    };
    // Messages in protobuf tell their length before; the numbers are of one length in any world that is not ancient.
    [&body[..=at + from], b"N", &body[at + to..]].concat()
}

/// A refusal of a revision of the future, in a watch, without the seconds that are drawn by lot.
pub(super) fn without_lot(mut body: Vec<u8>) -> Vec<u8> {
    // An answer that is no stream has the seconds of a fixed rule.
    let is_stream = body.starts_with(br#"{"type":"ERROR""#) || body.starts_with(&[0]);
    if !is_stream || !contains(&body, b"Too large resource version") {
        return body;
    }
    for before in [&br#""retryAfterSeconds":"#[..], b"\x1a\0("] {
        if let Some(at) = body.windows(before.len()).position(|window| window == before)
            && let Some(seconds) = body.get_mut(at + before.len())
        {
            *seconds = b'N';
        }
    }
    body
}

/// What quotes a target in absolute form, with its path alone.
fn without_authority(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    let mut parts = text.split("http://");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.find('/').map_or("", |at| &part[at..])).into_bytes()
}

pub(crate) fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// The apiserver's end of a request whose handler panicked, and what informerd makes of it; another apiserver (in the
/// proof) ends in the same way.
pub(crate) fn is_panic(direct: &std::io::Result<Answer>, through: &std::io::Result<Answer>) -> bool {
    let dropped = |side: &std::io::Result<Answer>| {
        side.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof)
    };
    let told = through.as_ref().is_ok_and(|answer| {
        answer.status == 503 && contains(&answer.body, b"stream error received: unexpected internal error")
    });
    dropped(direct) && (dropped(through) || told)
}

fn is_age(text: &[u8]) -> bool {
    let mut digits = false;
    let mut units = 0;
    for &byte in text {
        match byte {
            b'0'..=b'9' => digits = true,
            b's' | b'm' | b'h' | b'd' | b'y' if digits => {
                digits = false;
                units += 1;
            }
            _ => return false,
        }
    }
    units > 0 && !digits
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(a, b) => write!(f, "status: {a} / {b}"),
            Self::Reason(a, b) => write!(f, "reason phrase: {a:?} / {b:?}"),
            Self::Header(name, a, b) => write!(f, "header {name}: {a:?} / {b:?}"),
            Self::Framing(a, b) => write!(f, "framing: {a:?} / {b:?}"),
            Self::End(a, b) => write!(f, "end of the body: {a:?} / {b:?}"),
            Self::Body { at, lengths } => write!(f, "bodies of {} / {} bytes, from byte {at}", lengths.0, lengths.1),
            Self::Ages { at } => write!(f, "ages in the cells, from byte {at}"),
            Self::Broken(a, b) => write!(f, "no answer: {a} / {b}"),
            Self::Unexpected(what) => write!(f, "both say what is known to be wrong: {what}"),
        }
    }
}
