//! Limits what one user may take of the resources that all users share: reviews in flight, open streams, and rights that are
//! checked repeatedly because open streams depend on them.
//!
//! The user whose credentials were accepted pays, also for requests that impersonate another user. So a client that is
//! refused, or that only claims to be a user, takes nothing from that user's share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::attributes::Attributes;
use super::metrics::AuthMetrics;
use super::review::Unavailable;
use super::user::{POD_UID, UserInfo};

/// The most reviews of one user's requests that may be in flight or waiting.
const MAX_REVIEWS: usize = 256;

/// Keeps the accounts of all users that hold a share.
pub(super) struct Shares {
    accounts: Mutex<HashMap<Payer, Account>>,
    max_rights: usize,
    max_streams: usize,
    metrics: Arc<AuthMetrics>,
}

/// Each pod of a service account counts as a user of its own. The tokens of one pod count together, and so do the
/// certificates of one user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payer {
    username: Box<str>,
    pod: Option<Box<str>>,
}

/// Who takes what a request needs, over every protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Its token was accepted.
    User(Payer),
    /// It may be anybody.
    Address(IpAddr),
    /// It is trusted. Its address says little: the containers of a pod have the same, and a Unix socket has none.
    Connection(u64),
}

/// A user and the requested access.
type Question = (Arc<UserInfo>, Arc<Attributes>);

#[derive(Debug, Default)]
struct Account {
    reviews: usize,
    streams: usize,
    /// How many streams depend on each right. Streams that share a right share its reviews.
    rights: HashMap<Question, usize>,
}

/// What is charged to a user until this is dropped: a review, or the rights of an open stream.
pub(super) struct Share {
    shares: Arc<Shares>,
    payer: Payer,
    reviews: usize,
    questions: Vec<Question>,
    /// One for each stream, in one of its shares.
    streams: usize,
}

// === impl Shares ===

impl Shares {
    pub(super) fn new(max_rights: usize, max_streams: usize, metrics: Arc<AuthMetrics>) -> Self {
        Self { accounts: Mutex::default(), max_rights, max_streams, metrics }
    }

    /// Charges one review to the user.
    ///
    /// # Errors
    /// The user has reached its limit.
    pub(super) fn review(self: &Arc<Self>, user: &UserInfo) -> Result<Share, Unavailable> {
        let payer = Payer::of(user);
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(payer.clone()).or_default();
        if account.reviews >= MAX_REVIEWS {
            return Err(self.refuse("the user has as many reviews under way as it may"));
        }
        account.reviews += 1;
        drop(accounts);
        Ok(Share { shares: Arc::clone(self), payer, reviews: 1, questions: Vec::new(), streams: 0 })
    }

    /// Charges rights of a stream to the user, all or none, and the stream itself if `streams` is one.
    ///
    /// # Errors
    /// The user would exceed its limit.
    pub(super) fn rights(
        self: &Arc<Self>,
        user: &UserInfo,
        questions: Vec<Question>,
        streams: usize,
    ) -> Result<Share, Unavailable> {
        let payer = Payer::of(user);
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(payer.clone()).or_default();
        account.streams += streams;
        let (before, open) = (account.rights.len(), account.streams);
        for question in &questions {
            *account.rights.entry(question.clone()).or_default() += 1;
        }
        let (taken, now) = (account.rights.len() - before, account.rights.len());
        drop(accounts);
        self.metrics.rights_held.inc_by(i64::try_from(taken).unwrap_or(i64::MAX));
        // Dropping it gives everything back.
        let share = Share { shares: Arc::clone(self), payer, reviews: 0, questions, streams };
        if streams > 0 && open > self.max_streams {
            return Err(self.refuse("the user has as many streams open as it may"));
        }
        if taken > 0 && now > self.max_rights {
            return Err(self.refuse("the open streams of the user rest on as many rights as they may"));
        }
        Ok(share)
    }

    /// Refuses a request beyond a limit.
    pub(super) fn refuse(&self, why: &'static str) -> Unavailable {
        self.metrics.user_overflows.inc();
        Unavailable::Share(why)
    }

    fn settle(&self, payer: &Payer, change: impl FnOnce(&mut Account)) {
        let mut accounts = self.accounts.lock();
        if let Some(account) = accounts.get_mut(payer) {
            change(account);
            if account.reviews == 0 && account.streams == 0 && account.rights.is_empty() {
                accounts.remove(payer);
            }
        }
    }
}

// === impl Share ===

