//! The flags. Those of cargo's own test harness are taken and do nothing, so that `cargo test -- --nocapture` works;
//! a bare word selects phases by a part of their name, as it selects tests there.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
cargo test --test differential -- [flags]
  --phase NAME       curated, generated, scripts, watches, pages, shards, tables or proof; may be repeated; all without it
  --seed N           the first seed (1)
  --seeds N          so many seeds, consecutive (1)
  --requests N       generated requests for each seed (2000)
  --request N        of the generated requests only this one
  --filter TEXT      only curated rows whose id is this, and generated requests whose row has it in it
  --long             10 seeds
  --mode MODE        how the daemon answers consistent reads: defaults, probe or both (both)
  --direct URL       compare these two endpoints instead of starting a kube-apiserver and a daemon; fixtures are made
  --through URL        at the first one and removed at the end
  --ca FILE          the first one's certificate authority, PEM
  --token TOKEN      the bearer token for the first one; --token-file FILE likewise
  --cert FILE --key FILE  the client certificate for the first one
  --through-ca FILE, --through-token TOKEN  of the second one";

/// Phases in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Curated,
    Generated,
    Scripts,
    Watches,
    Pages,
    Shards,
    Tables,
    Proof,
}

/// Which consistent reads the daemon serves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As it comes. So few objects stay plain.
    Defaults,
    /// Every read from the cache, once it is proved to be fresh, and all objects packed.
    Probe,
}

#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub phases: Vec<Phase>,
    pub seed: u64,
    pub seeds: u64,
    pub requests: u64,
    pub request: Option<u64>,
    pub filter: Option<String>,
    pub modes: Vec<Mode>,
    pub direct: Option<String>,
    pub through: Option<String>,
    pub ca: Option<PathBuf>,
    pub token: Option<String>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub through_ca: Option<PathBuf>,
    pub through_token: Option<String>,
    /// Only say which phases there are.
    pub list: bool,
}

// === impl Phase ===

impl Phase {
    pub(crate) const ALL: [Self; 8] = [
        Self::Curated,
        Self::Generated,
        Self::Scripts,
        Self::Watches,
        Self::Pages,
        Self::Shards,
        Self::Tables,
        Self::Proof,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Curated => "curated",
            Self::Generated => "generated",
            Self::Scripts => "scripts",
            Self::Watches => "watches",
            Self::Pages => "pages",
            Self::Shards => "shards",
            Self::Tables => "tables",
            Self::Proof => "proof",
        }
    }
}

// === impl Mode ===

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Probe => "probe",
        }
    }

    /// What the daemon's configuration says for it.
    pub(crate) fn yaml(self) -> &'static str {
        match self {
            Self::Defaults => "",
            Self::Probe => {
                "consistentReads: { get: probe, list: probe, watch: probe }\n\
                 memory: { form: packed, hotBytes: 0 }\n"
            }
        }
    }
}

// === impl Args ===

impl Args {
    /// Fails with a message on a flag that nobody knows, or a value that is none.
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            phases: Vec::new(),
            seed: 1,
            seeds: 1,
            requests: 2000,
            request: None,
            filter: None,
            modes: vec![Mode::Defaults, Mode::Probe],
            direct: None,
            through: None,
            ca: None,
            token: None,
            certificate: None,
            key: None,
            through_ca: None,
            through_token: None,
            list: false,
        };
        let (mut words, mut skips, mut exact) = (Vec::new(), Vec::new(), false);
        while let Some(arg) = given.next() {
            let (flag, inline) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
                _ => (arg, None),
            };
            let mut value = || inline.clone().or_else(|| given.next()).ok_or(format!("{flag} wants a value"));
            let number = |text: String| text.parse::<u64>().map_err(|_| format!("{flag}: {text} is no number"));
            match flag.as_str() {
                "--phase" => {
                    let name = value()?;
                    let known = Phase::ALL.into_iter().find(|phase| phase.name() == name);
                    args.phases.push(known.ok_or(format!("there is no phase {name}"))?);
                }
                "--seed" => args.seed = number(value()?)?,
                "--seeds" => args.seeds = number(value()?)?,
                "--requests" => args.requests = number(value()?)?,
                "--request" => args.request = Some(number(value()?)?),
                "--filter" => args.filter = Some(value()?),
                "--long" => args.seeds = 10,
                "--mode" => {
                    args.modes = match value()?.as_str() {
                        "defaults" => vec![Mode::Defaults],
                        "probe" => vec![Mode::Probe],
                        "both" => vec![Mode::Defaults, Mode::Probe],
                        other => return Err(format!("there is no mode {other}")),
                    }
                }
                "--direct" => args.direct = Some(value()?),
                "--through" => args.through = Some(value()?),
                "--ca" => args.ca = Some(value()?.into()),
                "--token" => args.token = Some(value()?),
                "--token-file" => {
                    let path = value()?;
                    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
                    args.token = Some(text.trim().to_owned());
                }
                "--cert" => args.certificate = Some(value()?.into()),
                "--key" => args.key = Some(value()?.into()),
                "--through-ca" => args.through_ca = Some(value()?.into()),
                "--through-token" => args.through_token = Some(value()?),
                // Of cargo's harness.
                "--list" => args.list = true,
                "--exact" => exact = true,
                "--skip" => skips.push(value()?),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(value()?),
                "--nocapture" | "--no-capture" | "--show-output" | "--quiet" | "-q" | "--ignored"
                | "--include-ignored" | "--test" | "--bench" | "--report-time" | "--shuffle" => {}
                flag if flag.starts_with('-') => return Err(format!("there is no flag {flag}")),
                word => words.push(word.to_owned()),
            }
        }
        if args.direct.is_some() != args.through.is_some() {
            return Err("--direct and --through go together".to_owned());
        }
        // In their own order: the first ones want a world in which nothing has happened yet.
        let chosen = std::mem::replace(&mut args.phases, Phase::ALL.to_vec());
        args.phases.retain(|phase| chosen.is_empty() || chosen.contains(phase));
        args.phases.retain(|phase| {
            let name = format!("differential::{}", phase.name());
            let named = |word: &String| if exact { name == *word } else { name.contains(word.as_str()) };
            (words.is_empty() || words.iter().any(named)) && !skips.iter().any(named)
        });
        Ok(args)
    }
}
