//! Combines the layers and converts them to typed settings.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::expand::expand;
use super::file::{File, Node, Value};
use super::kubeconfig;
use super::layers::{Effective, Loader, Raw};
use super::otel;
use super::parse::{
    beyond_this_machine, choice, parse_anonymous, parse_automatic_count, parse_bool, parse_client_ca,
    parse_consistent_reads, parse_count, parse_group, parse_host, parse_keeps, parse_lend_identity, parse_memory_size,
    parse_mode, parse_name, parse_not_synced, parse_only_tls13, parse_packing_form, parse_protobuf, parse_signer,
    parse_token_ttl, parse_while_away, positive_count, positive_duration,
};
use super::removed::removed_variables;
use super::resources::parse_rules;
use super::sections::{Config, InformerConfig, MemoryConfig, UpstreamConfig, parse_memory_limit};
use super::setting::CONFIG;
use super::{
    Flags, Mistake, Mistakes, Origin, ResourcePattern, ResourceRule, SETTINGS, Setting, Source, nearest, parse_size,
};
use crate::auth::audit::{AuditConfig, Policy};
use crate::auth::{AuthConfig, Mode};
use crate::authority::{AuthorityConfig, Lifetimes, RequestConfig, SignerConfig};
use crate::grpc::QueueConfig;
use crate::http::{CertificateFiles, HttpConfig, ListenAddr};
use crate::packing::PackingConfig;
use crate::passthrough::LendIdentity;
use crate::reads::{FRESHNESS_TIMEOUT, Modes, NotSynced, ReadsConfig};
use crate::snapshots::{Key, SnapshotConfig};
use crate::telemetry::LogConfig;
use crate::telemetry::lines::LinesTo;
use crate::telemetry::otel::OtelConfig;

/// A configuration without mistakes.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The settings that were set, and their origins, for the log. Defaults are not included.
    pub effective: Vec<Effective>,
    /// Problems that do not prevent the start.
    pub warnings: Vec<String>,
}

/// Reads flags, environment and file.
///
/// # Errors
/// All mistakes in any of them.
pub fn load(flags: &Flags, source: &dyn Source) -> Result<Loaded, Mistakes> {
    let mut loader = Loader::new(flags, source);
    loader.read_file();
    let config = loader.config();
    loader.mistakes.extend(removed_variables(source));
    let (otel, mut warnings) = otel::read(source, &mut loader.mistakes);
    warnings.extend(loader.unknown_variables());
    loader.add_missing_kubeconfig();
    match (config, loader.mistakes.is_empty()) {
        (Some(config), true) => Ok(Loaded { config: Config { otel, ..config }, effective: loader.effective, warnings }),
        _ => Err(Mistakes(loader.mistakes)),
    }
}

/// The apiserver seldom has events that are older than a few minutes.
const SNAPSHOT_AGE: Duration = Duration::from_secs(900);

// === impl Loader ===

