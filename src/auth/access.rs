//! The single entry point for access decisions (authentication and authorization), for every protocol.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use http::header::HeaderMap;
use rustls::pki_types::CertificateDer;

use super::attributes::Attributes;
use super::authenticator::{Authenticator, Known, Recalled, Source, Who};
use super::authorizer::{Asking, Authorizer, Memory};
use super::bearer;
use super::client_ca::ClientCa;
use super::config::{Anonymous, AuthConfig};
use super::cover::{Cover, Denial, Proof};
use super::impersonation::{Impersonation, impersonates};
use super::lease::{Held, Lease, unavailable};
use super::metrics::AuthMetrics;
use super::rbac_generations::RbacGenerations;
use super::review::{Reviews, Unavailable};
use super::revocation::{self, Revoked};
use super::term::Term;
use super::user::UserInfo;
use crate::lifecycle::Fatal;
use crate::meta::{Status, errors};
use crate::upstream::client::Upstream;

/// How far a listener trusts its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every client that can connect may read what is cached. For loopback addresses and Unix sockets only.
    Trust,
    /// A client may read only what the apiserver allows it to.
    Delegated,
}

/// What is known about the sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub mode: Mode,
    /// The certificates that the client presented in the TLS handshake, its own first. They are not verified yet; the
    /// handshake has only proven that the client has the key.
    pub certificates: Option<&'a Arc<[CertificateDer<'static>]>>,
    /// The headers of the request, or its gRPC metadata.
    pub headers: &'a HeaderMap,
    /// Whether impersonation is decided here where possible; otherwise it is left to the apiserver. Not for callers that
    /// cannot be forwarded: they have been authenticated with [`Access::enter`] before anything else.
    pub may_impersonate: bool,
}

/// The user that makes a request.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// The user that the credentials belong to.
    pub user: Arc<UserInfo>,
    /// The user that is impersonated, if any.
    pub impersonated: Option<Arc<UserInfo>>,
}

/// The decision about a request.
#[derive(Debug)]
pub enum Verdict {
    /// The request may be answered from a cache.
    Allowed(Grant),
    /// The apiserver would refuse the request with this Status. `subject`: the user, if known.
    Refused { status: Box<Status>, subject: Option<Subject> },
    /// Only the apiserver can decide. The request is forwarded with the client's own credentials and none of ours. A
    /// caller that cannot forward refuses with this Status.
    Forward(Box<Status>),
}

/// The right to one read, for as long as it lasts.
pub struct Grant {
    /// Empty for trusted clients. Otherwise the first entry is the read itself, and all entries are needed.
    held: Vec<Held>,
}

/// Makes access decisions. Clones share the caches.
#[derive(Clone, Debug)]
pub struct Access {
    /// `None` if no listener is delegated.
    pub(super) delegated: Option<Arc<Delegated>>,
    metrics: Arc<AuthMetrics>,
}

pub(super) struct Delegated {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
    pub(super) generations: Arc<RbacGenerations>,
    pub(super) revoked: Arc<Revoked>,
    pub(super) metrics: Arc<AuthMetrics>,
    anonymous: Anonymous,
    /// A token must belong to a node. So it is reviewed here even where the apiserver would review it later.
    bound_to_node: bool,
}

/// The input of a decision: an authenticated caller, and how to decide.
struct Asks {
    known: Known,
    source: Source,
    user: Arc<UserInfo>,
    impersonation: Option<Impersonation>,
    memory: Memory,
    /// The read is a stream. It counts for as long as it is open.
    lasts: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the system gives no random bytes")]
    Random,
    #[error("CA of client certificates, {path}: {error}", path = path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("CA of client certificates, {path}: {error}", path = path.display())]
    ClientCa { path: PathBuf, error: String },
}

// === impl Caller ===

impl Caller<'_> {
    /// Whether only the apiserver can say who asks, on a listener that knows nobody. What two servers could read
    /// differently counts for callers that are never forwarded.
    fn is_for_the_apiserver(&self) -> bool {
        impersonates(self.headers) || !self.may_impersonate && bearer::is_ambiguous(self.headers)
    }
}

// === impl Access ===

impl Access {
    /// For trusted clients only. All others are refused.
    pub fn trusting() -> Self {
        Self { delegated: None, metrics: Arc::default() }
    }

