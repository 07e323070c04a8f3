//! What `informerd inject` and the webhook have in common: a configuration of a sidecar is checked as the sidecar reads it.

use std::io;
use std::path::Path;

use informerd_injection::{CONFIG_FILE, InjectionConfig, Injector};

use crate::args::InjectArgs;
use crate::config::{self, Flags, InjectSettings, Source};

/// Where sidecars are expected to answer probes.
const PROBES_PORT: u16 = 8003;

/// The world in which a sidecar reads its configuration.
struct Inside<'a> {
    config: &'a str,
    variables: &'a [(String, String)],
}

/// Changes manifests and prints them.
pub(super) fn rewrite(
    settings: &InjectSettings,
    wanted: &InjectArgs,
    out: &mut dyn io::Write,
    err: &mut dyn io::Write,
) -> Result<(), String> {
    let mut config = settings.config.clone();
    config.image = wanted.image.clone().unwrap_or(config.image);
    informerd_injection::rewrite_files(&wanted.files, wanted.mode, &injector(config)?, out, err)
}

pub(super) fn injector(config: InjectionConfig) -> Result<Injector, String> {
    Injector::new(config, check)
}

/// Whether a sidecar would start with this configuration, and answer its probes.
fn check(config: &str, variables: &[(String, String)]) -> Result<(), String> {
    let loaded = config::load(&Flags::new(), &Inside { config, variables }).map_err(|mistakes| mistakes.to_string())?;
    match loaded.config.admin.probes {
        Some(address) if address.port() == PROBES_PORT => Ok(()),
        _ => Err(format!("probes must be on port {PROBES_PORT}, such as 0.0.0.0:{PROBES_PORT}")),
    }
}

// === impl Inside ===

impl Source for Inside<'_> {
    fn variable(&self, name: &str) -> Result<Option<String>, String> {
        let known = self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        Ok(known.or_else(|| (name == "POD_NAMESPACE").then(|| "default".to_owned())))
    }

    fn variable_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if path == Path::new(CONFIG_FILE) { Ok(self.config.to_owned()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}