impl Loader<'_> {
    fn new<'a>(flags: &'a Flags, source: &'a dyn Source) -> Loader<'a> {
        Loader { flags, source, file: File::default(), mistakes: Vec::new(), effective: Vec::new() }
    }

    fn read_file(&mut self) {
        let Some((origin, path)) = self.one(CONFIG.key) else { return };
        match self.source.read(Path::new(&path)) {
            Ok(text) => self.file = File::parse(Path::new(&path), &text, &mut self.mistakes),
            Err(error) => self.mistakes.push(Mistake::new(origin, format!("{path}: {error}"))),
        }
    }

    /// Commands that read the named kubeconfig report that it does not exist. If they do not get so far because of other
    /// mistakes, it is listed with them.
    fn add_missing_kubeconfig(&mut self) {
        if self.mistakes.is_empty() {
            return;
        }
        let Some((origin, path)) = self.one("kubeconfig") else { return };
        if let Err(error) = self.source.read(Path::new(&path))
            && error.kind() == ErrorKind::NotFound
        {
            self.mistakes.push(Mistake::new(origin, format!("{path}: {error}")));
        }
    }

    /// Parses every setting, so that every mistake is found. Returns `None` only after a mistake.
    fn config(&mut self) -> Option<Config> {
        let named = self.path("kubeconfig").map(|path| vec![path]);
        let kubeconfigs = named.unwrap_or_else(|| kubeconfig::discover(self.source));
        let is_person = !kubeconfigs.is_empty();
        let context = self.one("context").map(|(_, text)| text);
        if !is_person && context.is_some() {
            self.wrong("context", "is of no use without a kubeconfig");
        }
        let state_dir = self.path("stateDir").unwrap_or_else(|| self.default_state_dir());
        let drain_timeout = self.duration("drain.timeout");
        let http = self.http(state_dir.clone(), drain_timeout);
        let auth = self.auth();
        let shared_groups = self.many("authorization.sharedAggregatedGroups", parse_group);
        let (authority, certificate_request) = self.authority(http.as_ref());
        let given = authority.is_some() || certificate_request.is_some();
        let drop_in_dir = self.drop_in_dir(http.as_ref(), given, is_person);
        let audit = self.audit();
        let access_log = self.lines("access.log");
        let admin = self.admin();
        let probes = self.optional("probes", |text| {
            text.parse::<SocketAddr>().map_err(|_| format!("{text:?} is no address: want ADDRESS:PORT"))
        });
        let lend_identity = match self.optional("lendIdentity", parse_lend_identity) {
            Some(chosen) => chosen,
            None if is_person => LendIdentity::All,
            None => LendIdentity::Reads,
        };
        let rules = self.rules();
        let modes = Modes {
            consistent: self.parse("consistentReads", parse_consistent_reads)?,
            protobuf: self.parse("protobuf", parse_protobuf)?,
            while_away: self.parse("whileAway", parse_while_away)?,
        };
        let (wait, forward) = (self.duration("notSynced.wait"), self.parse("notSynced.then", parse_not_synced));
        // All rules are needed: the first match decides, even if it does not set modes.
        let exceptions = rules.iter().map(|rule| {
            let ResourcePattern { group, resource } = rule.pattern.clone();
            (group, resource, rule.modes.over(modes))
        });
        let exceptions = exceptions.collect();
        let idle_timeout = self.parse("idleTimeout", positive_duration);
        let max_informers = self.parse("limits.maxInformers", parse_automatic_count);
        let store_check = self.duration("storeCheck");
        let window_max_bytes = self.parse("window.maxBytes", parse_memory_size);
        let memory = self.memory();
        let snapshots = self.snapshots();
        let inject = self.inject();
        let threads = self.parse("threads", parse_count).map(|count| (count > 0).then_some(count));
        let log = self.log();
        Some(Config {
            upstream: UpstreamConfig { kubeconfigs, context },
            http: http.map(|mut http| {
                http.tls.given = given;
                http.tls.client_certificates = auth.as_ref().is_some_and(|auth| auth.client_ca.is_some());
                http
            })?,
            authority,
            certificate_request,
            auth: auth?,
            audit,
            access_log,
            admin: crate::admin::Config { listen: admin?, probes },
            state_dir,
            drop_in_dir,
            lend_identity,
            informer: InformerConfig {
                rules,
                idle_timeout: idle_timeout?,
                max_informers: max_informers?,
                store_check: store_check?,
            },
            reads: ReadsConfig {
                modes,
                exceptions,
                not_synced: NotSynced { wait: wait?, forward: forward? },
                freshness_timeout: FRESHNESS_TIMEOUT,
                shared_groups,
            },
            queues: QueueConfig::default(),
            window_max_bytes: window_max_bytes?,
            memory: memory?,
            snapshots: snapshots?,
            drain_timeout: drain_timeout?,
            inject: inject?,
            threads: threads?,
            log: log?,
            otel: OtelConfig::default(),
        })
    }

    fn memory(&mut self) -> Option<MemoryConfig> {
        let limit = self.parse("limits.memory", parse_memory_limit);
        let form = self.parse("memory.form", parse_packing_form);
        Some(MemoryConfig { limit: limit?, form: form?, hot_bytes: PackingConfig::default().hot_bytes })
    }

    fn snapshots(&mut self) -> Option<Option<SnapshotConfig>> {
        let max_bytes = self.parse("snapshots.maxBytes", parse_size);
        let source = self.source;
        let key = self.optional("snapshots.key", |path| {
            let text = source.read(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
            Key::parse(&text).map_err(|error| format!("{path}: {error}"))
        });
        let Some(dir) = self.path("snapshots.dir") else {
            if key.is_some() {
                self.wrong("snapshots.key", "needs snapshots.dir beside it");
            }
            return Some(None);
        };
        Some(Some(SnapshotConfig { dir, max_bytes: max_bytes?, max_age: SNAPSHOT_AGE, key }))
    }

    fn http(&mut self, state_dir: PathBuf, drain_timeout: Option<Duration>) -> Option<HttpConfig> {
        let mut http = HttpConfig::new(self.listen(), state_dir);
        http.tls.files = self.tls();
        http.tls.names = self.many("tls.names", parse_host);
        http.hosts = self.many("allowedHosts", parse_host);
        let unix_mode = self.parse("unixMode", parse_mode);
        let max_connections = self.parse("limits.maxConnections", positive_count);
        let write_stall_timeout = self.parse("limits.writeStallTimeout", positive_duration);
        let age = self.duration("limits.grpcConnectionAge");
        let explain = self.parse("explainHeader", parse_bool);
        let lend_sessions = self.parse("lendSessions", parse_bool);
        let only_tls13 = self.parse("tls.minVersion", parse_only_tls13);
        http.drain_spread = http.drain_spread.min(drain_timeout?);
        http.explain = explain?;
        http.lend_sessions = lend_sessions?;
        http.tls.only_tls13 = only_tls13?;
        http.unix_mode = unix_mode?;
        http.max_connections = max_connections?;
        http.write_stall_timeout = write_stall_timeout?;
        http.age = age?;
        Some(http)
    }

    fn listen(&mut self) -> Vec<ListenAddr> {
        let found = self.many("listen", |text| {
            let address: ListenAddr = text.parse().map_err(|error| format!("{error}"))?;
            let may = address.is_local() || address.mode() == Mode::Delegated;
            if may { Ok(address) } else { Err(beyond_this_machine(text)) }
        });
        for (index, address) in found.iter().enumerate() {
            let takes_free_port = match address {
                ListenAddr::Http(at) | ListenAddr::Https(at) | ListenAddr::Delegated(at) => at.port() == 0,
                ListenAddr::Unix(_) => false,
            };
            if !takes_free_port && found[..index].contains(address) {
                self.wrong("listen", &format!("{address} is there twice"));
            }
        }
        found
    }

    fn auth(&mut self) -> Option<AuthConfig> {
        let client_ca = self.optional("authentication.clientCa", parse_client_ca);
        let audiences = self.many("authentication.audiences", parse_name);
        let node = self.optional("authentication.node", parse_name);
        let anonymous = self.parse("authentication.anonymous", parse_anonymous);
        let token_ttl = self.parse("authentication.ttl", parse_token_ttl);
        let allow_ttl = self.parse("authorization.allowTtl", positive_duration);
        let max_away_age = self.parse("authorization.whileAway", parse_keeps);
        Some(AuthConfig {
            client_ca,
            audiences,
            node,
            anonymous: anonymous?,
            token_ttl: token_ttl?,
            allow_ttl: allow_ttl?,
            max_away_age: max_away_age?,
            ..AuthConfig::default()
        })
    }

    fn authority(&mut self, http: Option<&HttpConfig>) -> (Option<AuthorityConfig>, Option<RequestConfig>) {
        let config_maps = self.many("tls.caConfigMaps", str::parse);
        let lifetimes = self.parse("tls.caLifetime", positive_duration).map(Lifetimes::of);
        let secret = self.optional("tls.caSecret", str::parse);
        let signer = self.optional("tls.signer", parse_signer);
        let account = self.optional("tls.signerAccount", str::parse);
        if account.is_some() && (secret.is_none() || signer.is_none()) {
            self.wrong("tls.signerAccount", "needs tls.caSecret and tls.signer");
        }
        let Some(lifetimes) = lifetimes else { return (None, None) };
        let has_files = http.is_some_and(|http| http.tls.files.is_some());
        let Some(secret) = secret else {
            let names = http.map(|http| http.tls.names.clone()).unwrap_or_default();
            if signer.is_some() && (has_files || names.is_empty()) {
                let why = if has_files { "cannot be together with tls.certFile" } else { "needs tls.names" };
                self.wrong("tls.signer", why);
            }
            return (None, signer.map(|signer| RequestConfig { signer, names, lasts: lifetimes.leaf }));
        };
        if has_files {
            self.wrong("tls.caSecret", "cannot be together with tls.certFile");
        }
        if signer.is_some() && account.is_none() {
            self.wrong("tls.signer", "needs tls.signerAccount beside tls.caSecret");
        }
        let signer = signer.zip(account).map(|(name, account)| SignerConfig { name, account });
        (Some(AuthorityConfig { secret, config_maps, webhook: None, lifetimes, signer }), None)
    }

    fn audit(&mut self) -> Option<AuditConfig> {
        let source = self.source;
        let policy = self.optional("audit.policyFile", |path| {
            let text = source.read(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
            Policy::parse(&text).map_err(|error| format!("{path}: {error}"))
        });
        let sink = self.lines("audit.log")?;
        Some(AuditConfig { sink, policy: policy.unwrap_or_default() })
    }

    /// The destination of a line log. `None` if it is off.
    fn lines(&mut self, key: &str) -> Option<LinesTo> {
        let (_, log) = self.one(key)?;
        Some(match log.as_str() {
            "off" => return None,
            "stdout" => LinesTo::Stdout,
            path => LinesTo::File(path.into()),
        })
    }

    fn admin(&mut self) -> Option<SocketAddr> {
        self.parse("admin", |text| {
            let address =
                text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
            let address: SocketAddr =
                address.parse().map_err(|_| format!("{text:?} is no address: want ADDRESS:PORT"))?;
            if address.ip().is_loopback() {
                Ok(address)
            } else {
                Err(format!(
                    "{text} can be reached from other machines, which the admin side must not: use a loopback address"
                ))
            }
        })
    }

    fn default_state_dir(&self) -> PathBuf {
        let set = |name| self.source.variable(name).ok().flatten().filter(|value| Path::new(value).is_absolute());
        let base = set("XDG_STATE_HOME").map(PathBuf::from);
        let base = base.or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/state")));
        base.unwrap_or_else(|| PathBuf::from("/var/lib")).join("informerd")
    }

    fn drop_in_dir(&mut self, http: Option<&HttpConfig>, shared: bool, kubeconfig: bool) -> Option<PathBuf> {
        let directory = self.path("dropInDir")?;
        if kubeconfig {
            self.wrong("dropInDir", "is for the ServiceAccount of a pod, not for a kubeconfig");
        }
        let is_https = |address: &ListenAddr| matches!(address, ListenAddr::Https(_));
        if http.is_some_and(|http| shared || http.tls.files.is_some() || !http.listen.iter().any(is_https)) {
            self.wrong("dropInDir", "needs an https:// listener with a self-issued certificate");
        }
        Some(directory)
    }

    fn tls(&mut self) -> Option<CertificateFiles> {
        match (self.path("tls.certFile"), self.path("tls.keyFile")) {
            (Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
            (None, None) => None,
            (Some(_), None) => {
                self.wrong("tls.certFile", "needs tls.keyFile beside it");
                None
            }
            (None, Some(_)) => {
                self.wrong("tls.keyFile", "needs tls.certFile beside it");
                None
            }
        }
    }

    fn rules(&mut self) -> Vec<ResourceRule> {
        let Some((origin, raw)) = self.raw("resources") else { return Vec::new() };
        let node = match raw {
            Raw::Node(node) => node,
            Raw::Texts(texts) => match Node::parse(texts.last().map_or("", String::as_str)) {
                Ok(Node { value: Value::Null, .. }) => return Vec::new(),
                Ok(node) => node,
                Err((_, message)) => {
                    self.mistakes.push(Mistake::new(origin, message));
                    return Vec::new();
                }
            },
        };
        let mut found = Vec::new();
        let source = self.source;
        let rules = parse_rules(&node, &|text| expand(text, source), &mut found);
        for (line, place, message) in found {
            let (origin, message) = match &origin {
                Origin::File { path, .. } => {
                    (Origin::File { path: path.clone(), line, key: format!("resources{place}") }, message)
                }
                origin if place.is_empty() => (origin.clone(), message),
                origin => (origin.clone(), format!("{place}: {message}")),
            };
            self.mistakes.push(Mistake::new(origin, message));
        }
        rules
    }

    fn log(&mut self) -> Option<LogConfig> {
        let filter = self.parse("log.level", |text| LogConfig::check_filter(text).map(|()| text.to_owned()));
        let json = self.parse("log.format", |text| choice(text, &[("text", false), ("json", true)]));
        Some(LogConfig { filter: filter?, json: json? })
    }

    /// Finds variables that look like informerd settings but are unknown. They only cause a warning: a Service named
    /// informerd adds such variables to every pod of its namespace.
    fn unknown_variables(&self) -> Vec<String> {
        let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
        let mut names = self.source.variable_names();
        names.sort();
        names
            .iter()
            .filter(|name| !known.contains(name))
            .filter_map(|name| {
                let rest = name.strip_prefix("INFORMERD_")?;
                let near = nearest(rest, known.iter().filter_map(|known| known.strip_prefix("INFORMERD_")))?;
                Some(format!("{name}: there is no such setting; did you mean INFORMERD_{near}?"))
            })
            .collect()
    }
}
