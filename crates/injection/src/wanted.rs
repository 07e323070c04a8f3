//! What the labels and annotations of a pod ask for.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{CONTAINERS, DISABLED, INJECT, INJECTED, Mode, SIDECAR_CONFIG, SIDECAR_MEMORY};

/// The annotation of the pods that the kubelet shows to the apiserver and runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The least memory with which a sidecar is tested, in bytes.
const LEAST_MEMORY: u64 = 64 << 20;

/// The most bytes of an annotation. What it becomes, and what is told of it, takes more memory than the text.
const LARGEST: usize = 64 << 10;
/// The apiserver accepts no longer label.
const LONGEST_LABEL: usize = 63;

/// The metadata that decides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub generate_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
}

/// Where a pod comes from, which decides what it is expected to have already.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Empty if a manifest names none.
    pub namespace: &'a str,
    /// What the namespace's label or the command line asks for.
    pub default: Option<Mode>,
    /// The apiserver has already mounted the files of the ServiceAccount into every container that gets them.
    pub admitted: bool,
}

/// What a pod is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub mode: Mode,
    /// The containers to lead. `None`: all.
    pub(super) containers: Option<BTreeSet<String>>,
    /// `None`: the built-in configuration.
    pub(super) config: Option<String>,
    pub(super) memory: Option<String>,
}

// === impl Wanted ===

impl Wanted {
    /// Whether the pod has a configuration for its sidecar.
    pub fn has_config(&self) -> bool {
        self.config.is_some()
    }
}

/// What the metadata of a pod asks for. `None`: nothing, or it was done before.
///
/// # Errors
/// A mistake. The pod must stay as it is.
pub fn wanted(meta: &Meta, origin: &Origin<'_>) -> Result<Option<Wanted>, String> {
    let Meta { labels, annotations, .. } = meta;
    if annotations.contains_key(INJECTED) || annotations.contains_key(MIRROR) {
        return Ok(None);
    }
    let label = labels.get(INJECT).map(String::as_str);
    if label == Some(DISABLED) {
        return Ok(None);
    }
    let mode = match label.map(|text| (text, Mode::find(text))) {
        Some((text, None)) => {
            let text: String = text.chars().take(LONGEST_LABEL).collect();
            return Err(format!("the label {INJECT} is {text:?}: want sidecar, node-agent, tier or {DISABLED}"));
        }
        Some((_, mode)) => mode,
        None => origin.default,
    };
    let Some(mode) = mode else { return Ok(None) };
    if annotations.contains_key(INJECT) {
        return Err(format!("{INJECT} is a label and not an annotation"));
    }
    let annotation = |name: &str| match annotations.get(name) {
        Some(text) if text.len() > LARGEST => {
            Err(format!("the annotation {name} has {} bytes, more than {LARGEST}", text.len()))
        }
        found => Ok(found),
    };
    let containers = annotation(CONTAINERS)?.map(|text| {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>()
    });
    if containers.as_ref().is_some_and(BTreeSet::is_empty) {
        return Err(format!("the annotation {CONTAINERS} names no container"));
    }
    let memory = annotation(SIDECAR_MEMORY)?.cloned();
    if let Some(text) = memory.as_deref().filter(|text| !is_enough(text)) {
        return Err(format!(
            "the annotation {SIDECAR_MEMORY} is {text:?}: want a whole number of Mi or Gi, at least 64Mi"
        ));
    }
    let config = annotation(SIDECAR_CONFIG)?.cloned();
    for (name, given) in [(SIDECAR_MEMORY, memory.is_some()), (SIDECAR_CONFIG, config.is_some())] {
        if given && mode != Mode::Sidecar {
            return Err(format!("the annotation {name} is for the mode sidecar; the mode is {}", mode.as_str()));
        }
    }
    Ok(Some(Wanted { mode, containers, config, memory }))
}

fn is_enough(text: &str) -> bool {
    let size = [("Mi", 20), ("Gi", 30)].into_iter().find_map(|(unit, shift)| {
        let digits = text.strip_suffix(unit).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    size.is_some_and(|size| size >= LEAST_MEMORY && i64::try_from(size).is_ok())
}

/// `null` counts as missing, as for the apiserver.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
