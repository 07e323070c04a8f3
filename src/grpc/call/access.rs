//! Authenticates and authorizes callers before any lookup, with the same decisions as for HTTP requests.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use tokio::task::coop::{consume_budget, unconstrained};
use tonic::{Extensions, Status};

use super::status::Error;
use crate::auth::audit::{self, Audit, Entry};
use crate::auth::{self, Access, Attributes, Client, Grant, Lease, Mode, Selectors, UserInfo, Verdict};
use crate::grpc::metrics::GrpcMetrics;
use crate::lifecycle::slots::group;
use crate::memory::{Ledger, Reservation};
use crate::meta::{self, Gvr, Verb};
use crate::reads::{ForwardReason, Selection, Shareable};

/// The most names in one filter that are authorized one by one. With more names, the whole scope of the filter is
/// authorized.
pub(in crate::grpc) const MAX_NAMES: usize = 16;

/// The client of a call. The wiring code inserts it into the extensions of a request. Clones share it.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Called>);

/// What is kept of a call for as long as it goes on, in buffers of its own. The head of its request is dropped.
#[derive(Debug)]
struct Called {
    access: Access,
    call: CallInfo,
    mode: Mode,
    certificates: Option<Arc<[CertificateDer<'static>]>>,
    credentials: HeaderMap,
    user_agent: String,
    /// `None` for calls that need no authentication, which are made while there is no memory, too.
    held: Option<Arc<Reservation>>,
    /// The client that what is kept for the call is counted for, and where a refusal is counted.
    paying: OnceLock<(Client, Arc<GrpcMetrics>)>,
}

/// Is notified of the user of a call once it is known.
pub trait UserObserver: std::fmt::Debug + Send + Sync {
    fn is(&self, user: &str);

    /// The call is allowed by a decision that was kept because the apiserver is away.
    fn is_kept(&self);

    /// Nobody can say any more whether the right to the call is still there. Its connection should take no more calls.
    fn leave(&self);
}

/// What other components need to know about a call.
#[derive(Clone, Debug)]
pub struct CallInfo {
    pub audit: Audit,
    pub audit_id: String,
    /// The path of the method.
    pub uri: String,
    /// Tells the connection from all others.
    pub connection: u64,
    pub source: Option<IpAddr>,
    pub known: Option<Arc<dyn UserObserver>>,
}

/// The permission for a read, for all parts of its selection. Each part has its own audit log entry, which is written
/// when the result of the read is known.
#[derive(Debug)]
pub(in crate::grpc) struct Grants {
    grants: Vec<Grant>,
    audit_entries: Vec<Entry>,
    held: Option<Arc<Reservation>>,
    known: Option<Arc<dyn UserObserver>>,
}

/// The permission for an open stream. Poll it while the stream is open.
pub(in crate::grpc) struct Right {
    lease: Lease,
    /// Ready when what the stream reads must not be shared any more.
    shared: Option<Pin<Box<dyn Future<Output = Error> + Send>>>,
    known: Option<Arc<dyn UserObserver>>,
    /// When dropped, they record the end of the stream.
    _audit_entries: Box<[Entry]>,
    /// The memory of the credentials, which are checked again for as long as the stream is open.
    _held: Option<Arc<Reservation>>,
}

/// Whether a call is of one of our services: health and reflection answer everybody.
pub(in crate::grpc) fn needs_authentication(path: &str) -> bool {
    path.starts_with("/informerd.")
}

/// The only place that determines the identity of a caller: the wiring code inserted it into the extensions of a request.
///
/// # Errors
/// UNAUTHENTICATED: the caller is not known.
pub(in crate::grpc) fn caller(of_request: &Extensions) -> Result<Caller, Status> {
    of_request.get::<Caller>().cloned().ok_or_else(|| Error::status(meta::errors::unauthorized()).into())
}

/// The only place that authorizes a selection. It runs before any lookup, and says in the selection whether it is read for
/// a client with an identity. Every part of a union must be allowed.
///
/// # Errors
/// UNAUTHENTICATED, PERMISSION_DENIED, or UNAVAILABLE if no authenticator or authorizer can decide.
pub(in crate::grpc) async fn authorize(
    caller: &Caller,
    verb: Verb,
    selection: &mut Selection,
) -> Result<Grants, Status> {
    selection.identified = caller.0.mode == Mode::Delegated;
    let (mut wanted, mut seen) = (Vec::new(), HashSet::new());
    let mut parsed = HashMap::new();
    for filter in &selection.filters {
        let namespace = filter.namespace.as_deref().unwrap_or_default();
        let (labels, fields) = (filter.label_selector.as_str(), filter.field_selector.as_str());
        // Many filters have the same selectors, which may be long.
        consume_budget().await;
        let next = parsed.len();
        let (selectors, which) =
            parsed.entry((labels, fields)).or_insert_with(|| (Selectors::parse(labels, fields), next));
        let mut names: Vec<&str> = filter.names.iter().map(String::as_str).collect();
        let mut once = HashSet::new();
        names.retain(|name| once.insert(*name));
        if names.is_empty() || names.len() > MAX_NAMES {
            names = vec![""];
        }
        for name in names {
            if seen.insert((namespace, name, *which)) {
                wanted.push(Arc::new(Attributes::read(verb, &selection.gvr, namespace, name, selectors)));
            }
        }
    }
    if wanted.is_empty() {
        // No part was checked, so nothing was allowed.
        return Err(Error::invalid("the selection selects nothing").into());
    }
    caller.may(&wanted, verb != Verb::Get).await
}

/// The only place that authorizes a call about the daemon itself. Such a call is authorized as a get of the method's
/// path.
///
/// # Errors
/// UNAUTHENTICATED, PERMISSION_DENIED, or UNAVAILABLE if no authenticator or authorizer can decide.
pub(in crate::grpc) async fn authorize_call(caller: &Caller) -> Result<Grants, Status> {
    caller.may(&[Arc::new(Attributes::of_path(&caller.0.call.uri))], true).await
}

// === impl Caller ===

impl Caller {
    /// `caller` has the whole head of the request.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: there is no memory for what is kept of it.
    pub fn new(access: Access, call: CallInfo, caller: &auth::Caller<'_>, ledger: &Ledger) -> Result<Self, Status> {
        let auth::Caller { mode, certificates, headers, .. } = *caller;
        let (mut credentials, mut user_agent, mut held) = (HeaderMap::new(), String::new(), None);
        if needs_authentication(&call.uri) {
            (credentials, user_agent) = (auth::credentials(headers, false), audit::user_agent(headers));
            let bytes = auth::credentials_size(&credentials) + user_agent.len() + call.audit_id.len() + call.uri.len();
            let reserved = ledger.lasting(bytes).map_err(|_| Error::no_memory("there is no memory for the call"))?;
            held = Some(Arc::new(reserved));
        }
        let (certificates, paying) = (certificates.cloned(), OnceLock::new());
        Ok(Self(Arc::new(Called { access, call, mode, certificates, credentials, user_agent, held, paying })))
    }

