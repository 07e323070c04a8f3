//! Determines what a request asks for from its method, path and query alone, by the apiserver's path grammar.

use super::Gvr;
use super::query::{Query, unescape};

/// The verb as the apiserver's authorizer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// A method that the apiserver does not map to a verb (OPTIONS, CONNECT, …).
    #[default]
    None,
}

/// A parsed request line. A string is empty if the path does not have that part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// False for discovery, `/healthz`, `/version` and all other paths that do not name a resource.
    pub is_resource: bool,
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    /// For an item of `namespaces` this is its own name, as in the apiserver; see [`Self::scope`].
    pub namespace: String,
    pub name: String,
    /// The path has the `/watch/` prefix, which sets the verb regardless of the query.
    pub legacy_watch: bool,
    /// Whether every part of the path is in its usual place: no empty or dot segment, nothing after the subresource,
    /// valid percent-encoding. Any other path is left to the apiserver.
    pub plain: bool,
    /// The query has more parameters than are read here. An apiserver that was built with an older Go reads them.
    pub is_cut: bool,
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

    /// Whether the verb is get, list or watch.
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
    /// Parses a request line. `path` and `query` are as in the request line: not decoded, and without the question
    /// mark.
    ///
    /// As in the apiserver, the path is decoded as a whole before it is split, so an encoded slash separates
    /// segments.
    pub fn parse(method: &str, path: &str, query: &str) -> Self {
        let (verb, is_cut) = (Verb::of_method(method), Query::is_too_long(query));
        let mut info = Self { verb, is_cut, ..Self::default() };
        let path = unescape(path.as_bytes(), b'+').and_then(|path| String::from_utf8(path).ok());
        let Some(path) = path else { return info };
        let trimmed = path.trim_matches('/');
        let parts: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
        // Slashes are trimmed here, but the apiserver's router does not match a path that starts with two slashes.
        info.plain = !path.starts_with("//") && !parts.iter().any(|part| matches!(*part, "" | "." | ".."));
        info.fill(&parts, query);
        info
    }

    pub fn gvr(&self) -> Gvr {
        Gvr::new(&self.group, &self.version, &self.resource)
    }

    /// Whether this is a GET, LIST or WATCH of the objects themselves, in a form that need not be left to the
    /// apiserver.
    pub fn is_plain_read(&self) -> bool {
        self.is_resource
            && self.plain
            && self.verb.is_read()
            && self.subresource.is_empty()
            // The word `namespaces` is also a path element. Only the core group may have a resource of this name.
            && (self.resource != "namespaces" || self.group.is_empty())
    }

    /// Whether the apiserver may see a watch.
    pub fn may_watch(&self) -> bool {
        self.verb == Verb::Watch || self.verb.is_read() && self.is_cut
    }

    /// Whether the apiserver lets the request last as long as its client wants.
    pub fn is_long(&self) -> bool {
        self.may_watch() || matches!(self.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
    }

    /// The namespace of the requested objects; `None` for all namespaces and for cluster-scoped objects. It differs
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
                // The apiserver answers this with 500. It is not a resource request.
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
                // Namespaces are not in a namespace.
                self.plain &= rest[0] != "namespaces";
            }
        }
        self.resource = rest[0].to_owned();
        if let Some(name) = rest.get(1) {
            self.name = (*name).to_owned();
        }
        // Under the proxy prefix, the text after a name is the proxied path.
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

#[cfg(test)]
#[path = "request_info_tests.rs"]
mod tests;
