use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec as Spec;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
};
use serde_json::json;

use super::ObjectName;
use super::ca::Ca;
use super::decision::{Accepted, Addresses, Denial, decide};
use super::requester::request;
use super::tests::trusts;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn account() -> ObjectName {
    "agents/informerd".parse().unwrap()
}

fn nodes() -> Addresses {
    let mut addresses = Addresses::default();
    for (name, of) in [
        (
            "one",
            json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"},
            {"type": "Hostname", "address": "10.0.0.9"}, {"type": "InternalDNS", "address": "one.example"}]),
        ),
        ("two", json!([{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "ExternalIP", "address": "127.0.0.1"}])),
        ("three", json!([{"type": "InternalIP", "address": "10.0.0.3"}])),
        (
            "thief",
            json!([{"type": "InternalIP", "address": "10.0.0.4"}, {"type": "ExternalIP", "address": "10.0.0.3"},
            {"type": "InternalIP", "address": "::ffff:10.0.0.5"}, {"type": "InternalIP", "address": "::ffff:127.0.0.1"}]),
        ),
        ("five", json!([{"type": "InternalIP", "address": "10.0.0.5"}])),
    ] {
        let node = json!({"metadata": {"name": name}, "status": {"addresses": of}});
        addresses.add(serde_json::from_value(node).unwrap());
    }
    addresses.add(serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap());
    addresses
}

/// A request as the agent of node `one` makes it, with the fields that the apiserver adds.
fn good() -> Spec {
    of(&request(&["10.0.0.1".to_owned(), "fd00::1".to_owned()], &KeyPair::generate().unwrap()).unwrap())
}

fn of(pem: &str) -> Spec {
    let once = |key: &str, value: &str| (format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
    Spec {
        extra: Some(BTreeMap::from([once("pod-name", "informerd-x"), once("node-name", "one")])),
        request: ByteString(pem.as_bytes().to_vec()),
        signer_name: "informerd.io/node-serving".to_owned(),
        usages: Some(vec!["digital signature".to_owned(), "server auth".to_owned()]),
        username: Some("system:serviceaccount:agents:informerd".to_owned()),
        ..Spec::default()
    }
}

/// A request for an address of node `one`, changed before it is signed.
fn changed(change: impl FnOnce(&mut CertificateParams)) -> Spec {
    let mut params = CertificateParams::new(vec!["10.0.0.1".to_owned()]).unwrap();
    change(&mut params);
    of(&params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap())
}

fn names(names: &[&str]) -> Spec {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    changed(|params| params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names)
}

fn decided(spec: &Spec) -> Result<Accepted, Denial> {
    decide(spec, &account(), &nodes(), DAY)
}

#[test]
fn an_agent_gets_a_certificate_for_the_addresses_of_its_node() {
    let now = Timestamp::now();
    let accepted = decided(&good()).unwrap();
    assert_eq!((accepted.node.as_str(), accepted.lasts), ("one", DAY));
    let ca = Ca::make(now, 10 * DAY, None).unwrap();
    let chain = ca.certify(&accepted.key, accepted.addresses, now, accepted.lasts).unwrap();
    let verified = |name: &str| trusts(&ca.certificate, &chain, name, now);
    assert!(verified("10.0.0.1") && verified("fd00::1"));
    assert!(!verified("10.0.0.2") && !verified("informerd.agents.svc") && !verified("informerd"));
}

#[test]
fn it_lasts_as_long_as_asked_for_and_no_longer_than_allowed() {
    for (asked, lasts) in [(600, Duration::from_secs(600)), (i32::MAX, DAY), (-1, DAY)] {
        let spec = Spec { expiration_seconds: Some(asked), ..good() };
        assert_eq!(decided(&spec).unwrap().lasts, lasts);
    }
}

#[test]
fn requests_of_others_are_denied() {
    let user = |name: &str| Spec { username: Some(name.to_owned()), ..good() };
    let extra = |key: &str, values: &[&str]| {
        let mut spec = good();
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        spec.extra.as_mut().unwrap().insert(format!("authentication.kubernetes.io/{key}"), values);
        spec
    };
    for (what, spec) in [
        ("another account", user("system:serviceaccount:agents:other")),
        ("another namespace", user("system:serviceaccount:other:informerd")),
        ("a longer name", user("system:serviceaccount:agents:informerd:x")),
        ("a node", user("system:node:one")),
        ("nobody", Spec { username: None, ..good() }),
        ("no extra", Spec { extra: None, ..good() }),
        ("no pod", extra("pod-name", &[])),
        ("no node", extra("node-name", &[])),
        ("an empty node", extra("node-name", &[""])),
        ("two nodes", extra("node-name", &["one", "two"])),
        ("another node", extra("node-name", &["two"])),
        ("a node that nobody knows", extra("node-name", &["four"])),
        ("a node without addresses", extra("node-name", &["new"])),
    ] {
        assert!(decided(&spec).is_err(), "{what}");
    }
}

#[test]
fn requests_for_more_are_denied() {
    let usages = |usages: &[&str]| Spec { usages: Some(usages.iter().map(|u| (*u).to_owned()).collect()), ..good() };
    let key = |algorithm| {
        let key = KeyPair::generate_for(algorithm).unwrap();
        of(&request(&["10.0.0.1".to_owned()], &key).unwrap())
    };
    let many: Vec<_> = (0..17).map(|_| "10.0.0.1").collect();
    assert!(decided(&names(&many[..16])).is_ok(), "so many it may have");
    // The default configuration of `openssl req` says so.
    assert!(decided(&changed(|params| params.is_ca = IsCa::ExplicitNoCa)).is_ok(), "it is for no CA");
    for (what, spec, message) in [
        ("no usages", Spec { usages: None, ..good() }, "usages"),
        ("a client", usages(&["client auth"]), "usages"),
        ("both", usages(&["digital signature", "server auth", "client auth"]), "usages"),
        ("a CA", usages(&["server auth", "cert sign"]), "usages"),
        ("no names", names(&[]), "0 names"),
        ("many names", names(&many), "17 names"),
        ("an address of another node", names(&["10.0.0.2"]), "no address of node one"),
        ("one of its own and one of another", names(&["10.0.0.1", "10.0.0.2"]), "no address of node one"),
        ("an address of nobody", names(&["192.0.2.1"]), "no address of node one"),
        ("an address that is a host's name", names(&["10.0.0.9"]), "no address of node one"),
        ("an address in another form", names(&["::ffff:10.0.0.1"]), "in the form of IPv6"),
        ("loopback", names(&["127.0.0.1"]), "no node has alone"),
        ("any address", names(&["0.0.0.0"]), "no node has alone"),
        ("a DNS name", names(&["10.0.0.1", "kubernetes.default.svc"]), "is no address"),
        ("its node's DNS name", names(&["one.example"]), "is no address"),
        ("a CA", changed(|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)), "for a CA"),
        ("an explicit CA of none", changed(|p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))), "for a CA"),
        ("a key that signs", changed(|p| p.key_usages = vec![KeyUsagePurpose::KeyCertSign]), "usages"),
        (
            "a client's certificate",
            changed(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            "usages",
        ),
        (
            "an unknown extension",
            changed(|p| p.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 30], vec![48, 0])]),
            "cannot be read",
        ),
        ("another curve", key(&PKCS_ECDSA_P384_SHA384), "P-256"),
        ("another kind of key", key(&PKCS_ED25519), "P-256"),
    ] {
        let Denial(denial) = decided(&spec).expect_err(what);
        assert!(denial.contains(message), "{what}: {denial}");
    }
}