    /// Authenticates the caller before any part of the call is read or stored. An unauthenticated caller gets only
    /// this error. What is kept for the call counts in the share of its client from now on.
    ///
    /// # Errors
    /// UNAUTHENTICATED, RESOURCE_EXHAUSTED, or UNAVAILABLE if no authenticator can decide.
    pub(in crate::grpc) async fn enter(&self, metrics: &Arc<GrpcMetrics>) -> Result<(), Status> {
        let Err(status) = self.0.access.enter(&self.asking()).await else {
            return self.pays(self.paying().await, metrics).map_err(Status::from);
        };
        let attributes = Attributes::of_path(&self.0.call.uri);
        if let Some(entry) = self.begin(&attributes, Some(&UserInfo::default()), false) {
            entry.refuse(&status);
        }
        Err(Error::status(*status).into())
    }

    /// The client that the caller's streams are counted for. Nobody has authenticated it yet.
    pub(in crate::grpc) fn client(&self) -> Client {
        match (self.0.mode, self.0.call.source) {
            (Mode::Delegated, Some(address)) => Client::Address(group(address)),
            _ => Client::Connection(self.0.call.connection),
        }
    }

    /// The client that pays, once it is let in. Only users of tokens are known by name.
    async fn paying(&self) -> Client {
        match self.0.access.recall(&self.asking()).await {
            Some(known) => Client::User(known.payer),
            None => self.client(),
        }
    }

    pub(super) fn pays(&self, client: Client, metrics: &Arc<GrpcMetrics>) -> Result<(), Error> {
        self.0.paying.set((client, Arc::clone(metrics))).ok();
        self.0.held.as_deref().map_or(Ok(()), |held| self.charge(held))
    }

    /// Counts what is kept for the call in the share of its client, for as long as it is kept.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the client would have more than it may.
    pub(in crate::grpc) fn charge(&self, held: &Reservation) -> Result<(), Error> {
        let client = self.0.paying.get().and_then(|(client, _)| client.with_share());
        held.charge(client).map_err(|_| self.overflow())
    }

    /// The client has its share.
    pub(super) fn overflow(&self) -> Error {
        if let Some((_, metrics)) = self.0.paying.get() {
            metrics.overflows.inc();
        }
        Error::too_many("what is kept for the client takes as much memory as it may")
    }

    fn asking(&self) -> auth::Caller<'_> {
        auth::Caller {
            mode: self.0.mode,
            certificates: self.0.certificates.as_ref(),
            headers: &self.0.credentials,
            may_impersonate: false,
        }
    }

