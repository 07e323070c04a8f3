use std::path::PathBuf;
use std::time::Duration;

use super::mistake::MOST_SUGGESTED;
use super::parse::{MAX_AWAY_AGE, MAX_TOKEN_TTL};
use super::source::MadeUp;
use super::*;
use crate::passthrough::LendIdentity;
use crate::reads::{ConsistentReads, ProtobufReads};

const FILE: &str = "/etc/informerd.yaml";

fn flags(flags: &[(&'static str, &[&str])]) -> Flags {
    flags.iter().map(|(key, texts)| (*key, texts.iter().map(|&text| text.to_owned()).collect())).collect()
}

fn from_file(text: &str) -> Result<Loaded, Mistakes> {
    load(&flags(&[("config", &[FILE])]), &MadeUp::default().file(FILE, text))
}

fn mistakes(result: Result<Loaded, Mistakes>) -> Vec<String> {
    result.expect_err("there are mistakes").0.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults() {
    let config = load(&Flags::new(), &MadeUp::default()).unwrap().config;
    assert_eq!(config.http.listen.iter().map(ToString::to_string).collect::<Vec<_>>(), ["http://127.0.0.1:8001"]);
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:8002");
    assert_eq!(config.http.unix_mode, 0o600);
    assert_eq!(config.reads.modes.consistent, ConsistentReads::Auto);
}

#[test]
fn flags_win_over_environment_over_file() {
    let world = MadeUp::default()
        .variable("INFORMERD_CONFIG", FILE)
        .variable("INFORMERD_IDLE_TIMEOUT", "2m")
        .variable("INFORMERD_THREADS", "2")
        .variable("INFORMERD_LISTEN", "http://127.0.0.1:1, unix:///a")
        .file(FILE, "idleTimeout: 1m\nthreads: 1\nwindow:\n  maxBytes: 2Mi\nlisten: ['http://127.0.0.1:9']\n");
    let loaded = load(&flags(&[("idleTimeout", &["3m"])]), &world).unwrap();
    let config = &loaded.config;
    assert_eq!(config.informer.idle_timeout, Duration::from_secs(180), "flag");
    assert_eq!(config.threads, Some(2), "environment");
    assert_eq!(config.window_max_bytes, 2 << 20, "file");
    assert_eq!(config.http.listen.len(), 2, "a list is taken whole from the layer that wins");
    let effective: Vec<_> = loaded.effective.iter().map(ToString::to_string).collect();
    assert!(effective.contains(&"idleTimeout=3m (--idle-timeout)".to_owned()), "{effective:?}");
    assert!(effective.contains(&"threads=2 (INFORMERD_THREADS)".to_owned()), "{effective:?}");
    assert!(effective.contains(&format!("window.maxBytes=2Mi ({FILE}:4: window.maxBytes)")), "{effective:?}");
}

#[test]
fn what_may_be_meant_is_searched_for_few_mistakes() {
    let keys: Vec<_> = (0..2_040).map(|n| format!("anonymous{n:04}: 1")).collect();
    let rules: Vec<_> = (0..100).map(|_| "{resource: pods, pinn: true}").collect();
    for (text, all) in [
        (format!("authentication: {{{}}}", keys.join(", ")), keys.len()),
        (format!("resources: [{}]", rules.join(", ")), rules.len()),
    ] {
        let found = mistakes(from_file(&text));
        assert_eq!(found.len(), all);
        assert_eq!(found.iter().filter(|mistake| mistake.contains("did you mean")).count(), MOST_SUGGESTED);
    }
}

#[test]
fn every_mistake_is_told_at_once_with_its_origin() {
    let world = MadeUp::default()
        .variable("INFORMERD_NOT_SYNCED_WAIT", "5")
        .file(FILE, "lissen: x\nwindow:\n  maxBytes: old\n  maxbites: 1s\nnotSynced: 5s\nresources:\n- pin: maybe\n");
    let flags =
        flags(&[("config", &[FILE]), ("admin", &["0.0.0.0:8002"]), ("listen", &["http://10.0.0.1:1", "ftp://x"])]);
    let found = mistakes(load(&flags, &world));
    let starts = [
        "/etc/informerd.yaml:1: lissen: there is no such setting; did you mean listen?",
        "/etc/informerd.yaml:4: window.maxbites: there is no such setting; did you mean window.maxBytes?",
        "/etc/informerd.yaml:5: notSynced: want a mapping",
        "--listen: http://10.0.0.1:1 can be reached from other machines",
        "--listen: \"ftp://x\" is no listen address",
        "--admin: 0.0.0.0:8002 can be reached from other machines",
        "/etc/informerd.yaml:7: resources[0].pin: \"maybe\" is none of true, false",
        "/etc/informerd.yaml:7: resources[0]: names no resource",
        "INFORMERD_NOT_SYNCED_WAIT: \"5\" is no duration",
        "/etc/informerd.yaml:3: window.maxBytes: \"old\" is no size",
    ];
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}\nwanted {start}");
    }
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    assert!(found.iter().all(|mistake| !mistake.contains('\n')), "one line each");
}

#[test]
fn a_file_that_cannot_be_read_or_parsed() {
    let found = mistakes(load(&flags(&[("config", &["/nowhere"])]), &MadeUp::default()));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("--config: /nowhere: "), "{found:?}");

    for (text, line) in
        [("threads: [1\n", ":"), ("threads: 1\nthreads: 2\n", ":2: threads: is there twice"), ("- a\n", ":1")]
    {
        let found = mistakes(from_file(text));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{FILE}{line}")), "{found:?}");
    }
    for text in ["", "# nothing\n", "window:\n", "threads:\n"] {
        assert!(from_file(text).is_ok(), "{text}");
    }
    assert_eq!(mistakes(from_file("config: /other\n")).len(), 1, "a file names no other file");
    assert_eq!(mistakes(from_file("threads: [1, 2]\n")).len(), 1);
    assert_eq!(mistakes(from_file("threads: {a: 1}\n")).len(), 1);
}