/// Requests from both nodes that claim the same address. Go treats both forms of an IPv4 address as the same.
#[test]
fn an_address_that_two_nodes_claim_or_that_has_another_form_is_nobodys() {
    for (node, address, message) in [
        ("three", "10.0.0.3", "claimed by 2 nodes"),
        ("thief", "10.0.0.3", "claimed by 2 nodes"),
        ("five", "10.0.0.5", "claimed by 2 nodes"),
        ("thief", "10.0.0.5", "claimed by 2 nodes"),
        ("thief", "::ffff:10.0.0.5", "in the form of IPv6"),
        ("thief", "::ffff:127.0.0.1", "in the form of IPv6"),
    ] {
        let what = format!("{node}, {address}");
        let Denial(denial) = decided(&by(node, names(&[address]))).expect_err(&what);
        assert!(denial.contains(message), "{what}: {denial}");
    }
}

fn by(node: &str, mut spec: Spec) -> Spec {
    spec.extra.as_mut().unwrap().insert("authentication.kubernetes.io/node-name".into(), vec![node.into()]);
    spec
}

#[test]
fn what_cannot_be_read_is_denied() {
    let pem = String::from_utf8(good().request.0).unwrap();
    let lines: Vec<_> = pem.lines().collect();
    let body = lines[1..lines.len() - 1].concat();
    let wrap = |body: &str| format!("{}\n{body}\n{}\n", lines[0], lines[lines.len() - 1]);
    // Flip a bit of the signature, which comes last.
    let mut der = decoded(&body);
    *der.last_mut().unwrap() ^= 1;
    for (what, text) in [
        ("nothing", String::new()),
        ("no PEM", "hello".to_owned()),
        ("a certificate", pem.replace("CERTIFICATE REQUEST", "CERTIFICATE")),
        ("no base64", wrap("@@@@")),
        ("no DER", wrap("AAAA")),
        ("half of it", wrap(&body[..body.len() / 2 / 4 * 4])),
        ("a wrong signature", wrap(&base64(&der))),
        ("a huge one", pem.clone() + &"\n".repeat(8 << 10)),
    ] {
        assert!(decided(&of(&text)).is_err(), "{what}");
    }
    let padded = |len: usize| of(&(pem.clone() + &"\n".repeat(len - pem.len())));
    assert!(decided(&of(&pem)).is_ok());
    assert!([8 << 10, (8 << 10) + 1].map(|len| decided(&padded(len)).is_ok()) == [true, false]);
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

proptest::proptest! {
    /// No input crashes the signer.
    #[test]
    fn garbage_is_denied(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let text = format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", base64(&bytes));
        proptest::prop_assert!(decided(&of(&text)).is_err());
    }

    /// The signed content is what the key's owner requested: damage can only be outside of it.
    #[test]
    fn a_damaged_request_is_for_nothing_else(at in 0..10_000_usize, bit in 0..8_u8) {
        let pem = String::from_utf8(good().request.0).unwrap();
        let lines: Vec<_> = pem.lines().collect();
        let mut der = decoded(&lines[1..lines.len() - 1].concat());
        let at = at % der.len();
        der[at] ^= 1 << bit;
        let text = format!("{}\n{}\n{}\n", lines[0], base64(&der), lines[lines.len() - 1]);
        if let Ok(accepted) = decided(&of(&text)) {
            let asked = decided(&of(&pem)).unwrap();
            proptest::prop_assert_eq!((accepted.key, accepted.addresses), (asked.key, asked.addresses));
        }
    }
}