    async fn may(&self, wanted: &[Arc<Attributes>], lasts: bool) -> Result<Grants, Status> {
        let (verdict, at) = self.0.access.check_all(&self.asking(), wanted, lasts).await;
        let (status, subject) = match verdict {
            Verdict::Allowed(grant) => {
                let (known, is_kept) = (self.0.call.known.clone(), grant.is_kept());
                if let (Some(known), Some(user)) = (&known, grant.user()) {
                    known.is(&user.username);
                }
                if let Some(known) = known.as_ref().filter(|_| is_kept) {
                    known.is_kept();
                }
                let audit_entries =
                    wanted.iter().filter_map(|attributes| self.begin(attributes, grant.user(), is_kept)).collect();
                return Ok(Grants { grants: vec![grant], audit_entries, held: self.0.held.clone(), known });
            }
            Verdict::Refused { status, subject, .. } => (status, subject),
            // gRPC calls are never forwarded.
            Verdict::Forward(status) => (status, None),
        };
        let user = subject.as_ref().map(|subject| &*subject.user);
        let nobody = UserInfo::default();
        let audit_entries = wanted.get(at).and_then(|attributes| self.begin(attributes, user.or(Some(&nobody)), false));
        if let Some(entry) = audit_entries {
            entry.refuse(&status);
        }
        Err(Error::status(*status).into())
    }

    fn begin(&self, attributes: &Attributes, user: Option<&UserInfo>, is_kept: bool) -> Option<Entry> {
        let Called { call, user_agent, .. } = &*self.0;
        call.audit.begin(|| audit::Request {
            audit_id: call.audit_id.clone(),
            uri: call.uri.clone(),
            attributes,
            user,
            impersonated: None,
            source: call.source,
            user_agent: user_agent.clone(),
            is_kept,
        })
    }
}

// === impl Grants ===

impl Grants {
    /// The user that has these permissions. `None` for a client of a trusted listener.
    pub(in crate::grpc) fn username(&self) -> Option<&str> {
        self.grants.first().and_then(Grant::user).map(|user| user.username.as_str())
    }

    /// The response was complete. Writes the audit log entries with code 200.
    pub(in crate::grpc) fn complete(self) {
        self.audit_entries.into_iter().for_each(|entry| entry.complete(200));
    }

    /// The same result. An error is the only response: the audit log entries are written with it.
    pub(in crate::grpc) fn recorded<T>(&mut self, result: Result<T, Error>) -> Result<T, Status> {
        result.map_err(|error| {
            let status = error.kubernetes();
            self.audit_entries.drain(..).for_each(|entry| entry.refuse(&status));
            error.into()
        })
    }

    /// A stream is open. If one of the permissions is revoked, the whole stream ends.
    pub(in crate::grpc) fn open(self) -> Right {
        let audit_entries = self.audit_entries.into_iter().map(Entry::start).collect();
        Right::new(self.grants, audit_entries, self.held, self.known)
    }

    /// A list is being sent. The audit log records it as one complete response.
    pub(in crate::grpc) fn send(self) -> Right {
        self.audit_entries.into_iter().for_each(|entry| entry.complete(200));
        Right::new(self.grants, Box::default(), self.held, self.known)
    }

    /// Joins the permissions for several selections that are read together.
    pub(in crate::grpc) fn join(all: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = Self { grants: Vec::new(), audit_entries: Vec::new(), held: None, known: None };
        for one in all {
            joined.grants.extend(one.grants);
            joined.audit_entries.extend(one.audit_entries);
            // They are of one caller.
            (joined.held, joined.known) = (one.held, one.known);
        }
        joined
    }
}

// === impl Right ===

impl Right {
    fn new(
        grants: Vec<Grant>,
        audit_entries: Box<[Entry]>,
        held: Option<Arc<Reservation>>,
        known: Option<Arc<dyn UserObserver>>,
    ) -> Self {
        let lease = Lease::all(grants.into_iter().map(Grant::lease));
        Self { lease, shared: None, known, _audit_entries: audit_entries, _held: held }
    }

    /// The stream reads this resource with this proof from now on.
    pub(in crate::grpc) fn reads(&mut self, gvr: &Gvr, proof: Option<Shareable>) {
        let gvr = gvr.clone();
        self.shared = proof.map(|proof| {
            Box::pin(async move { Error::refusal(&gvr, ForwardReason::from(proof.over().await).into()) }) as _
        });
    }

    /// Returns why the permission was revoked, or that nobody can say whether it was. Do not poll it again after that.
    pub(in crate::grpc) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Some(shared) = &mut self.shared
            && let Poll::Ready(error) = Pin::new(&mut unconstrained(shared.as_mut())).poll(cx)
        {
            self.shared = None;
            return Poll::Ready(error);
        }
        let gone = ready!(self.lease.poll_gone(cx));
        if let (None, Some(known)) = (&gone, &self.known) {
            known.leave();
        }
        Poll::Ready(gone.map_or_else(Error::unconfirmed, |status| Error::status(*status)))
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