    /// For delegated listeners. Starts the watches that report changes of rights. The apiserver need not be reachable
    /// yet.
    ///
    /// # Errors
    /// The CA of client certificates cannot be read, or the system gives no random bytes.
    pub fn delegated(config: &AuthConfig, upstream: &Upstream, fatal: &Fatal) -> Result<Self, StartError> {
        let metrics = Arc::new(AuthMetrics::default());
        let (generations, revoked) = (Arc::new(RbacGenerations::new()), Arc::new(Revoked::default()));
        let start = |source| ClientCa::start(source, upstream, fatal);
        let client_ca = config.client_ca.as_ref().map(start).transpose()?;
        let reviews = Arc::new(Reviews::new(upstream.clone(), config, Arc::clone(&metrics)));
        let authenticator = Authenticator::new(config, Arc::clone(&reviews), client_ca, Arc::clone(&revoked))?;
        let authorizer = Authorizer::new(config, reviews, Arc::clone(&generations), Arc::clone(&metrics));
        revocation::start(config, upstream, &generations, &revoked, &metrics, fatal);
        let delegated = Delegated {
            authenticator,
            authorizer,
            generations,
            revoked,
            metrics: Arc::clone(&metrics),
            anonymous: config.anonymous,
            bound_to_node: config.node.is_some(),
        };
        Ok(Self { delegated: Some(Arc::new(delegated)), metrics })
    }

    pub fn metrics(&self) -> &Arc<AuthMetrics> {
        &self.metrics
    }

    /// The approximate numbers of cached credentials and cached decisions.
    pub fn remembered(&self) -> (u64, u64) {
        let delegated = self.delegated.as_ref();
        delegated.map_or((0, 0), |delegated| (delegated.authenticator.remembered(), delegated.authorizer.remembered()))
    }

    /// Whether a read may be answered here. Must be called before anything is looked up, so that no answer reveals what
    /// exists.
    pub async fn check(&self, caller: &Caller<'_>, attributes: &Arc<Attributes>) -> Verdict {
        let lasts = attributes.verb == "watch";
        self.check_all(caller, std::slice::from_ref(attributes), lasts).await.0
    }

    /// Like [`Self::check`], for a read that needs several accesses. All of them must be allowed. Also returns the
    /// index of the access that the verdict is about if it is refused. `lasts`: the accesses are needed for as long as
    /// a stream is open.
    pub async fn check_all(&self, caller: &Caller<'_>, wanted: &[Arc<Attributes>], lasts: bool) -> (Verdict, usize) {
        let (verdict, at) = match (caller.mode, &self.delegated) {
            // Nothing on a trusted listener checks the right to impersonate.
            (Mode::Trust, _) if caller.is_for_the_apiserver() => {
                (Verdict::Forward(Box::new(unavailable(&only_the_apiserver()))), 0)
            }
            (Mode::Trust, _) => (Verdict::Allowed(Grant { held: Vec::new() }), 0),
            (Mode::Delegated, Some(delegated)) => delegated.ask(caller, wanted, Memory::Good, lasts).await,
            (Mode::Delegated, None) => (refused(errors::unauthorized()), 0),
        };
        let counter = match &verdict {
            Verdict::Allowed(_) => &self.metrics.allowed,
            Verdict::Refused { status, .. } if status.code == 403 => &self.metrics.denied,
            Verdict::Refused { status, .. } if status.code == 401 => &self.metrics.unauthenticated,
            Verdict::Refused { .. } | Verdict::Forward(_) => &self.metrics.undecided,
        };
        counter.inc();
        (verdict, at)
    }

    /// Authenticates the caller. It is called before anything is kept for a call that cannot be forwarded.
    /// [`Self::check`] decides later what the caller may read.
    ///
    /// # Errors
    /// The Status to answer with: 401, or 503 if the caller cannot be authenticated now.
    pub async fn enter(&self, caller: &Caller<'_>) -> Result<(), Box<Status>> {
        let entered = self.recognize(caller).await;
        if let Err(status) = &entered {
            let metrics = &self.metrics;
            let counter = if status.code == 401 { &metrics.unauthenticated } else { &metrics.undecided };
            counter.inc();
        }
        entered
    }

    /// Whether the caller's credentials are accepted. Nothing is counted.
    ///
    /// # Errors
    /// 401 if the credentials are not accepted, 503 if that cannot be decided now.
    pub async fn recognize(&self, caller: &Caller<'_>) -> Result<(), Box<Status>> {
        match (caller.mode, &self.delegated) {
            (Mode::Trust, _) => Ok(()),
            (Mode::Delegated, Some(delegated)) => delegated.recognize(caller).await,
            (Mode::Delegated, None) => Err(Box::new(errors::unauthorized())),
        }
    }

    /// What is known of this caller's token without a review.
    pub async fn recall(&self, caller: &Caller<'_>) -> Option<Recalled> {
        let delegated = self.delegated.as_ref().filter(|_| caller.mode == Mode::Delegated)?;
        delegated.authenticator.recall(caller.headers).await
    }

    /// Records whether the apiserver has accepted this token. The request must be one that is refused to whoever has no
    /// valid token.
    pub async fn said(&self, of: &Recalled, is_accepted: bool) {
        if let Some(delegated) = &self.delegated {
            delegated.authenticator.said(of, is_accepted).await;
        }
    }

