//! The registry of all settings. It is the only definition of a setting's name, default, unit and meaning.

use std::sync::LazyLock;

/// The type of a setting's value. It determines whether flags may repeat and what the file may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One text. The string names its format, such as `path` or `duration`.
    One(&'static str),
    /// Several texts: a repeated flag, a sequence in the file, or a comma-separated list in the environment.
    Many(&'static str),
    /// The rules of `resources`: a sequence of mappings in the file, or the same as YAML text elsewhere.
    Rules,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key in the file, with dots between levels: `notSynced.wait`.
    pub key: &'static str,
    pub kind: Kind,
    /// As a user would write it. Empty if there is no default.
    pub default: &'static str,
    /// The description for the help and the documentation, without line breaks.
    pub help: &'static str,
}

/// `config` itself is not a key of the file. All other settings are.
pub(super) const CONFIG: Setting = Setting {
    key: "config",
    kind: Kind::One("path"),
    default: "",
    help: "YAML file with settings; only as a flag or in the environment",
};

const fn one(key: &'static str, form: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { key, kind: Kind::One(form), default, help }
}

const fn many(key: &'static str, form: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { key, kind: Kind::Many(form), default, help }
}

/// All settings, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    CONFIG,
    one(
        "kubeconfig",
        "path",
        "",
        "kubeconfig for the kube-apiserver; if unset, the service account of the pod, or outside of a pod the files of $KUBECONFIG or ~/.kube/config",
    ),
    one("context", "name", "", "context of the kubeconfig; if unset, the one that is current at the start"),
    many(
        "listen",
        "address",
        "http://127.0.0.1:8001",
        "addresses that serve clients: http://ADDRESS:PORT, https://ADDRESS:PORT, delegated+https://ADDRESS:PORT or unix:///PATH; port 0 takes a free port; only delegated+https listeners authenticate their clients, and only they may be reachable from other machines",
    ),
    one("admin", "address", "127.0.0.1:8002", "address for health, metrics and cache introspection, ADDRESS:PORT"),
    one(
        "probes",
        "address",
        "",
        "address that serves only health and metrics, for the kubelet and Prometheus, ADDRESS:PORT; it may be reachable from other machines",
    ),
    one(
        "stateDir",
        "path",
        "",
        "directory for the self-issued CA of https listeners; if unset, informerd below $XDG_STATE_HOME, ~/.local/state or /var/lib",
    ),
    one(
        "dropInDir",
        "path",
        "",
        "directory shared with other containers of the pod; the files of the pod's ServiceAccount are written there, with the CA of the https listeners in ca.crt; if unset, nothing is written",
    ),
    one("unixMode", "octal mode", "0600", "permissions of Unix sockets"),
    one("tls.certFile", "path", "", "certificate chain of the https listeners, PEM; read again when it changes"),
    one("tls.keyFile", "path", "", "private key of the https listeners, PEM; read again when it changes"),
    one(
        "tls.caSecret",
        "namespace/name",
        "",
        "Secret, which must exist, that stores the CA shared by the replicas of a deployment; serving certificates are then signed by this CA",
    ),
    many(
        "tls.caConfigMaps",
        "namespace/name",
        "",
        "ConfigMaps, which must exist; the CA of tls.caSecret and the CA of the cluster are published in their ca.crt",
    ),
    one(
        "tls.caLifetime",
        "duration",
        "4320h",
        "how long the CA of tls.caSecret signs before it is replaced; serving certificates are valid for a sixth of it, at most 30 days, and the next CA is published for a sixth of it, at most a day, before it signs",
    ),
    one(
        "tls.signer",
        "domain/name",
        "",
        "signerName of CertificateSigningRequests. With tls.caSecret: approves and signs the requests of tls.signerAccount. Otherwise: requests the certificate of the https listeners, for tls.names",
    ),
    one(
        "tls.signerAccount",
        "namespace/name",
        "",
        "ServiceAccount whose pods get certificates for the addresses of their nodes, signed by the CA of tls.caSecret",
    ),
    one("tls.minVersion", "1.2|1.3", "1.2", "lowest version of TLS that listeners accept"),
    many("tls.names", "name", "", "further DNS names and addresses in a self-issued certificate"),
    many("allowedHosts", "name", "", "Host names to accept besides localhost and loopback addresses"),
    one(
        "lendIdentity",
        "all|reads|none",
        "",
        "which requests without credentials are forwarded with the daemon's credentials; if unset, all with a kubeconfig, and reads with a service account",
    ),
    one(
        "lendSessions",
        "true|false",
        "false",
        "whether exec, attach and port-forward without credentials are forwarded with the daemon's credentials on TCP listeners; on a Unix socket they are if lendIdentity is all",
    ),
    one(
        "authentication.clientCa",
        "path|cluster",
        "",
        "CA of client certificates on authenticating listeners, and of the certificates that the injector requires: a PEM file, read again when it changes, or cluster for the CA that the cluster publishes; if unset, client certificates are not requested",
    ),
    many(
        "authentication.audiences",
        "name",
        "",
        "audiences of which a token on an authenticating listener must have one; if unset, those of the apiserver",
    ),
    one(
        "authentication.node",
        "name",
        "",
        "tokens on authenticating listeners must be bound to a pod of this node; if unset, this is not checked",
    ),
    one(
        "authentication.anonymous",
        "refuse|forward",
        "refuse",
        "what authenticating listeners do with requests without credentials: refuse them with 401, or forward them to the apiserver",
    ),
    one(
        "authentication.ttl",
        "duration",
        "10s",
        "how long the result of a token review or of a certificate check is cached; at most 2m",
    ),
    one(
        "authorization.allowTtl",
        "duration",
        "5m",
        "how long an access that RBAC allows is cached; a change of roles or bindings ends it at once; what other authorizers allow is cached for 10 s at most",
    ),
    one(
        "authorization.whileAway",
        "keep|keep=DURATION|refuse",
        "keep=10m",
        "what counts on authenticating listeners while the apiserver is away: the users and accesses that it confirmed last, for so long, at most 1h (keep), or only what is cached otherwise (refuse)",
    ),
    many(
        "authorization.sharedAggregatedGroups",
        "group",
        "",
        "API groups of aggregated API servers whose answers do not depend on who asks; those of all others are not cached for authenticating listeners, but forwarded",
    ),
    one(
        "audit.log",
        "path|stdout",
        "",
        "where an audit event is written for every read that informerd answers itself, one JSON line each: standard output, or a file that is opened again on SIGHUP; if unset, none are written",
    ),
    one("audit.policyFile", "path", "", "audit.k8s.io/v1 Policy that selects what is written; if unset, everything is"),
    one(
        "access.log",
        "path|stdout|off",
        "off",
        "where a line is written for every request: who asked for what, how it was answered, and how long it took; a file is opened again on SIGHUP",
    ),
    Setting {
        key: "resources",
        kind: Kind::Rules,
        default: "",
        help: "rules for resources; the first rule that matches decides; its keys: resource, exclude, pin, namespaces, fieldSelector, labelSelector, consistentReads, protobuf, whileAway, form, snapshot",
    },
    one(
        "consistentReads",
        "auto|bounded|bounded=DURATION|upstream|probe|cache",
        "auto",
        "how gets, lists and the initial events of watches that ask for the newest state are answered; bounded accepts a state that was the newest at most this long ago, 100ms if no duration is given",
    ),
    one(
        "protobuf",
        "serve|json|forward",
        "serve",
        "how clients that prefer protobuf are answered: from a protobuf informer (serve), in JSON if they accept it too (json), or by the apiserver (forward)",
    ),
    one(
        "whileAway",
        "refuse|serve",
        "refuse",
        "how reads that need the apiserver are answered while it does not respond: with 503 (refuse), or with the last known state and a warning that states its age (serve)",
    ),
    one("notSynced.wait", "duration", "5s", "how long a read waits for an informer that is not synced"),
    one("notSynced.then", "forward|429", "forward", "what happens to a read after notSynced.wait"),
    one("idleTimeout", "duration", "10m", "an informer without readers for this long is stopped"),
    one(
        "storeCheck",
        "duration",
        "10m",
        "how often an informer is compared with the apiserver's store, to detect a store that was restored from a backup; 0s disables it",
    ),
    one(
        "snapshots.dir",
        "path",
        "",
        "directory where caches are stored, so that a restart needs no list; if unset, they are not stored",
    ),
    one("snapshots.maxBytes", "size", "1Gi", "disk space that all snapshots together may use"),
    one(
        "snapshots.key",
        "path",
        "",
        "file with 64 hexadecimal digits, the key that encrypts the snapshots (AES-256-GCM); if unset, Secrets are not stored",
    ),
    one(
        "window.maxBytes",
        "size",
        "256Mi",
        "maximum memory of the events kept per informer: those of the last 75 s, and the last 100 even if they are older",
    ),
    one(
        "drain.timeout",
        "duration",
        "25s",
        "how long open requests may take to end after the first SIGTERM or SIGINT; open watches end within its first 3 s",
    ),
    one("limits.maxConnections", "count", "10000", "connections served at once; further ones are closed immediately"),
    one(
        "limits.memory",
        "size|percentage",
        "60%",
        "memory that all caches together may use, objects and windows: a size, or a percentage of the memory that the cgroup allows or the machine has; reads of resources that do not fit are forwarded",
    ),
    one(
        "memory.form",
        "auto|plain|packed",
        "auto",
        "whether objects that nobody reads are packed: auto packs them once all caches together would hold 64 MiB or a third of limits.memory, and never where that is below 64 MiB",
    ),
    one(
        "limits.maxInformers",
        "auto|count",
        "auto",
        "informers at once, each for a resource, a part of one, or one more encoding; reads of further resources are forwarded, which the log says; auto allows one for each 512 KiB of the memory that the cgroup allows or the machine has, from 100 to 5,000",
    ),
    one(
        "limits.grpcConnectionAge",
        "duration",
        "30m",
        "age at which a connection with gRPC calls accepts no further calls, plus or minus a tenth; after as long again, its remaining streams end with a goodbye, so that their clients reconnect; 0s disables it",
    ),
    one("limits.writeStallTimeout", "duration", "5m", "a client that reads no byte for this long is disconnected"),
    one(
        "explainHeader",
        "true|false",
        "false",
        "whether every answer has the header X-Informerd-Plan: from a cache or forwarded, why, at which revision, and how old",
    ),
    one("inject.listen", "address", "0.0.0.0:8443", "address where informerd injector serves, ADDRESS:PORT"),
    one(
        "inject.webhook",
        "name",
        "informerd-injector",
        "MutatingWebhookConfiguration, which must exist; informerd injector publishes the CA of tls.caSecret in its caBundle",
    ),
    one(
        "inject.deployment",
        "namespace/name",
        "",
        "Deployment of informerd injector; added sidecars get its image, and pods in its namespace are not changed",
    ),
    one(
        "inject.tierAddress",
        "host:port",
        "informerd.informerd-tier.svc:443",
        "address of the tier for the pods that are changed",
    ),
    one("inject.nodePort", "port", "8643", "port of the node agent for the pods that are changed"),
    many(
        "inject.exclude",
        "namespace",
        "informerd-injector,informerd-tier,informerd-node-agent",
        "namespaces, in addition to kube-system, in which pods are not changed",
    ),
    one("threads", "count", "0", "threads that serve traffic; 0 takes one for each processor that the process may use"),
    one(
        "log.level",
        "filter",
        "info",
        "off, error, warn, info, debug or trace, also per target: info,informerd::cache=debug",
    ),
    one("log.format", "text|json", "text", "format of the log lines on standard error"),
];

