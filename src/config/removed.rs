//! Settings that earlier versions had. Whoever still sets one gets an error that says what became of it.

use super::setting::{flag_of, variable_of};
use super::{Mistake, Origin, Source};

/// A setting that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The key that it had in the file.
    pub key: &'static str,
    instead: Instead,
}

#[derive(Clone, Copy, Debug)]
enum Instead {
    Write(&'static str),
    /// Nothing, because this is so.
    Nothing(&'static str),
}

/// What to write instead of the modes of the verbs.
pub(super) const ONE_MODE: &str =
    "write one mode for gets, lists and watches, as in consistentReads: probe or consistentReads: bounded=1s";
/// What to write instead of the sizes and numbers of log files.
const LOGROTATE: &str = "have logrotate rename the file and send SIGHUP, after which the log is written to a new file";

const fn replaced(key: &'static str, by: &'static str) -> Removed {
    Removed { key, instead: Instead::Write(by) }
}

const fn dropped(key: &'static str, since: &'static str) -> Removed {
    Removed { key, instead: Instead::Nothing(since) }
}

/// All settings that are gone.
pub const REMOVED: &[Removed] = &[
    dropped("snapshots.maxAge", "a snapshot that was not written to for 15 minutes is not used"),
    dropped("snapshots.maxServedAge", "no snapshot is served before the apiserver has confirmed it"),
    replaced("consistentReads.get", ONE_MODE),
    replaced("consistentReads.list", ONE_MODE),
    replaced("consistentReads.watch", ONE_MODE),
    replaced("consistentReads.maxAge", "write the age behind the mode, as in consistentReads: bounded=1s"),
    dropped("consistentReads.timeout", "a read waits for a resourceVersion for 3 s, as at the apiserver"),
    dropped("window.minAge", "events of the last 75 s are kept, within window.maxBytes"),
    replaced("window.maxEvents", "write window.maxBytes, which limits the events that are kept"),
    dropped(
        "memory.hotBytes",
        "64 MiB of objects that are read stay unpacked, at most a quarter of limits.memory; memory.form: plain packs nothing",
    ),
    dropped(
        "limits.compressedBytes",
        "64 MiB of compressed answers are kept, at most a 32nd of the memory of the process",
    ),
    dropped("limits.maxQueues", "there may be 100 groups of workers at once"),
    dropped("limits.maxQueueDeletions", "100,000 deletions of a selection may wait for a worker"),
    dropped("queueLinger", "a work queue without workers is kept for 5 minutes"),
    dropped(
        "limits.headerTimeout",
        "a client may take 90 s to send the headers of a request, and 32 s from their first bytes",
    ),
    dropped("limits.handshakeTimeout", "a client may take 30 s for its first bytes and the TLS handshake"),
    replaced("limits.grpcConnectionGrace", "write limits.grpcConnectionAge, which is the grace period as well"),
    dropped(
        "compression",
        "answers are compressed for clients that accept gzip, as at the apiserver; one that does not want it sends no Accept-Encoding: gzip",
    ),
    dropped("drain.spread", "open watches end within the first 3 s of drain.timeout"),
    dropped("authorization.denyTtl", "a denied access is cached for 10 s"),
    dropped("authorization.maxReviews", "32 reviews are in flight at once"),
    dropped("authorization.maxUserRights", "the open watches and streams of one user may depend on 1,024 rights"),
    replaced(
        "tls.caOverlap",
        "write tls.caLifetime: the next CA is published for a sixth of it, at most a day, before it signs",
    ),
    replaced("tls.certLifetime", "write tls.caLifetime: a certificate is valid for a sixth of it, at most 30 days"),
    replaced("audit.maxSize", LOGROTATE),
    replaced("audit.maxFiles", LOGROTATE),
    replaced("access.maxSize", LOGROTATE),
    replaced("access.maxFiles", LOGROTATE),
    replaced("inject.image", "write inject.deployment, whose image sidecars get, or use informerd inject --image"),
    dropped("inject.tierConfigMap", "the ConfigMap with the CA of the tier is informerd-ca in each namespace"),
    dropped(
        "inject.nodeConfigMap",
        "the ConfigMap with the CA of the node agents is informerd-node-ca in each namespace",
    ),
];

// === impl Removed ===

impl Removed {
    /// What became of it, and what to write instead, in one line.
    pub fn message(&self) -> String {
        match self.instead {
            Instead::Write(text) => format!("this setting is gone: {text}"),
            Instead::Nothing(text) => format!("this setting is gone, and nothing need be written instead: {text}"),
        }
    }

    pub(super) fn find(key: &str) -> Option<&'static Self> {
        REMOVED.iter().find(|removed| removed.key == key)
    }

    /// The setting that had this flag, with its leading dashes.
    pub fn of_flag(flag: &str) -> Option<&'static Self> {
        let name = flag.strip_prefix("--")?;
        REMOVED.iter().find(|removed| flag_of(removed.key) == name)
    }

    fn variable(&self) -> String {
        variable_of(self.key)
    }
}

/// The variables of such settings that are set. An empty one counts as missing.
pub(super) fn removed_variables(source: &dyn Source) -> Vec<Mistake> {
    let is_set = |name: &str| source.variable(name) != Ok(None) && source.variable(name) != Ok(Some(String::new()));
    let set = REMOVED.iter().filter(|removed| is_set(&removed.variable()));
    set.map(|removed| Mistake::new(Origin::Variable(removed.variable()), removed.message())).collect()
}