    /// How long a watch that is forwarded with its client's own credentials may go on. To be called before it is
    /// forwarded. `None` for trusted clients.
    pub fn term(&self, caller: &Caller<'_>, attributes: Attributes) -> Option<Term> {
        match (caller.mode, &self.delegated) {
            (Mode::Delegated, Some(delegated)) => Some(Term::new(Arc::clone(delegated), caller, attributes)),
            _ => None,
        }
    }

    /// Whether a request may be forwarded with its client's own credentials. On a delegated listener nothing is
    /// forwarded in any other way.
    ///
    /// # Errors
    /// The Status to answer with.
    pub async fn pass(&self, caller: &Caller<'_>) -> Result<(), Box<Status>> {
        match (caller.mode, &self.delegated) {
            (Mode::Trust, _) => Ok(()),
            (Mode::Delegated, Some(delegated)) => delegated.pass(caller).await,
            (Mode::Delegated, None) => Err(Box::new(errors::unauthorized())),
        }
    }
}

// === impl Delegated ===

impl Delegated {
    /// Whether a stream may be open, decided from the cache or by a new review.
    pub(super) async fn check(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        attributes: &Arc<Attributes>,
        memory: Memory,
    ) -> Verdict {
        self.ask(caller, std::slice::from_ref(attributes), memory, true).await.0
    }

    async fn ask(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        wanted: &[Arc<Attributes>],
        memory: Memory,
        lasts: bool,
    ) -> (Verdict, usize) {
        let impersonation = match impersonates(caller.headers) {
            true => caller.may_impersonate.then(|| Impersonation::of(caller.headers)).flatten().map(Some),
            false => Some(None),
        };
        let is_unread = wanted.iter().any(|attributes| attributes.unread);
        let Some(impersonation) = impersonation.filter(|_| !is_unread && !bearer::is_ambiguous(caller.headers)) else {
            return (self.leave_undecided(caller).await, 0);
        };
        let verdict = match self.authenticator.authenticate(caller.certificates, caller.headers).await {
            Err(error) => self.leave(caller, &unavailable(&error)).await,
            Ok(Who::TooLong) => self.leave_undecided(caller).await,
            // `pass` decides whether the token may be forwarded.
            Ok(Who::Invalid) => refused(errors::unauthorized()),
            Ok(Who::Nobody) => match self.anonymous {
                Anonymous::Refuse => refused(errors::unauthorized()),
                Anonymous::Forward => Verdict::Forward(Box::new(errors::unauthorized())),
            },
            Ok(Who::User(known, source)) => {
                let Some(user) = known.user.clone() else { return (refused(errors::unauthorized()), 0) };
                let asks = Asks { known, source, user, impersonation, memory, lasts };
                return match self.decide(asks, wanted).await {
                    Ok(Some(decided)) => decided,
                    // The apiserver knows other ways to allow the impersonation.
                    Ok(None) => (self.leave_undecided(caller).await, 0),
                    Err(error @ Unavailable::Share(_)) => (refused(unavailable(&error)), 0),
                    Err(error) => (self.leave(caller, &unavailable(&error)).await, 0),
                };
            }
        };
        (verdict, 0)
    }

    async fn recognize(&self, caller: &Caller<'_>) -> Result<(), Box<Status>> {
        match self.authenticator.authenticate(caller.certificates, caller.headers).await {
            Ok(Who::User(..)) => Ok(()),
            Ok(_) => Err(Box::new(errors::unauthorized())),
            Err(error) => Err(Box::new(unavailable(&error))),
        }
    }

    /// `None` if only the apiserver can decide.
    async fn decide(
        self: &Arc<Self>,
        asks: Asks,
        wanted: &[Arc<Attributes>],
    ) -> Result<Option<(Verdict, usize)>, Unavailable> {
        let Asks { known, source, user, impersonation, memory, lasts } = asks;
        let (impersonated, needed) = impersonation.map(|asked| (asked.user, asked.accesses)).unzip();
        let asking = Asking { payer: Some(&user), memory };
        let hold = |impersonated: Option<&Arc<UserInfo>>, proof: Proof| {
            let subject = impersonated.unwrap_or(&user);
            let share = if lasts { Some(self.authorizer.hold(&user, subject, &proof)?) } else { None };
            let (access, source, known) = (Arc::clone(self), source.clone(), known.clone());
            let (user, impersonated) = (Arc::clone(&user), impersonated.cloned());
            Ok(Held { access, source, known, user, impersonated, proof, share })
        };
        let mut held = Vec::new();
        for access in needed.iter().flatten() {
            match self.authorizer.cover(&user, std::slice::from_ref(access), asking).await? {
                Cover::All(proof) => held.push(hold(None, proof)?),
                Cover::Denied(_) => return Ok(None),
            }
        }
        let subject = impersonated.as_ref().unwrap_or(&user);
        match self.authorizer.cover(subject, wanted, asking).await? {
            Cover::All(proof) => {
                held.insert(0, hold(impersonated.as_ref(), proof)?);
                Ok(Some((Verdict::Allowed(Grant { held }), 0)))
            }
            Cover::Denied(Denial { at, access, decision }) => {
                let status = forbidden(subject, &access, &decision.reason);
                let subject = Some(Subject { user: Arc::clone(&user), impersonated: impersonated.clone() });
                Ok(Some((Verdict::Refused { status: Box::new(status), subject }, at)))
            }
        }
    }