/// It may be the annotation of a pod, which the injector checks.
#[test]
fn what_a_hostile_text_says_is_told_in_short() {
    let words = "x ".repeat(20_000);
    let aliases = vec!["*a"; 1_500].join(", ");
    for (text, told) in [
        (format!("allowedHosts: [&a '{words}', {aliases}]\n"), "anchors and aliases are not accepted"),
        (format!("stateDir: &a '{words}'\nresources: [{}]\n", vec!["{*a : 1}"; 1_000].join(", ")), "not accepted"),
        (format!("? '{words}'\n: 1\n"), "there is no such setting"),
        (format!("window:\n  ? '{words}'\n  : 1\n"), "there is no such setting"),
        (format!("resources:\n- ? '{words}'\n  : 1\n  resource: pods\n"), "there is no such setting"),
        (format!("allowedHosts: ['{words}']\n"), "is no host name: want a name or an address, without a port"),
        (format!("resources: [{{resource: pods, labelSelector: '{words}'}}]\n"), "resources[0].labelSelector: "),
        (format!("log: {{level: '{words}'}}\n"), "is no level"),
    ] {
        let found = mistakes(from_file(&text));
        assert!(found.len() == 1 && found[0].contains(told) && found[0].len() < 600, "{told}: {found:?}");
    }
}

#[test]
fn resources() {
    let text = "
resources:
- resource: pods
  pin: true
  fieldSelector: spec.nodeName=$(NODE_NAME)
- resource: configmaps
  namespaces: [kube-system, default]
  consistentReads: cache
  protobuf: json
  whileAway: serve
- resource: deployments.apps
  labelSelector: app in (a,b)
- resource: '*.example.com'
  exclude: true
- resource: '*'
";
    let world = MadeUp::default().variable("NODE_NAME", "node-1").variable("INFORMERD_CONFIG", FILE).file(FILE, text);
    let config = load(&Flags::new(), &world).unwrap().config;
    let rules = &config.informer.rules;
    assert_eq!(rules.len(), 5);
    assert_eq!(rules[0].field_selector, "spec.nodeName=node-1");
    assert!(rules[0].pin);
    assert_eq!(rules[1].namespaces, ["kube-system", "default"]);
    let modes = rules[1].modes.over(config.reads.modes);
    assert_eq!(modes.consistent, ConsistentReads::Cache);
    assert_eq!((modes.protobuf, modes.while_away), (ProtobufReads::Json, true));
    assert!(!config.reads.modes.while_away);
    assert_eq!((rules[2].pattern.resource.as_str(), rules[2].pattern.group.as_str()), ("deployments", "apps"));
    assert!(rules[3].exclude);
    assert_eq!((rules[4].pattern.resource.as_str(), rules[4].pattern.group.as_str()), ("*", "*"));
}