// === impl Setting ===

impl Setting {
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The flag without its leading dashes: `not-synced-wait`.
    pub fn flag(&self) -> &'static str {
        static FLAGS: LazyLock<Vec<String>> =
            LazyLock::new(|| SETTINGS.iter().map(|setting| flag_of(setting.key)).collect());
        let position = SETTINGS.iter().position(|setting| setting.key == self.key);
        position.and_then(|position| FLAGS.get(position)).map_or("", String::as_str)
    }

    /// The environment variable: `INFORMERD_NOT_SYNCED_WAIT`.
    pub fn variable(&self) -> String {
        variable_of(self.key)
    }

    /// The placeholder for the value in a help text.
    pub fn form(&self) -> &'static str {
        match self.kind {
            Kind::One(form) | Kind::Many(form) => form,
            Kind::Rules => "YAML",
        }
    }

    /// Whether the file may contain it.
    pub fn in_file(&self) -> bool {
        self.key != CONFIG.key
    }
}

/// The flag that belongs to a key.
pub(super) fn flag_of(key: &str) -> String {
    words(key, '-').to_lowercase()
}

/// The environment variable that belongs to a key.
pub(super) fn variable_of(key: &str) -> String {
    format!("INFORMERD_{}", words(key, '_').to_uppercase())
}

fn words(key: &str, separator: char) -> String {
    let mut words = String::new();
    for c in key.chars() {
        if c == '.' || c.is_uppercase() {
            words.push(separator);
        }
        if c != '.' {
            words.push(c);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_help_is_one_line() {
        let flags: BTreeSet<_> = SETTINGS.iter().map(Setting::flag).collect();
        assert_eq!(flags.len(), SETTINGS.len());
        for setting in SETTINGS {
            assert!(!setting.help.is_empty() && !setting.help.contains('\n'), "{}", setting.key);
        }
    }

    /// If there is a Service named informerd, the kubelet sets INFORMERD_SERVICE_HOST, INFORMERD_PORT and similar
    /// variables in every pod of its namespace.
    #[test]
    fn no_variable_collides_with_service_links() {
        for setting in SETTINGS {
            let name = setting.variable();
            assert!(!name.starts_with("INFORMERD_SERVICE_") && !name.starts_with("INFORMERD_PORT"), "{name}");
        }
    }
}