    async fn leave_undecided(&self, caller: &Caller<'_>) -> Verdict {
        self.leave(caller, &unavailable(&only_the_apiserver())).await
    }

    /// Forwards to the apiserver if the client's own credentials can go there. Otherwise the client gets the reason for that.
    /// A caller that is never forwarded gets `otherwise`: how its request could be forwarded says nothing about its rights.
    async fn leave(&self, caller: &Caller<'_>, otherwise: &Status) -> Verdict {
        if !caller.may_impersonate {
            return Verdict::Forward(Box::new(otherwise.clone()));
        }
        match self.pass(caller).await {
            Ok(()) => Verdict::Forward(Box::new(otherwise.clone())),
            Err(status) => Verdict::Refused { status, subject: None },
        }
    }

    async fn pass(&self, caller: &Caller<'_>) -> Result<(), Box<Status>> {
        // The forwarder would send every `Authorization` line, and the apiserver would use the first. So the first is
        // used here too.
        let token = bearer::token(caller.headers).is_some();
        let other = bearer::is_ambiguous(caller.headers) || bearer::is_of_another_scheme(caller.headers);
        if self.bound_to_node && other {
            // A server behind informerd might authenticate it as a user whose node was not checked here.
            return Err(Box::new(errors::unauthorized()));
        }
        if caller.certificates.is_none() && (!token || !self.bound_to_node) {
            return match (token, self.anonymous) {
                (true, _) | (false, Anonymous::Forward) => Ok(()),
                (false, Anonymous::Refuse) => Err(Box::new(errors::unauthorized())),
            };
        }
        match self.authenticator.authenticate(caller.certificates, caller.headers).await {
            // The apiserver would take this client for another user: the one of its token, or the anonymous one.
            Ok(Who::User(_, Source::Certificate(_))) => Err(Box::new(not_to_be_shown())),
            Ok(Who::User(_, Source::Token(_))) => Ok(()),
            Ok(Who::TooLong) if !self.bound_to_node => Ok(()),
            Ok(Who::Nobody | Who::Invalid | Who::TooLong) => Err(Box::new(errors::unauthorized())),
            Err(error) => Err(Box::new(unavailable(&error))),
        }
    }
}

impl fmt::Debug for Delegated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delegated")
    }
}

// === impl Grant ===

impl Grant {
    /// The user that the credentials belong to. `None` for a trusted client, whose user is not known.
    pub fn user(&self) -> Option<&UserInfo> {
        self.held.first().map(|held| &*held.user)
    }

    /// The user that has the right. `None` for a trusted client, whose user is not known.
    pub fn subject(&self) -> Option<Subject> {
        let of = |held: &Held| Subject { user: Arc::clone(&held.user), impersonated: held.impersonated.clone() };
        self.held.first().map(of)
    }

    /// Whether the read could be forwarded to the apiserver with the client's own credentials.
    pub fn may_forward(&self) -> bool {
        self.held.iter().all(|held| matches!(held.source, Source::Token(_)))
    }

    /// The lease of a stream. It must be polled while the stream is open.
    pub fn lease(self) -> Lease {
        Lease::all(self.held.into_iter().map(Lease::of))
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("user", &self.user().map(|user| &user.username)).finish()
    }
}

fn only_the_apiserver() -> Unavailable {
    Unavailable::Failed("only the apiserver can".into())
}

fn refused(status: Status) -> Verdict {
    Verdict::Refused { status: Box::new(status), subject: None }
}

/// A 403 with the apiserver's message.
pub(super) fn forbidden(user: &UserInfo, attributes: &Attributes, reason: &str) -> Status {
    let mut detail = attributes.denial(&user.username);
    if !reason.is_empty() {
        detail = format!("{detail}: {reason}");
    }
    errors::forbidden(&attributes.gvr(), &attributes.name, detail)
}

/// 403: a client certificate cannot be forwarded.
fn not_to_be_shown() -> Status {
    Status::failure(
        403,
        "Forbidden",
        "informerd cannot forward the request: a client certificate ends here and cannot be shown to the \
         kube-apiserver; use a bearer token, or ask the kube-apiserver itself",
    )
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