#[test]
fn resources_as_a_flag_or_a_variable() {
    let yaml = "[{resource: pods, pin: true, fieldSelector: 'spec.nodeName=$(NODE_NAME)'}]";
    let world = MadeUp::default().variable("NODE_NAME", "n").variable("INFORMERD_RESOURCES", yaml);
    let loaded = load(&Flags::new(), &world).unwrap();
    assert_eq!(loaded.config.informer.rules[0].field_selector, "spec.nodeName=n");
    assert!(
        loaded.effective.iter().any(|effective| effective.text.contains("spec.nodeName=n'")),
        "shown as it is used"
    );
    let found = mistakes(load(&flags(&[("resources", &["[{resource: pods, pinn: true}]"])]), &world));
    assert_eq!(found, ["--resources: [0].pinn: there is no such setting; did you mean pin?"]);
}

#[test]
fn mistakes_in_resources() {
    let one = |rule: &str| {
        let found = mistakes(from_file(&format!("resources:\n- {rule}\n")));
        assert_eq!(found.len(), 1, "{rule}: {found:?}");
        found.into_iter().next().unwrap()
    };
    assert!(one("pods").contains("want a mapping, not a single value"));
    assert!(one("{resource: Pods}").contains("names no resource"));
    assert!(one("{resource: '*', pin: true}").contains("only a resource that is named can be pinned"));
    assert!(one("{resource: pods, exclude: true, namespaces: [a]}").contains("would have no effect"));
    assert!(one("{resource: pods, namespaces: []}").contains("is empty"));
    assert!(one("{resource: pods, namespaces: [A_b]}").contains("no name of a namespace"));
    assert!(one("{resource: pods, fieldSelector: a=b, labelSelector: c=d}").contains("not both"));
    assert!(one("{resource: pods, labelSelector: 'a in b'}").contains("resources[0].labelSelector"));
    assert!(one("{resource: pods, fieldSelector: 'spec.nodeName=$(NODE_NAME)'}").contains("NODE_NAME is not set"));
    assert!(one("{resource: pods, consistentReads: fresh}").contains("none of auto, bounded, upstream, probe, cache"));
    assert!(one("{resource: pods, consistentReads: bounded=0s}").contains("resources[0].consistentReads: bounded=: "));
    let was = one("{resource: pods, consistentReads: {list: bounded, maxAge: 1s}}");
    assert!(was.contains("resources[0].consistentReads: write one mode"), "{was}");
    let found = mistakes(from_file("resources:\n- resource: '*'\n- resource: pods\n"));
    assert_eq!(found, [format!("{FILE}:3: resources[1].resource: can never apply, rule * decides first")]);
    assert_eq!(mistakes(from_file("resources: pods\n")).len(), 1);
}

#[test]
fn settings_that_depend_on_each_other() {
    let found = mistakes(from_file("tls: {certFile: /a}\ncontext: c\n"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|found| found.contains("tls.certFile: needs tls.keyFile")));
    assert!(found.iter().any(|found| found.contains("context: is of no use without a kubeconfig")));
    let twice = load(&flags(&[("listen", &["unix:///a", "unix:///a"])]), &MadeUp::default());
    assert_eq!(mistakes(twice), ["--listen: unix:///a is there twice"]);
    let twice = load(&flags(&[("listen", &["http://127.0.0.1:0", "http://127.0.0.1:0"])]), &MadeUp::default());
    assert_eq!(twice.unwrap().config.http.listen.len(), 2, "two free ports");
}

#[test]
fn a_missing_kubeconfig_is_listed_with_other_mistakes() {
    let wrong = flags(&[("kubeconfig", &["/no"]), ("threads", &["many"])]);
    let found = mistakes(load(&wrong, &MadeUp::default()));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].starts_with("--kubeconfig: /no: "), "{found:?}");
    assert_eq!(mistakes(load(&wrong, &MadeUp::default().file("/no", ""))).len(), 1);
    let alone = load(&flags(&[("kubeconfig", &["/no"])]), &MadeUp::default());
    assert!(alone.is_ok(), "commands that do not read it need no such file");
}

#[test]
fn a_persons_kubeconfig_lends_everything() {
    let lent = |text: &str| from_file(text).unwrap().config.lend_identity;
    assert_eq!(lent(""), LendIdentity::Reads, "a service account lends reads only");
    assert_eq!(lent("kubeconfig: /k\n"), LendIdentity::All);
    assert_eq!(lent("kubeconfig: /k\nlendIdentity: none\n"), LendIdentity::None);
    assert_eq!(lent("lendIdentity: all\n"), LendIdentity::All);
}

