//! The single entry point for access decisions (authentication and authorization), for every protocol.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;

use super::attributes::Attributes;
use super::authenticator::{Known, Recalled, Source, Who};
use super::authorizer::{Asking, Memory};
use super::bearer;
use super::caller::{Caller, Mode};
use super::config::{Anonymous, AuthConfig, StartError};
use super::cover::{Cover, Proof};
use super::delegated::Delegated;
use super::impersonation::{Impersonation, impersonates};
use super::lease::Held;
use super::metrics::AuthMetrics;
use super::ourselves::Ourselves;
use super::review::{Unavailable, unavailable};
use super::strangers::{Strangers, StrangersRead};
use super::user::UserInfo;
use super::verdict::{Grant, Subject, Verdict};
use crate::apiserver::client::Upstream;
use crate::lifecycle::Fatal;
use crate::meta::{Status, errors};

/// Makes access decisions. Clones share the caches.
#[derive(Clone)]
pub struct Access {
    /// `None` if no listener is delegated.
    pub(super) delegated: Option<Arc<Delegated>>,
    /// `None`: every token of a trusted listener is another's, and nothing is remembered of it.
    pub(super) trusted: Option<Arc<Trusted>>,
    metrics: Arc<AuthMetrics>,
}

/// Tells whose token a client of a trusted listener has sent.
pub(super) struct Trusted {
    pub ourselves: Ourselves,
    strangers: Strangers,
}

// === impl Access ===

impl Access {
    /// For trusted clients only. All others are refused.
    pub fn trusting() -> Self {
        Self { delegated: None, trusted: None, metrics: Arc::default() }
    }

    /// For delegated listeners. Starts the watches that report changes of rights. The apiserver need not be reachable
    /// yet. `others`: whether other replicas reach it. Nothing is kept then while it is away for this one.
    ///
    /// # Errors
    /// The CA of client certificates cannot be read, or the system gives no random bytes.
    pub fn delegated(
        config: &AuthConfig,
        upstream: &Upstream,
        others: watch::Receiver<bool>,
        fatal: &Fatal,
    ) -> Result<Self, StartError> {
        let metrics = Arc::new(AuthMetrics::default());
        let delegated = Delegated::start(config, upstream, others, Arc::clone(&metrics), fatal)?;
        Ok(Self { delegated: Some(Arc::new(delegated)), trusted: None, metrics })
    }

