//! `informerd inject`, and what it has in common with the webhook.

use std::io::{self, Read as _};
use std::path::Path;

use crate::args::InjectArgs;
use crate::config::{self, Flags, InjectSettings, Source};
use crate::injection::{self, CONFIG_FILE, InjectionConfig, Injector, Sidecar};

/// The most bytes of all manifests together.
const MOST: u64 = 256 << 20;
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
    let injector = injector(config)?;
    let standard_input = ["-".into()];
    let files = if wanted.files.is_empty() { &standard_input[..] } else { &wanted.files };
    let (mut all, mut notes) = (String::new(), Vec::new());
    for file in files {
        let text = read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let done = injection::rewrite(&text, wanted.mode, &injector);
        let done = done.map_err(|error| format!("{}: {error}", file.display()))?;
        if !all.is_empty() && !done.text.starts_with("---") {
            all.push_str("---\n");
        }
        all.push_str(&done.text);
        notes.extend(done.notes);
    }
    out.write_all(all.as_bytes()).map_err(|error| error.to_string())?;
    for note in notes {
        // If this cannot be written either, there is no other way to report it.
        let _ = writeln!(err, "informerd: {note}");
    }
    Ok(())
}

fn read(file: &Path) -> io::Result<String> {
    let reader: Box<dyn io::Read> =
        if file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut text = String::new();
    if reader.take(MOST + 1).read_to_string(&mut text)? as u64 > MOST {
        return Err(io::Error::other(format!("more than {MOST} bytes")));
    }
    Ok(text)
}

pub(super) fn injector(config: InjectionConfig) -> Result<Injector, String> {
    let sidecar = Sidecar::built_in().map_err(|error| format!("the built-in sidecar: {error}"))?;
    Ok(Injector { config, sidecar, check })
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
