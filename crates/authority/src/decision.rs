//! Decides which CertificateSigningRequests of node agents are signed, and for which addresses. It does no I/O and
//! reads no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec as Spec;
use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKey,
    PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use super::ObjectName;

/// The node of the pod that a token is bound to, as the apiserver reports it (KEP-4193).
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The most bytes of a request in PEM. An agent's request has about 500.
const MOST_BYTES: usize = 8 << 10;
/// A node has few addresses.
const MOST_NAMES: usize = 16;
/// An uncompressed point of P-256, in bytes.
const POINT: usize = 65;

/// An accepted request: what is signed.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) node: String,
    pub(super) key: PublicKey,
    pub(super) addresses: Vec<SanType>,
    pub(super) lasts: Duration,
}

/// Why a request is denied. The text is written to the request's conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denial(pub(super) String);

/// The nodes that claim each address. The IPv4-mapped IPv6 form of an address counts as the IPv4 address.
#[derive(Debug, Default)]
pub(super) struct Addresses(BTreeMap<IpAddr, Vec<Arc<str>>>);

/// The fields of a Node that are needed.
#[derive(Debug, Deserialize)]
pub(super) struct Node {
    metadata: NodeMeta,
    status: Option<NodeStatus>,
}

#[derive(Debug, Deserialize)]
struct NodeMeta {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct NodeStatus {
    addresses: Option<Vec<NodeAddress>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// Whether a request may be signed. It must come from a pod of this account, with a token that is bound to the pod, and
/// must ask for a serving certificate for addresses of the pod's own node.
///
/// `longest`: the longest lifetime of a certificate.
///
/// # Errors
/// The reason for the denial.
pub(super) fn decide(
    spec: &Spec,
    account: &ObjectName,
    known: &Addresses,
    longest: Duration,
) -> Result<Accepted, Denial> {
    let expected = format!("system:serviceaccount:{}:{}", account.namespace, account.name);
    let user = spec.username.as_deref().unwrap_or_default();
    if user != expected {
        return deny(format!("{user:?} is not {expected}"));
    }
    let (Some(_), Some(node)) = (extra(spec, POD_NAME), extra(spec, NODE_NAME)) else {
        return deny("the token is not bound to one pod on one node");
    };
    let usages: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    if !usages.contains("server auth")
        || !usages.is_subset(&BTreeSet::from(["digital signature", "key encipherment", "server auth"]))
    {
        return deny(format!("the usages are {usages:?} and not those of a server"));
    }
    let request = parse(&spec.request.0)?;
    let names = &request.params.subject_alt_names;
    if names.is_empty() || names.len() > MOST_NAMES {
        return deny(format!("{} names are asked for, and not 1 to {MOST_NAMES}", names.len()));
    }
    for name in names {
        let SanType::IpAddress(address) = name else {
            return deny(format!("{name:?} is no address"));
        };
        known.belongs(*address, node)?;
    }
    let asked = spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    Ok(Accepted {
        node: node.to_owned(),
        addresses: names.clone(),
        key: request.public_key,
        lasts: asked.map_or(longest, |asked| asked.min(longest)),
    })
}

/// Parses a request. Its signature proves that the requester has the key.
fn parse(pem: &[u8]) -> Result<CertificateSigningRequestParams, Denial> {
    if pem.len() > MOST_BYTES {
        return deny(format!("the request has {} bytes, more than {MOST_BYTES}", pem.len()));
    }
    let der = CertificateSigningRequestDer::from_pem_slice(pem)
        .map_err(|error| Denial(format!("the request is no CERTIFICATE REQUEST in PEM: {error}")))?;
    let request = CertificateSigningRequestParams::from_der(&der)
        .map_err(|error| Denial(format!("the request cannot be read: {error}")))?;
    let params = &request.params;
    if matches!(params.is_ca, IsCa::Ca(_)) {
        return deny("the request is for a CA");
    }
    let plain =
        |usage: &KeyUsagePurpose| matches!(usage, KeyUsagePurpose::DigitalSignature | KeyUsagePurpose::KeyEncipherment);
    let server = |usage: &ExtendedKeyUsagePurpose| *usage == ExtendedKeyUsagePurpose::ServerAuth;
    if !params.key_usages.iter().all(plain) || !params.extended_key_usages.iter().all(server) {
        return deny("the request is for other usages than those of a server");
    }
    // The key type is derived from the signature algorithm, so the two must match.
    if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 || request.public_key.der_bytes().len() != POINT {
        return deny("the key is not of ECDSA on P-256");
    }
    Ok(request)
}

/// The value of an extra of the token, if it has exactly one.
fn extra<'a>(spec: &'a Spec, key: &str) -> Option<&'a str> {
    match spec.extra.as_ref()?.get(key)?.as_slice() {
        [value] if !value.is_empty() => Some(value),
        _ => None,
    }
}

fn deny<T>(message: impl Into<String>) -> Result<T, Denial> {
    Err(Denial(message.into()))
}

// === impl Addresses ===

impl Addresses {
    /// Each node is added once.
    pub(super) fn add(&mut self, node: Node) {
        let name: Arc<str> = node.metadata.name.into();
        for address in node.status.unwrap_or_default().addresses.into_iter().flatten() {
            if matches!(&*address.kind, "InternalIP" | "ExternalIP")
                && let Ok(address) = address.address.parse::<IpAddr>()
            {
                let nodes = self.0.entry(address.to_canonical()).or_default();
                if nodes.last() != Some(&name) {
                    nodes.push(Arc::clone(&name));
                }
            }
        }
    }

    /// A kubelet writes the addresses of its own Node. So an address that two nodes claim belongs to neither.
    fn belongs(&self, address: IpAddr, node: &str) -> Result<(), Denial> {
        // Clients treat both forms as the same address, as Go's net.IP.Equal does.
        if address != address.to_canonical() {
            return deny(format!("{address} is an IPv4 address in the form of IPv6"));
        }
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return deny(format!("{address} is an address that no node has alone"));
        }
        let nodes = self.0.get(&address);
        if !nodes.is_some_and(|nodes| nodes.iter().any(|name| **name == *node)) {
            return deny(format!("{address} is no address of node {node}"));
        }
        match nodes {
            Some(nodes) if nodes.len() > 1 => deny(format!("{address} is claimed by {} nodes", nodes.len())),
            _ => Ok(()),
        }
    }
}