    /// Makes trusted clients known that are the daemon's own user, and remembers what the apiserver lets others read.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn knowing_ourselves(self, config: &AuthConfig, upstream: &Upstream) -> Result<Self, StartError> {
        let (ourselves, strangers) = (Ourselves::new(config, upstream.clone())?, Strangers::new(config)?);
        Ok(Self { trusted: Some(Arc::new(Trusted { ourselves, strangers })), ..self })
    }

    /// Whether a request to a trusted listener has a token of the daemon's own user. For its client the apiserver answers
    /// what it answers for the daemon.
    pub async fn is_ours(&self, headers: &HeaderMap) -> bool {
        match &self.trusted {
            Some(trusted) => trusted.ourselves.sent(headers).await,
            None => false,
        }
    }

    /// A read of the newest state whose client of a trusted listener has another user's token. `None`: it is forwarded.
    pub fn strangers_read(&self, headers: &HeaderMap, attributes: Attributes) -> Option<StrangersRead> {
        self.trusted.as_ref()?.strangers.read(headers, attributes)
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
        if matches!(&verdict, Verdict::Allowed(grant) if grant.is_kept()) {
            self.metrics.kept.inc();
        }
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

    /// Whether a request may be forwarded with its client's own credentials. On a delegated listener nothing is
    /// forwarded in any other way. `is_judged`: its credentials have just been reviewed. What was refused is refused for as
    /// long as for reads: the apiserver would do no more, and close a connection.
    ///
    /// # Errors
    /// The Status to answer with.
    pub async fn pass(&self, caller: &Caller<'_>, is_judged: bool) -> Result<(), Box<Status>> {
        match (caller.mode, &self.delegated) {
            (Mode::Trust, _) => Ok(()),
            (Mode::Delegated, Some(delegated)) if is_judged && delegated.refuses(caller).await => {
                Err(Box::new(errors::unauthorized()))
            }
            (Mode::Delegated, Some(delegated)) => delegated.pass(caller).await,
            (Mode::Delegated, None) => Err(Box::new(errors::unauthorized())),
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

// === impl Delegated ===

impl Delegated {
    /// Decides a read as [`Access::check_all`] says, from the cache or by new reviews.
    pub(super) async fn ask(
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
            Err(error) => self.unanswered(caller, &error, false).await,
            Ok(Who::TooLong) => self.leave_undecided(caller).await,
            // `pass` decides whether the token may be forwarded.
            Ok(Who::Invalid) => refused(errors::unauthorized()),
            Ok(Who::Nobody) => match self.anonymous {
                Anonymous::Refuse => refused(errors::unauthorized()),
                Anonymous::Forward => Verdict::Forward(Box::new(errors::unauthorized())),
            },
            Ok(Who::User(known, source)) => {
                let is_certificate = matches!(source, Source::Certificate(_));
                return match self.decide((known, source), impersonation, wanted, memory, lasts).await {
                    Ok(Some(decided)) => decided,
                    // The apiserver knows other ways to allow the impersonation.
                    Ok(None) => (self.leave_undecided(caller).await, 0),
                    Err(error @ Unavailable::Share(_)) => (refused(unavailable(&error)), 0),
                    Err(error) => (self.unanswered(caller, &error, is_certificate).await, 0),
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

    /// Decides for an authenticated caller. `lasts`: the read is a stream, and counts for as long as it is open. `None` if only the
    /// apiserver can decide.
    async fn decide(
        self: &Arc<Self>,
        (known, source): (Known, Source),
        impersonation: Option<Impersonation>,
        wanted: &[Arc<Attributes>],
        memory: Memory,
        lasts: bool,
    ) -> Result<Option<(Verdict, usize)>, Unavailable> {
        let Some(user) = known.user.clone() else { return Ok(Some((refused(errors::unauthorized()), 0))) };
        let (impersonated, needed) = impersonation.map(|asked| (asked.user, asked.accesses)).unzip();
        let asking = Asking { payer: Some(&user), memory };
        let hold = |impersonated: Option<&Arc<UserInfo>>, proof: Proof, streams: usize| {
            let subject = impersonated.unwrap_or(&user);
            let share = lasts.then(|| self.authorizer.hold(&user, subject, proof.questions(), streams)).transpose()?;
            let (access, source, known) = (Arc::clone(self), source.clone(), known.clone());
            let (user, impersonated) = (Arc::clone(&user), impersonated.cloned());
            Ok(Held { access, source, known, user, impersonated, proof, share })
        };
        let mut held = Vec::new();
        for access in needed.iter().flatten() {
            match self.authorizer.cover(&user, std::slice::from_ref(access), asking).await? {
                Cover::All(proof) => held.push(hold(None, proof, 0)?),
                Cover::Denied { .. } => return Ok(None),
            }
        }
        let subject = impersonated.as_ref().unwrap_or(&user);
        match self.authorizer.cover(subject, wanted, asking).await? {
            Cover::All(proof) => {
                held.insert(0, hold(impersonated.as_ref(), proof, 1)?);
                Ok(Some((Verdict::Allowed(Grant { held }), 0)))
            }
            Cover::Denied { at, access, decision } => {
                let status = access.forbidden(&subject.username, &decision.reason);
                let subject = Some(Subject { user: Arc::clone(&user), impersonated: impersonated.clone() });
                Ok(Some((Verdict::Refused { status: Box::new(status), subject }, at)))
            }
        }
    }

    /// For a read whose review has no answer. It is not forwarded because of an outage: all reads of all clients would be, when the
    /// apiserver is back. A client certificate cannot be forwarded, and that its review fails says nothing about its rights.
    async fn unanswered(&self, caller: &Caller<'_>, error: &Unavailable, is_certificate: bool) -> Verdict {
        if is_certificate || self.outage.is_recent() {
            return refused(unavailable(error));
        }
        self.leave(caller, &unavailable(error)).await
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

    /// Whether a review has refused the only token of a request, and the apiserver takes no others than reviews do.
    async fn refuses(&self, caller: &Caller<'_>) -> bool {
        let is_alike = self.authenticator.doubt().is_some() && !bearer::is_ambiguous(caller.headers);
        is_alike
            && matches!(self.authenticator.authenticate(caller.certificates, caller.headers).await, Ok(Who::Invalid))
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

fn only_the_apiserver() -> Unavailable {
    Unavailable::Failed("only the apiserver can".into())
}

fn refused(status: Status) -> Verdict {
    Verdict::Refused { status: Box::new(status), subject: None }
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
