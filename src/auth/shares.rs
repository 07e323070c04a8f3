//! Limits what one user may take of the resources that all users share: reviews in flight, and rights that are checked
//! repeatedly because open streams depend on them.
//!
//! The user whose credentials were accepted pays, also for requests that impersonate another user. So a client that is
//! refused, or that only claims to be a user, takes nothing from that user's share.

use std::collections::HashMap;
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
    metrics: Arc<AuthMetrics>,
}

/// Each pod of a service account counts as a user of its own. The tokens of one pod count together, and so do the
/// certificates of one user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payer {
    username: Box<str>,
    pod: Option<Box<str>>,
}

/// A user and the requested access.
type Question = (Arc<UserInfo>, Arc<Attributes>);

#[derive(Debug, Default)]
struct Account {
    reviews: usize,
    /// How many streams depend on each right. Streams that share a right share its reviews.
    rights: HashMap<Question, usize>,
}

/// A review. It is charged to the user until this is dropped.
pub(super) struct ReviewShare<'a> {
    shares: &'a Shares,
    payer: Payer,
}

/// The rights of an open stream. They are charged to the user until this is dropped.
pub(super) struct RightsShare {
    shares: Arc<Shares>,
    payer: Payer,
    questions: Vec<Question>,
}

// === impl Shares ===

impl Shares {
    pub(super) fn new(max_rights: usize, metrics: Arc<AuthMetrics>) -> Self {
        Self { accounts: Mutex::default(), max_rights, metrics }
    }

    /// Charges one review to the user.
    ///
    /// # Errors
    /// The user has reached its limit.
    pub(super) fn review(&self, user: &UserInfo) -> Result<ReviewShare<'_>, Unavailable> {
        let payer = Payer::of(user);
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(payer.clone()).or_default();
        if account.reviews >= MAX_REVIEWS {
            return Err(self.refuse("the user has as many reviews under way as it may"));
        }
        account.reviews += 1;
        drop(accounts);
        Ok(ReviewShare { shares: self, payer })
    }

    /// Charges the rights of a stream to the user, all or none.
    ///
    /// # Errors
    /// The user would exceed its limit.
    pub(super) fn rights(
        self: &Arc<Self>,
        user: &UserInfo,
        questions: Vec<Question>,
    ) -> Result<RightsShare, Unavailable> {
        let payer = Payer::of(user);
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(payer.clone()).or_default();
        let before = account.rights.len();
        for question in &questions {
            *account.rights.entry(question.clone()).or_default() += 1;
        }
        let (taken, now) = (account.rights.len() - before, account.rights.len());
        drop(accounts);
        self.metrics.rights_held.inc_by(i64::try_from(taken).unwrap_or(i64::MAX));
        let share = RightsShare { shares: Arc::clone(self), payer, questions };
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
            if account.reviews == 0 && account.rights.is_empty() {
                accounts.remove(payer);
            }
        }
    }
}

impl Drop for ReviewShare<'_> {
    fn drop(&mut self) {
        self.shares.settle(&self.payer, |account| account.reviews = account.reviews.saturating_sub(1));
    }
}

impl Drop for RightsShare {
    fn drop(&mut self) {
        let mut given = 0;
        self.shares.settle(&self.payer, |account| {
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
        let shares = Shares::new(1, Arc::default());
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
        let shares = Arc::new(Shares::new(4, Arc::default()));
        let (a, b) = (user("a", "1"), user("b", "1"));
        let held = || shares.metrics.rights_held.get();
        let first = shares.rights(&a, questions(&a, 0..3)).ok().unwrap();
        let same: Vec<_> = (0..10).map(|_| shares.rights(&a, questions(&a, 0..3)).ok().unwrap()).collect();
        assert_eq!(held(), 3);
        assert!(shares.rights(&a, questions(&a, 2..5)).is_err(), "all or none");
        // With impersonation, the same user pays.
        assert!(shares.rights(&a, questions(&b, 0..2)).is_err());
        assert_eq!(held(), 3);
        assert!(shares.rights(&b, questions(&b, 0..4)).is_ok(), "another user");
        drop(first);
        assert_eq!(held(), 3);
        drop(same);
        assert_eq!(held(), 0);
        assert!(shares.accounts.lock().is_empty());
        assert!(shares.rights(&a, questions(&a, 2..5)).is_ok());
    }
}