#[test]
fn state_directory() {
    let state = |world: MadeUp| load(&Flags::new(), &world).unwrap().config.state_dir;
    assert_eq!(state(MadeUp::default()), PathBuf::from("/var/lib/informerd"));
    let home = MadeUp::default().variable("HOME", "/home/a");
    assert_eq!(state(home.clone()), PathBuf::from("/home/a/.local/state/informerd"));
    assert_eq!(state(home.variable("XDG_STATE_HOME", "/s")), PathBuf::from("/s/informerd"));
}

#[test]
fn misspelt_variables_are_warned_of() {
    let world = MadeUp::default()
        .variable("INFORMERD_LISEN", "x")
        .variable("INFORMERD_SERVICE_HOST", "10.0.0.1")
        .variable("INFORMERD_PORT_8001_TCP", "tcp://10.0.0.1:8001")
        .variable("INFORMERD_CACHE", "/c");
    let warnings = load(&Flags::new(), &world).unwrap().warnings;
    assert_eq!(warnings, ["INFORMERD_LISEN: there is no such setting; did you mean INFORMERD_LISTEN?"]);
}

/// The documented default is the default in use.
#[test]
fn every_default_parses() {
    let rooms_own = crate::http::HttpConfig::new(Vec::new(), PathBuf::new());
    let http = load(&Flags::new(), &MadeUp::default()).unwrap().config.http;
    assert_eq!(http.max_connections, rooms_own.max_connections);
    assert_eq!(http.write_stall_timeout, rooms_own.write_stall_timeout);
    assert_eq!(http.age, rooms_own.age);
    assert_eq!(http.drain_spread, rooms_own.drain_spread);
    for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
        let world = MadeUp::default().variable(&setting.variable(), setting.default);
        let loaded = load(&Flags::new(), &world).unwrap_or_else(|mistakes| panic!("{}: {mistakes}", setting.key));
        let default = load(&Flags::new(), &MadeUp::default()).unwrap();
        assert_eq!(format!("{:?}", loaded.config), format!("{:?}", default.config), "{}", setting.key);
    }
}

#[test]
fn files_of_the_service_account_have_a_ca_of_ours_in_them() {
    let https = "dropInDir: /a\nlisten: ['http://127.0.0.1:1', 'https://127.0.0.1:2']\n";
    assert_eq!(from_file(https).unwrap().config.drop_in_dir, Some(PathBuf::from("/a")));
    for wrong in [
        "dropInDir: /a\n".to_owned(),
        "dropInDir: /a\nlisten: ['delegated+https://0.0.0.0:1']\n".to_owned(),
        format!("{https}kubeconfig: {FILE}\n"),
        format!("{https}tls: {{certFile: /b, keyFile: /c}}\n"),
        format!("{https}tls: {{caSecret: a/b}}\n"),
    ] {
        let found = mistakes(from_file(&wrong));
        assert!(found.len() == 1 && found[0].contains(": dropInDir: "), "{wrong}: {found:?}");
    }
}

#[test]
fn an_access_log_is_written_where_it_is_asked_for() {
    use crate::telemetry::lines::LinesTo;
    let file = LinesTo::File("/a/b".into());
    for (value, expected) in [("", None), ("off", None), ("stdout", Some(LinesTo::Stdout)), ("/a/b", Some(file))] {
        let loaded = load(&Flags::new(), &MadeUp::default().variable("INFORMERD_ACCESS_LOG", value)).unwrap();
        assert_eq!(loaded.config.access_log, expected, "{value}");
    }
}

/// A setting that nothing reads would be found here: an invalid value for it would not be reported.
#[test]
fn every_setting_is_read() {
    let free_text = [
        "config",
        "kubeconfig",
        "context",
        "stateDir",
        "tls.certFile",
        "tls.keyFile",
        "authentication.clientCa",
        "audit.log",
        "access.log",
        "snapshots.dir",
    ];
    for setting in SETTINGS.iter().filter(|setting| !free_text.contains(&setting.key)) {
        let world = MadeUp::default().variable(&setting.variable(), "@ nonsense @");
        let found = mistakes(load(&Flags::new(), &world));
        assert!(found[0].starts_with(&setting.variable()), "{}: {found:?}", setting.key);
    }
}

