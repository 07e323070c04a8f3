use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::Lifetimes;
use super::bundle::Bundle;
use super::ca::Leaf;

const NAME: &str = "informerd.x.svc";
const HOUR: Duration = Duration::from_secs(3600);
const LIFETIMES: Lifetimes =
    Lifetimes { ca: Duration::from_secs(100 * 3600), overlap: HOUR, leaf: Duration::from_secs(10 * 3600) };

fn begin() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Verifies a chain as a client does, at a given time, with the bundle that it has read.
pub(super) fn trusts(bundle: &str, chain: &str, name: &str, at: Timestamp) -> bool {
    use rustls::client::danger::ServerCertVerifier as _;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.as_second()).unwrap()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], at).is_ok()
}

fn step(bundle: &mut Option<Bundle>, published: bool, now: Timestamp) -> bool {
    let next = Bundle::step(bundle.as_ref(), |_| published, now, &LIFETIMES).unwrap();
    let changed = next.is_some();
    if changed {
        *bundle = next;
    }
    changed
}

#[test]
fn the_next_one_is_published_before_it_signs_and_the_last_one_after() {
    let mut now = begin();
    let mut bundle = None;
    assert!(step(&mut bundle, false, now) && !step(&mut bundle, true, now));
    let first = bundle.clone().unwrap();
    now += LIFETIMES.ca - HOUR / 2;
    assert!(!step(&mut bundle, true, now));
    now += HOUR;
    assert!(step(&mut bundle, true, now));
    let both = bundle.clone().unwrap();
    assert!(both.current == first.current && both.next.is_some());
    now += HOUR / 2;
    assert!(!step(&mut bundle, true, now), "not published for long enough");
    now += HOUR;
    assert!(!step(&mut bundle, false, now), "not published at all");
    assert!(step(&mut bundle, true, now));
    let after = bundle.clone().unwrap();
    assert_eq!((Some(&after.current), after.next.as_ref()), (both.next.as_ref(), None));
    assert!(after.trusted().contains(first.current.certificate.trim()));
    now += LIFETIMES.leaf + HOUR;
    assert!(step(&mut bundle, true, now));
    assert!(!bundle.unwrap().trusted().contains(first.current.certificate.trim()));
}

/// The signer's `tls.caLifetime` is made shorter, or longer, while certificates are valid for as long as before.
#[test]
fn a_ca_is_trusted_as_long_as_its_certificates_may_be_valid() {
    let day = 24 * HOUR;
    let retired = |before: Duration, after: Duration| {
        let [before, after] = [before, after].map(Lifetimes::of);
        let make = |bundle: Option<&Bundle>, now, lifetimes| Bundle::step(bundle, |_| true, now, lifetimes).unwrap();
        let first = make(None, begin(), &before).unwrap();
        let at = begin() + before.ca.min(after.ca) + HOUR;
        let both = make(Some(&first), at, &after).unwrap();
        assert!(both.current == first.current && both.next.is_some(), "the next one is published before it signs");
        let at = at + after.overlap;
        let last = make(Some(&both), at, &after).unwrap();
        (last.previous[0].until.duration_since(at).unsigned_abs(), first.current.expires.unwrap(), at)
    };
    assert_eq!(retired(180 * day, 180 * day).0, 31 * day);
    assert_eq!(retired(180 * day, 60 * HOUR).0, 31 * day, "some are of before");
    assert_eq!(retired(60 * HOUR, 180 * day).0, 31 * day, "it has signed for longer than planned");
    let (trusted, expires, at) = retired(60 * HOUR, 60 * HOUR);
    assert_eq!(at + trusted, expires);
    // What an earlier version has written does not tell when it expires.
    let mut text = serde_json::to_value(Bundle::step(None, |_| true, begin(), &LIFETIMES).unwrap()).unwrap();
    assert!(text["current"].as_object_mut().unwrap().remove("expires").is_some());
    let bundle = Bundle::parse(text.to_string().as_bytes()).unwrap();
    assert_eq!(bundle.current.expires, None);
}

#[test]
fn after_a_long_absence_there_is_nothing_to_wait_for() {
    let mut bundle = None;
    step(&mut bundle, false, begin());
    let now = begin() + 10 * LIFETIMES.ca;
    assert!(step(&mut bundle, false, now));
    let bundle = bundle.unwrap();
    assert_eq!(bundle.current.made, now);
    let leaf = bundle.current.issue(&[NAME.to_owned()], now, LIFETIMES.leaf).unwrap();
    assert!(trusts(&bundle.trusted(), &leaf.chain, NAME, now));
}

#[test]
fn what_is_written_is_read_again_and_garbage_is_not() {
    let mut bundle = None;
    step(&mut bundle, false, begin());
    let bundle = bundle.unwrap();
    let text = serde_json::to_string(&bundle).unwrap();
    assert_eq!(Bundle::parse(text.as_bytes()).unwrap(), bundle);
    let mut other = None;
    step(&mut other, false, begin() + HOUR);
    let mut mixed = bundle;
    mixed.current.certificate = other.unwrap().current.certificate;
    assert!(Bundle::parse(serde_json::to_string(&mixed).unwrap().as_bytes()).is_err());
    assert!(Bundle::parse(b"{}").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Replicas check at different times, and a client may have read the bundle up to one overlap ago. It trusts them
    /// always.
    #[test]
    fn a_client_with_an_old_bundle_trusts_every_replica(
        passes in prop::collection::vec((0..3_usize, 1..55_u64), 30..120),
    ) {
        let names = [NAME.to_owned()];
        let (mut now, mut bundle) = (begin(), None);
        let mut published: Vec<(Timestamp, String)> = Vec::new();
        let mut leaves: [Option<(Timestamp, Timestamp, Leaf)>; 3] = Default::default();
        for (replica, minutes) in passes {
            now += Duration::from_secs(minutes * 60 * 4);
            let text = published.last().map(|(_, text)| text.clone()).unwrap_or_default();
            let next = Bundle::step(bundle.as_ref(), |c| text.contains(c.trim()), now, &LIFETIMES).unwrap();
            bundle = next.or(bundle);
            let held: &Bundle = bundle.as_ref().unwrap();
            published.push((now, held.trusted()));
            // A replica that was not chosen for long still renews its certificate when that is due.
            for (i, leaf) in leaves.iter_mut().enumerate() {
                let due = leaf.as_ref().is_none_or(|(at, ..)| now.duration_since(*at).unsigned_abs() > LIFETIMES.leaf / 2);
                if i == replica || due {
                    let issued = held.current.issue(&names, now, LIFETIMES.leaf).unwrap();
                    *leaf = Some((now, held.current.made, issued));
                }
            }
            let read = published.iter().rev().find(|(at, _)| now.duration_since(*at).unsigned_abs() >= LIFETIMES.overlap);
            let read = read.unwrap_or(&published[0]);
            for (_, _, leaf) in leaves.iter().flatten() {
                prop_assert!(trusts(&read.1, &leaf.chain, NAME, now), "at {now}, read at {}", read.0);
            }
        }
    }
}
