//! What a request asks for, told from its method, path and query alone, by the apiserver's own path grammar.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::Gvr;
use super::query::Query;

/// The verb as the apiserver's authorizer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// The legacy `/proxy/` prefix.
    Proxy,
    /// A method that the apiserver maps to no verb (OPTIONS, CONNECT, …).
    None,
}

/// A parsed request line. Strings are empty where the path has no such part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// False for discovery, `/healthz`, `/version` and everything else that names no resource.
    pub is_resource: bool,
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    /// For an item of `namespaces` itself this is its name, as the apiserver has it; see [`Self::scope`].
    pub namespace: String,
    pub name: String,
    /// The path has the `/watch/` prefix, which forces the verb whatever the query says.
    pub legacy_watch: bool,
    /// Every part of the path has its usual place: no empty or dot segment, nothing after the subresource, valid
    /// percent-encoding. Anything else is for the apiserver to judge.
    pub plain: bool,
}

// === impl Verb ===

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::None => "",
        }
    }

    /// One of get, list and watch.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    fn of_method(method: &str) -> Self {
        match method {
            "GET" | "HEAD" => Self::Get,
            "POST" => Self::Create,
            "PUT" => Self::Update,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::None,
        }
    }
}

// === impl RequestInfo ===

impl RequestInfo {
    /// Parses a request line; `path` and `query` are as they stand in it, undecoded, without the question mark.
    ///
    /// The path is decoded as a whole before it is split, as the apiserver does it: an encoded slash parts segments.
    pub fn parse(method: &str, path: &str, query: &str) -> Self {
        let verb = Verb::of_method(method);
        let mut info = Self {
            is_resource: false,
            verb,
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            legacy_watch: false,
            plain: false,
        };
        let Some(path) = decode_path(path) else { return info };
        let trimmed = path.trim_matches('/');
        let parts: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
        // Slashes are trimmed here, but the apiserver's router finds nothing behind two of them.
        info.plain = !path.starts_with("//") && !parts.iter().any(|part| matches!(*part, "" | "." | ".."));
        info.fill(&parts, query);
        info
    }

    pub fn gvr(&self) -> Gvr {
        Gvr::new(&self.group, &self.version, &self.resource)
    }

    /// A GET, LIST or WATCH of objects themselves, in a form that needs no judgement of the apiserver.
    pub fn is_plain_read(&self) -> bool {
        self.is_resource
            && self.plain
            && self.verb.is_read()
            && self.subresource.is_empty()
            // A resource called like the path element of namespaced paths exists in the core group only.
            && (self.resource != "namespaces" || self.group.is_empty())
    }

    /// The namespace whose objects the request is about; `None` for all namespaces and cluster-scoped objects. Differs
    /// from `namespace` for the namespace objects themselves, which are cluster-scoped.
    pub fn scope(&self) -> Option<&str> {
        let own = self.resource == "namespaces" && self.group.is_empty();
        (!own && !self.namespace.is_empty()).then_some(self.namespace.as_str())
    }

    fn fill(&mut self, parts: &[&str], query: &str) {
        if parts.len() < 3 {
            return;
        }
        let mut rest = match parts[0] {
            "api" => &parts[1..],
            "apis" if parts.len() >= 4 => {
                self.group = parts[1].to_owned();
                &parts[2..]
            }
            _ => return,
        };
        let version = rest[0];
        rest = &rest[1..];
        if let "watch" | "proxy" = rest[0] {
            if rest.len() < 2 {
                // The apiserver answers 500 to this one; it is no resource request for anybody.
                self.group.clear();
                self.plain = false;
                return;
            }
            self.legacy_watch = rest[0] == "watch";
            self.verb = if self.legacy_watch { Verb::Watch } else { Verb::Proxy };
            rest = &rest[1..];
        }
        self.is_resource = true;
        self.version = version.to_owned();
        if rest[0] == "namespaces" && rest.len() > 1 {
            self.namespace = rest[1].to_owned();
            // `status` and `finalize` are subresources of the namespace, not resources in it.
            if rest.len() > 2 && !matches!(rest[2], "status" | "finalize") {
                rest = &rest[2..];
                // Namespaces lie in no namespace.
                self.plain &= rest[0] != "namespaces";
            }
        }
        self.resource = rest[0].to_owned();
        if let Some(name) = rest.get(1) {
            self.name = (*name).to_owned();
        }
        // What follows a name under the proxy prefix is the proxied path.
        if let Some(subresource) = rest.get(2).filter(|_| self.verb != Verb::Proxy) {
            self.subresource = (*subresource).to_owned();
        }
        self.plain &= rest.len() <= 3;
        if self.name.is_empty() {
            self.verb = match self.verb {
                Verb::Get if Query::parse(query).bool("watch").unwrap_or(false) => Verb::Watch,
                Verb::Get => Verb::List,
                Verb::Delete => Verb::DeleteCollection,
                verb => verb,
            };
        }
    }
}

fn decode_path(path: &str) -> Option<Cow<'_, str>> {
    if !valid_escapes(path) {
        return None;
    }
    percent_decode_str(path).decode_utf8().ok()
}

/// Whether every percent sign is followed by two hexadecimal digits; Go refuses anything else.
fn valid_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
#[path = "request_info_tests.rs"]
mod tests;
