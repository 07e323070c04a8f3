//! Parses the texts of single settings. Every error contains the expected format.

use std::time::Duration;

use super::{parse_duration, parse_size};
use crate::auth::{Anonymous, ClientCaSource};
use crate::packing::PackingForm;
use crate::passthrough::LendIdentity;
use crate::reads::{ConsistentReads, ProtobufReads};

/// The value of one of these names.
pub(super) fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("{text:?} is none of {}", names.join(", "))
    })
}

/// Whether a text has only the characters of a DNS subdomain.
pub(super) fn is_dns_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
}

/// Whether a text is a label of a DNS name.
pub(super) fn is_dns_label(text: &str) -> bool {
    is_dns_name(text) && text.len() <= 63 && !text.contains('.') && !text.starts_with('-') && !text.ends_with('-')
}

/// A mode, for `bounded` perhaps with its age.
pub(super) fn parse_consistent_reads(text: &str) -> Result<ConsistentReads, String> {
    if let Some(age) = text.strip_prefix("bounded=") {
        return positive_duration(age).map(ConsistentReads::Bounded).map_err(|message| format!("bounded=: {message}"));
    }
    let choices = [
        ("auto", ConsistentReads::Auto),
        ("bounded", ConsistentReads::BOUNDED),
        ("upstream", ConsistentReads::Upstream),
        ("probe", ConsistentReads::Probe),
        ("cache", ConsistentReads::Cache),
    ];
    choice(text, &choices).map_err(|message| format!("{message}, bounded=DURATION"))
}

pub(super) fn parse_protobuf(text: &str) -> Result<ProtobufReads, String> {
    let choices = [("serve", ProtobufReads::Serve), ("json", ProtobufReads::Json), ("forward", ProtobufReads::Forward)];
    choice(text, &choices)
}

/// Whether to forward a read whose informer was not synced in time. Otherwise: 429 with Retry-After.
pub(super) fn parse_not_synced(text: &str) -> Result<bool, String> {
    choice(text, &[("forward", true), ("429", false)])
}

/// Whether to serve an old state.
pub(super) fn parse_while_away(text: &str) -> Result<bool, String> {
    choice(text, &[("refuse", false), ("serve", true)])
}

/// How long what the apiserver has confirmed counts while it is away, and at most: so long, nobody can take it away.
const DEFAULT_AWAY_AGE: Duration = Duration::from_secs(600);
pub(super) const MAX_AWAY_AGE: Duration = Duration::from_secs(3600);

/// How long what the apiserver has confirmed counts while it is away; zero if it does not.
pub(super) fn parse_keeps(text: &str) -> Result<Duration, String> {
    let Some(age) = text.strip_prefix("keep=") else {
        let choices = [("keep", DEFAULT_AWAY_AGE), ("refuse", Duration::ZERO)];
        return choice(text, &choices).map_err(|message| format!("{message}, keep=DURATION"));
    };
    match positive_duration(age) {
        Ok(age) if age > MAX_AWAY_AGE => {
            Err("keep=: must be at most 1h: so long, a right that was taken away lives on".to_owned())
        }
        age => age.map_err(|message| format!("keep=: {message}")),
    }
}

pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    choice(text, &[("true", true), ("false", false)])
}

/// The error for a listener without authentication: every client that can reach it may read what is cached.
pub(super) fn beyond_this_machine(text: &str) -> String {
    format!(
        "{text} can be reached from other machines, and does not authenticate its clients: use delegated+https://, a loopback address or a unix socket"
    )
}

pub(super) fn parse_client_ca(text: &str) -> Result<ClientCaSource, String> {
    match text {
        "" => Err("want a path, or cluster".into()),
        "cluster" => Ok(ClientCaSource::Cluster),
        path => Ok(ClientCaSource::File(path.into())),
    }
}

pub(super) fn parse_anonymous(text: &str) -> Result<Anonymous, String> {
    choice(text, &[("refuse", Anonymous::Refuse), ("forward", Anonymous::Forward)])
}

pub(super) fn parse_packing_form(text: &str) -> Result<PackingForm, String> {
    choice(text, &[("auto", PackingForm::Auto), ("plain", PackingForm::Plain), ("packed", PackingForm::Packed)])
}

pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let valid = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    if valid { Ok(text.to_owned()) } else { Err(format!("{text:?} is no name: it must not be empty nor have blanks")) }
}

/// The name of an API group, as in `metrics.k8s.io`.
pub(super) fn parse_group(text: &str) -> Result<String, String> {
    let is_group = text.len() <= 253 && text.split('.').all(is_dns_label);
    if is_group {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no API group: want a name such as example.com"))
    }
}

pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse::<u32>().map_err(|_| format!("{text:?} is no count: want a whole number"))?;
    usize::try_from(count).map_err(|_| format!("{text:?} is too large"))
}

pub(super) fn positive_count(text: &str) -> Result<usize, String> {
    parse_count(text).and_then(|count| if count > 0 { Ok(count) } else { Err("must be at least 1".to_owned()) })
}

/// `None` for `auto`.
pub(super) fn parse_automatic_count(text: &str) -> Result<Option<usize>, String> {
    if text == "auto" { Ok(None) } else { positive_count(text).map(Some) }
}

pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .and_then(|duration| if duration.is_zero() { Err("must be longer than 0s".to_owned()) } else { Ok(duration) })
}

/// How long a token may be accepted after it was revoked, at most.
pub(super) const MAX_TOKEN_TTL: Duration = Duration::from_secs(120);

pub(super) fn parse_token_ttl(text: &str) -> Result<Duration, String> {
    let ttl = positive_duration(text)?;
    if ttl > MAX_TOKEN_TTL {
        Err("must be at most 2m: so long, a revoked token is accepted".to_owned())
    } else {
        Ok(ttl)
    }
}

/// A size of at least 1 MiB that this machine can address.
pub(super) fn parse_memory_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    if bytes < 1 << 20 {
        return Err(format!("{text} is less than 1Mi"));
    }
    usize::try_from(bytes).map_err(|_| format!("{text} is more than this machine can address"))
}

pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no mode: want octal digits, such as 0660"))
}

/// A host name or an address as in a Host header, without a port.
pub(super) fn parse_host(text: &str) -> Result<String, String> {
    let valid = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
        && (text.starts_with('[') || text.matches(':').count() != 1);
    valid
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(|| format!("{text:?} is no host name: want a name or an address, without a port"))
}

/// The name of a signer, as in `spec.signerName`.
pub(super) fn parse_signer(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((domain, name)) if domain.contains('.') && is_dns_name(domain) && is_dns_name(name) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is no signer: want DOMAIN/NAME")),
    }
}

/// Whether to reject TLS 1.2.
pub(super) fn parse_only_tls13(text: &str) -> Result<bool, String> {
    match text {
        "1.2" => Ok(false),
        "1.3" => Ok(true),
        _ => Err(format!("{text:?} is no version of TLS: want 1.2 or 1.3")),
    }
}

pub(super) fn parse_lend_identity(text: &str) -> Result<LendIdentity, String> {
    choice(text, &[("all", LendIdentity::All), ("reads", LendIdentity::Reads), ("none", LendIdentity::None)])
}