impl Share {
    /// Takes the place of the stream's share with the rights before.
    pub(super) fn succeed(&mut self, before: &mut Self) {
        if self.payer == before.payer {
            std::mem::swap(&mut self.streams, &mut before.streams);
        } else {
            let streams = std::mem::take(&mut before.streams);
            self.streams += streams;
            self.shares.settle(&before.payer, |account| account.streams = account.streams.saturating_sub(streams));
            self.shares.settle(&self.payer, |account| account.streams += streams);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut given = 0;
        self.shares.settle(&self.payer, |account| {
            account.reviews = account.reviews.saturating_sub(self.reviews);
            account.streams = account.streams.saturating_sub(self.streams);
            for question in &self.questions {
                let Some(streams) = account.rights.get_mut(question) else { continue };
                *streams -= 1;
                if *streams == 0 {
                    account.rights.remove(question);
                    given += 1;
                }
            }
        });
        self.shares.metrics.rights_held.dec_by(given);
    }
}

// === impl Client ===

impl Client {
    /// The client in whose share counts what is kept for it. `None` if it is trusted: its connection may carry the requests of
    /// a whole pod.
    pub(crate) fn with_share(&self) -> Option<&Self> {
        (!matches!(self, Self::Connection(_))).then_some(self)
    }
}

// === impl Payer ===

impl Payer {
    pub(crate) fn of(user: &UserInfo) -> Self {
        Self { username: user.username.as_str().into(), pod: user.extra(POD_UID).map(Into::into) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, pod: &str) -> Arc<UserInfo> {
        let extra = [(POD_UID.to_owned(), vec![pod.to_owned()])].into();
        Arc::new(UserInfo { username: name.to_owned(), extra, ..UserInfo::default() })
    }

    fn questions(user: &Arc<UserInfo>, names: std::ops::Range<usize>) -> Vec<Question> {
        let attributes = |n: usize| Arc::new(Attributes { name: n.to_string(), ..Attributes::default() });
        names.map(|n| (Arc::clone(user), attributes(n))).collect()
    }

    #[test]
    fn each_user_has_its_own_share_of_reviews() {
        let shares = Arc::new(Shares::new(1, 1, Arc::default()));
        let (a, b) = (user("a", "1"), user("b", "1"));
        let mut taken: Vec<_> = (0..MAX_REVIEWS).map(|_| shares.review(&a).ok().unwrap()).collect();
        assert!(shares.review(&a).is_err());
        assert!(shares.review(&b).is_ok(), "another user");
        assert!(shares.review(&user("a", "2")).is_ok(), "another pod");
        taken.pop();
        assert!(shares.review(&a).is_ok());
        drop(taken);
        assert!(shares.accounts.lock().is_empty());
        assert_eq!(shares.metrics.user_overflows.get(), 1);
    }

    #[test]
    fn rights_are_counted_once_for_all_streams_that_rest_on_them() {
        let shares = Arc::new(Shares::new(4, 100, Arc::default()));
        let (a, b) = (user("a", "1"), user("b", "1"));
        let held = || shares.metrics.rights_held.get();
        let first = shares.rights(&a, questions(&a, 0..3), 1).ok().unwrap();
        let same: Vec<_> = (0..10).map(|_| shares.rights(&a, questions(&a, 0..3), 1).ok().unwrap()).collect();
        assert_eq!(held(), 3);
        assert!(shares.rights(&a, questions(&a, 2..5), 1).is_err(), "all or none");
        // With impersonation, the same user pays.
        assert!(shares.rights(&a, questions(&b, 0..2), 1).is_err());
        assert_eq!(held(), 3);
        assert!(shares.rights(&b, questions(&b, 0..4), 1).is_ok(), "another user");
        drop(first);
        assert_eq!(held(), 3);
        drop(same);
        assert_eq!(held(), 0);
        assert!(shares.accounts.lock().is_empty());
        assert!(shares.rights(&a, questions(&a, 2..5), 1).is_ok());
    }

    #[test]
    fn streams_are_bounded_also_if_they_rest_on_one_right() {
        let shares = Arc::new(Shares::new(4, 10, Arc::default()));
        let (a, b) = (user("a", "1"), user("b", "1"));
        let mut open: Vec<_> = (0..10).map(|_| shares.rights(&a, questions(&a, 0..1), 1).ok().unwrap()).collect();
        assert!(shares.rights(&a, questions(&a, 0..1), 1).is_err());
        assert!(shares.rights(&b, questions(&b, 0..1), 1).is_ok(), "another user");
        // Other rights of the same stream, and those that take their place.
        let mut renewed = shares.rights(&a, questions(&a, 1..3), 0).ok().unwrap();
        renewed.succeed(&mut open[0]);
        open[0] = renewed;
        assert!(shares.rights(&a, questions(&a, 0..1), 1).is_err());
        let mut of_another = shares.rights(&b, questions(&b, 0..1), 0).ok().unwrap();
        of_another.succeed(&mut open[0]);
        open[0] = of_another;
        let streams = |user| shares.accounts.lock()[&Payer::of(user)].streams;
        assert_eq!((streams(&a), streams(&b)), (9, 1));
        open.pop();
        open.push(shares.rights(&a, questions(&a, 0..1), 1).ok().unwrap());
        drop(open);
        assert!(shares.accounts.lock().is_empty());
    }
}
