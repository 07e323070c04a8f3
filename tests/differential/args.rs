//! The flags. Those of cargo's own test harness are taken and do nothing, so that `cargo test -- --nocapture` works;
//! a bare word selects phases by a part of their name, as it selects tests there.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// What cargo's harness has, and this one has no use for.
const HARNESS: [&str; 8] =
    ["no-capture", "show-output", "ignored", "include-ignored", "test", "bench", "report-time", "shuffle"];

/// Phases in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    Curated,
    Generated,
    Scripts,
    Watches,
    Pages,
    Shards,
    Users,
    Tables,
    Cuts,
    Proof,
}

/// Which consistent reads the daemon serves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// As it comes. So few objects stay plain.
    Defaults,
    /// Every read from the cache, once it is proved to be fresh, and all objects packed.
    Probe,
}

#[derive(Clone, Debug, Parser)]
#[command(name = "cargo test --test differential --", no_binary_name = true)]
pub(crate) struct Args {
    /// Only these phases; may be repeated.
    #[arg(long = "phase")]
    pub phases: Vec<Phase>,
    /// The first seed.
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// So many seeds, consecutive.
    #[arg(long, default_value = "1")]
    pub seeds: u64,
    /// Ten seeds.
    #[arg(long, conflicts_with = "seeds")]
    long: bool,
    /// Generated requests for each seed.
    #[arg(long, default_value = "2000")]
    pub requests: u64,
    /// Of the generated requests only this one.
    #[arg(long)]
    pub request: Option<u64>,
    /// Only curated rows whose id is this, and generated requests whose row has it in it.
    #[arg(long)]
    pub filter: Option<String>,
    /// How the daemon answers consistent reads; both without it.
    #[arg(long = "mode")]
    pub modes: Vec<Mode>,
    /// Compares this endpoint with the one of --through, instead of starting a kube-apiserver and a daemon. Fixtures are made
    /// at this one and removed at the end.
    #[arg(long, requires = "through")]
    pub direct: Option<String>,
    #[arg(long, requires = "direct")]
    pub through: Option<String>,
    /// Of the first one, PEM.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// For the first one.
    #[arg(long)]
    pub token: Option<String>,
    /// For the first one.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// For the first one.
    #[arg(long = "cert", requires = "key")]
    pub certificate: Option<PathBuf>,
    #[arg(long)]
    pub key: Option<PathBuf>,
    /// Of the second one, PEM.
    #[arg(long)]
    pub through_ca: Option<PathBuf>,
    /// For the second one.
    #[arg(long)]
    pub through_token: Option<String>,
    /// Only says which phases there are.
    #[arg(long)]
    pub list: bool,
    /// Words select phases by a part of their name, or all of it.
    words: Vec<String>,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    skip: Vec<String>,
    /// Of cargo's harness, and without effect.
    #[arg(long, hide = true, overrides_with = "nocapture", aliases = HARNESS)]
    nocapture: bool,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    test_threads: Option<String>,
    #[arg(long, hide = true)]
    format: Option<String>,
    #[arg(long, hide = true)]
    color: Option<String>,
    #[arg(short = 'Z', hide = true)]
    unstable: Option<String>,
}

// === impl Phase ===

impl Phase {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

// === impl Mode ===

impl Mode {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What the daemon's configuration says for it.
    pub(crate) fn yaml(self) -> &'static str {
        match self {
            Self::Defaults => "",
            Self::Probe => "consistentReads: probe\nmemory: { form: packed }\n",
        }
    }
}

// === impl Args ===

impl Args {
    /// Whether all of the phase runs, of which something is known, and not a few chosen requests.
    pub(crate) fn is_whole(&self, phase: Phase) -> bool {
        self.filter.is_none() && self.request.is_none() && self.requests >= 2000 && self.phases.contains(&phase)
    }

    /// Fails with a message on a flag that nobody knows, or a value that is none.
    pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::try_parse_from(given).map_err(|error| error.to_string())?;
        if let Some(path) = &args.token_file {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            args.token = Some(text.trim().to_owned());
        }
        if args.long {
            args.seeds = 10;
        }
        if args.modes.is_empty() {
            args.modes = vec![Mode::Defaults, Mode::Probe];
        }
        // In their own order: the first ones want a world in which nothing has happened yet.
        let chosen = std::mem::replace(&mut args.phases, Phase::value_variants().to_vec());
        let Self { words, skip, exact, .. } = args.clone();
        args.phases.retain(|phase| {
            let name = format!("differential::{}", phase.name());
            let named = |word: &String| if exact { name == *word } else { name.contains(word.as_str()) };
            (chosen.is_empty() || chosen.contains(phase))
                && (words.is_empty() || words.iter().any(named))
                && !skip.iter().any(named)
        });
        Ok(args)
    }
}