/// Each of them is told, with what became of it, beside all other mistakes.
#[test]
fn a_setting_that_is_gone_says_so() {
    for removed in REMOVED {
        assert!(SETTINGS.iter().all(|setting| setting.key != removed.key), "{}", removed.key);
    }
    let name = "INFORMERD_SNAPSHOTS_MAX_SERVED_AGE";
    let text = "snapshots:\n  dir: /a\n  maxServedAge: 1h\nthreads: many\n";
    let world = MadeUp::default().variable("INFORMERD_CONFIG", FILE).variable(name, "1h").file(FILE, text);
    let found = mistakes(load(&Flags::new(), &world));
    let gone = "this setting is gone, and nothing need be written instead: ";
    let starts = [
        &format!("{FILE}:3: snapshots.maxServedAge: {gone}"),
        &format!("{FILE}:4: threads: "),
        &format!("{name}: {gone}"),
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    assert!(found.iter().zip(starts).all(|(found, start)| found.starts_with(start)), "{found:#?}");
    assert!(load(&Flags::new(), &MadeUp::default().variable(name, "")).is_ok(), "an empty text counts as missing");
}

/// Also where the key is one of the settings now.
#[test]
fn each_setting_that_is_gone_is_told() {
    for removed in REMOVED {
        let text = removed.key.replace('.', ": {");
        let file = format!("{text}: 1{}\n", "}".repeat(removed.key.matches('.').count()));
        let found = mistakes(from_file(&file));
        assert_eq!(found, [format!("{FILE}:1: {}: {}", removed.key, removed.message())]);
        let name = super::setting::variable_of(removed.key);
        let found = mistakes(load(&Flags::new(), &MadeUp::default().variable(&name, "1")));
        assert_eq!(found, [format!("{name}: {}", removed.message())]);
    }
}

#[test]
fn one_mode_for_the_newest_state() {
    let of = |text: &str| from_file(&format!("consistentReads: {text}\n")).map(|loaded| loaded.config.reads.modes);
    let bounded = |ms| ConsistentReads::Bounded(Duration::from_millis(ms));
    for (text, mode) in [
        ("auto", ConsistentReads::Auto),
        ("bounded", bounded(100)),
        ("bounded=1s", bounded(1000)),
        ("upstream", ConsistentReads::Upstream),
        ("probe", ConsistentReads::Probe),
        ("cache", ConsistentReads::Cache),
    ] {
        assert_eq!(of(text).unwrap().consistent, mode, "{text}");
    }
    let choices = "none of auto, bounded, upstream, probe, cache, bounded=DURATION";
    for (text, told) in [
        ("fresh", choices),
        ("bounded 1s", choices),
        ("cache=1s", choices),
        ("bounded=", "bounded=: "),
        ("bounded=1", "bounded=: "),
        ("bounded=0s", "bounded=: must be longer than 0s"),
        ("[auto]", "want a single value, not a sequence"),
    ] {
        let found = mistakes(from_file(&format!("consistentReads: {text}\n")));
        assert!(found.len() == 1 && found[0].contains(told), "{text}: {found:?}");
    }
    let found = mistakes(from_file("consistentReads: {list: probe, lists: probe}\n"));
    assert!(found.len() == 2 && found[0].contains("consistentReads.list: this setting is gone"), "{found:?}");
    let found = mistakes(from_file("consistentReads: {}\n"));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_revoked_token_is_accepted_for_a_bounded_time() {
    let ttl = |text: &str| from_file(&format!("authentication: {{ttl: {text}}}\n"));
    assert_eq!(ttl("2m").unwrap().config.auth.token_ttl, MAX_TOKEN_TTL);
    let found = mistakes(ttl("121s"));
    assert!(found.len() == 1 && found[0].contains("must be at most 2m"), "{found:?}");
}

#[test]
fn what_follows_from_another_setting() {
    let config = |text: &str| from_file(text).unwrap().config;
    let lifetimes =
        |ca: &str| config(&format!("tls: {{caSecret: a/b, caLifetime: {ca}}}\n")).authority.unwrap().lifetimes;
    let hours = |lifetimes: crate::authority::Lifetimes| {
        [lifetimes.ca, lifetimes.overlap, lifetimes.leaf].map(|time| time.as_secs() / 3600)
    };
    assert_eq!(hours(lifetimes("4320h")), [4320, 24, 720]);
    assert_eq!(hours(lifetimes("8640h")), [8640, 24, 720]);
    assert_eq!(hours(lifetimes("60h")), [60, 10, 10]);
    assert_eq!(config("drain: {timeout: 1s}\n").http.drain_spread, Duration::from_secs(1));
    assert_eq!(config("").http.drain_spread, Duration::from_secs(3));
}

#[test]
fn groups_of_aggregated_servers_are_named_whole() {
    assert!(from_file("").unwrap().config.reads.shared_groups.is_empty());
    let loaded = from_file("authorization: {sharedAggregatedGroups: [reports.example.com, local]}\n").unwrap();
    assert_eq!(loaded.config.reads.shared_groups, ["reports.example.com", "local"]);
    let wrong = ["*", "Example.com", "example.com/v1", "-a.example.com", "a..b", "things.example.com."];
    let found = mistakes(from_file(&format!("authorization: {{sharedAggregatedGroups: {wrong:?}}}\n")));
    assert_eq!(found.len(), wrong.len(), "each is told: {found:#?}");
    assert!(found.iter().zip(wrong).all(|(found, wrong)| found.contains(&format!("{wrong:?} is no API group"))));
}

#[test]
fn snapshots_are_kept_where_a_directory_is_named() {
    assert!(from_file("").unwrap().config.snapshots.is_none());
    let loaded = from_file("snapshots: {dir: /a, maxBytes: 2Mi}\n").unwrap();
    let snapshots = loaded.config.snapshots.unwrap();
    assert_eq!((snapshots.max_bytes, snapshots.max_age), (2 << 20, Duration::from_secs(900)));
    assert!(snapshots.dir == std::path::Path::new("/a") && snapshots.key.is_none());
    let key = |text: &str| MadeUp::default().file("/key", text).variable("INFORMERD_SNAPSHOTS_KEY", "/key");
    let digits = "0f".repeat(32);
    let with_key = load(&Flags::new(), &key(&digits).variable("INFORMERD_SNAPSHOTS_DIR", "/a")).unwrap();
    assert!(with_key.config.snapshots.unwrap().key.is_some());
    let short = mistakes(load(&Flags::new(), &key("0f").variable("INFORMERD_SNAPSHOTS_DIR", "/a")));
    assert!(short[0].contains("64 hexadecimal digits"), "{short:?}");
    let alone = mistakes(load(&Flags::new(), &key(&digits)));
    assert!(alone[0].contains("needs snapshots.dir"), "{alone:?}");
}

#[test]
fn a_signer_is_asked_or_is_this_one() {
    let https = "listen: ['delegated+https://0.0.0.0:1']\n";
    let tls = |settings: &str| from_file(&format!("{https}tls: {{{settings}}}\n"));
    let asks = tls("signer: example.com/s, names: [10.0.0.1]").unwrap().config;
    assert!(asks.authority.is_none() && asks.http.tls.given);
    let request = asks.certificate_request.unwrap();
    assert_eq!((request.signer.as_str(), request.names), ("example.com/s", vec!["10.0.0.1".to_owned()]));
    let signs = tls("signer: example.com/s, signerAccount: a/b, caSecret: c/d").unwrap().config;
    assert!(signs.certificate_request.is_none());
    let signer = signs.authority.unwrap().signer.unwrap();
    assert_eq!((signer.name.as_str(), signer.account.to_string().as_str()), ("example.com/s", "a/b"));
    for (wrong, key) in [
        ("signer: example.com/s", "tls.signer"),
        ("signer: cluster, names: [a]", "tls.signer"),
        ("signer: example.com/s, names: [a], certFile: /a, keyFile: /b", "tls.signer"),
        ("signer: example.com/s, caSecret: a/b", "tls.signer"),
        ("signerAccount: a/b", "tls.signerAccount"),
        ("signerAccount: a/b, caSecret: c/d", "tls.signerAccount"),
        ("signerAccount: a/b, names: [a], signer: example.com/s", "tls.signerAccount"),
    ] {
        let found = mistakes(tls(wrong));
        assert!(found.len() == 1 && found[0].contains(&format!(": {key}: ")), "{wrong}: {found:?}");
    }
}

#[test]
fn what_counts_while_the_apiserver_is_away_has_a_bounded_age() {
    let of = |setting: &str| from_file(&format!("authorization: {{whileAway: {setting}}}\n"));
    let age = |setting: &str| of(setting).unwrap().config.auth.max_away_age;
    let ages = ["keep", "keep=1h", "refuse"].map(age);
    assert_eq!(ages, [Duration::from_secs(600), MAX_AWAY_AGE, Duration::ZERO]);
    assert_eq!(from_file("").unwrap().config.auth.max_away_age, ages[0]);
    for wrong in ["keep=3601s", "keep=0s", "keep=", "serve"] {
        assert_eq!(mistakes(of(wrong)).len(), 1, "{wrong}");
    }
}
