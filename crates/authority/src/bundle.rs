//! The content of the Secret, and how it changes over time. It does no I/O and reads no clock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Lifetimes;
use super::ca::Ca;

/// The CA that signs now, the CA that signs next, and the former CAs whose certificates may still be in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bundle {
    pub(super) current: Ca,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<Ca>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) previous: Vec<Previous>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Previous {
    pub(super) certificate: String,
    /// By this time, all certificates that it signed have expired.
    pub(super) until: Timestamp,
}

// === impl Bundle ===

impl Bundle {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let bundle: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        for ca in std::iter::once(&bundle.current).chain(&bundle.next) {
            ca.check().map_err(|error| error.to_string())?;
        }
        Ok(bundle)
    }

    /// All CA certificates that clients must trust, in PEM.
    pub(super) fn trusted(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.certificate);
        let previous = self.previous.iter().map(|previous| &previous.certificate);
        let all = std::iter::once(&self.current.certificate).chain(next).chain(previous);
        all.map(|pem| format!("{}\n", pem.trim_end())).collect()
    }

    /// The bundle that must replace this one, or `None` if it need not change. `published` tells whether a CA's
    /// certificate is in every place where clients look for it. A CA that is not published must not sign.
    pub(super) fn step(
        this: Option<&Self>,
        published: impl Fn(&str) -> bool,
        now: Timestamp,
        lifetimes: &Lifetimes,
    ) -> Result<Option<Self>, rcgen::Error> {
        let make = || Ca::make(now, lifetimes.ca_validity(), None);
        let Some(this) = this else {
            return Ok(Some(Self { current: make()?, next: None, previous: Vec::new() }));
        };
        let mut then = this.clone();
        then.previous.retain(|previous| now < previous.until);
        // If the clock was set back, nothing changes.
        let age = |ca: &Ca| now.duration_since(ca.made).unsigned_abs();
        // One that was made for a shorter time is due before it expires.
        let expires_within = |ca: &Ca, time| ca.expires.is_some_and(|expires| now + time >= expires);
        let is_due = |ca: &Ca| age(ca) >= lifetimes.ca || expires_within(ca, lifetimes.after_ca());
        if then.next.is_none() && now > then.current.made && is_due(&then.current) {
            then.next = Some(make()?);
        }
        // If the current CA has expired after a long downtime, there is nothing left to wait for.
        let has_expired = match then.current.expires {
            Some(expires) => now >= expires,
            None => age(&then.current) >= lifetimes.ca_validity(),
        };
        let expired = now > then.current.made && has_expired;
        let promotes =
            |next: &Ca| now > next.made && age(next) >= lifetimes.overlap && published(&next.certificate) || expired;
        if let Some(next) = then.next.take_if(|next| promotes(next)) {
            let until = then.current.trusted_until(now, lifetimes);
            let last = std::mem::replace(&mut then.current, next);
            then.previous.push(Previous { certificate: last.certificate, until });
        }
        Ok((then != *this).then_some(then))
    }
}

// === impl Ca ===

impl Ca {
    /// How long clients must trust it if it signs until `now`. Its certificates may be from a time when they were valid for longer: then
    /// they are trusted for as long as any may be, but not after the CA itself has expired.
    fn trusted_until(&self, now: Timestamp, lifetimes: &Lifetimes) -> Timestamp {
        let longest = now + Lifetimes::LONGEST.trusted_after();
        let earlier = self.expires.map_or(longest, |expires| longest.min(expires));
        earlier.max(now + lifetimes.trusted_after())
    }
}
