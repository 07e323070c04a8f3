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
    /// The key in the file, with dots between levels: `consistentReads.get`.
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
        "kubeconfig of the kube-apiserver; without it the service account of the pod, and outside of pods the files of $KUBECONFIG, or ~/.kube/config",
    ),
    one("context", "name", "", "context of the kubeconfig; without it the one that is current at the start"),
    many(
        "listen",
        "address",
        "http://127.0.0.1:8001",
        "where clients are served: http://ADDRESS:PORT, https://ADDRESS:PORT, delegated+https://ADDRESS:PORT or unix:///PATH; port 0 takes a free one; only delegated ones may be reachable from other machines",
    ),
    one("admin", "address", "127.0.0.1:8002", "where health, metrics and cache introspection are served, ADDRESS:PORT"),
    one(
        "probes",
        "address",
        "",
        "where health and metrics alone are served to the kubelet and to Prometheus, ADDRESS:PORT, reachable from other machines or not",
    ),
    one(
        "stateDir",
        "path",
        "",
        "directory of the self-issued CA of https listeners; without it informerd below $XDG_STATE_HOME, ~/.local/state or /var/lib",
    ),
    one(
        "dropInDir",
        "path",
        "",
        "directory that other containers of the pod share, in which the files of its ServiceAccount are kept for them, the CA of https listeners in ca.crt; without it none are",
    ),
    one("unixMode", "octal mode", "0600", "permissions of unix sockets"),
    one("tls.certFile", "path", "", "certificate chain of the https listeners, PEM, read again when it changes"),
    one("tls.keyFile", "path", "", "private key of the https listeners, PEM, read again when it changes"),
    one(
        "tls.caSecret",
        "namespace/name",
        "",
        "Secret, which must exist, in which the replicas of a deployment keep a CA of their own making; its certificates are then served",
    ),
    many(
        "tls.caConfigMaps",
        "namespace/name",
        "",
        "ConfigMaps, which must exist, in whose ca.crt the CA of tls.caSecret and the cluster's are published",
    ),
    one("tls.caLifetime", "duration", "4320h", "how long the CA of tls.caSecret signs before there is another"),
    one("tls.caOverlap", "duration", "24h", "how long the next CA of tls.caSecret is published before it signs"),
    one("tls.certLifetime", "duration", "720h", "how long a serving certificate by the CA of tls.caSecret is valid"),
    one(
        "tls.signer",
        "domain/name",
        "",
        "signerName of CertificateSigningRequests: with tls.caSecret those of tls.signerAccount are signed, without it the certificate of the https listeners is requested, for tls.names",
    ),
    one(
        "tls.signerAccount",
        "namespace/name",
        "",
        "ServiceAccount whose pods get certificates for the addresses of their nodes, signed by the CA of tls.caSecret",
    ),
    one("tls.minVersion", "1.2|1.3", "1.2", "the oldest version of TLS that listeners speak"),
    many("tls.names", "name", "", "DNS names and addresses in a self-issued certificate besides the listen addresses"),
    many("allowedHosts", "name", "", "names a Host header may carry besides localhost and loopback addresses"),
    one(
        "lendIdentity",
        "all|reads|none",
        "",
        "which requests without credentials of their own are forwarded with ours; without it all with a kubeconfig, reads with a service account",
    ),
    one(
        "lendSessions",
        "true|false",
        "false",
        "whether exec, attach and port-forward without credentials of their own are lent ours over TCP; over a Unix socket they are wherever lendIdentity is all",
    ),
    one(
        "authentication.clientCa",
        "path|cluster",
        "",
        "CA of client certificates on delegated listeners: a PEM file, read again when it changes, or cluster for the one the cluster publishes; without it no certificates are asked for",
    ),
    many(
        "authentication.audiences",
        "name",
        "",
        "audiences of which a token on a delegated listener must have one; without it the apiserver's own",
    ),
    one(
        "authentication.node",
        "name",
        "",
        "tokens on delegated listeners must be bound to a pod of this node; without it they may be of any",
    ),
    one(
        "authentication.anonymous",
        "refuse|forward",
        "refuse",
        "what becomes of requests without credentials on delegated listeners: 401, or the apiserver decides",
    ),
    one("authentication.ttl", "duration", "10s", "how long a reviewed token or certificate is taken for what it was"),
    one(
        "authorization.allowTtl",
        "duration",
        "5m",
        "how long an access that RBAC allows is remembered; changed roles and bindings end it at once; what other authorizers allow is remembered for 10 s at most",
    ),
    one("authorization.denyTtl", "duration", "10s", "how long a denied access is remembered"),
    one(
        "authorization.maxUserRights",
        "count",
        "1024",
        "rights that the open watches and streams of one user may rest on; what needs more is refused with 429",
    ),
    one("authorization.maxReviews", "count", "32", "reviews under way at once; more wait"),
    one(
        "audit.log",
        "path|stdout",
        "",
        "where an audit event is written for every read that is answered here, one JSON line each; without it none are",
    ),
    one("audit.policyFile", "path", "", "audit.k8s.io/v1 Policy that says what is written; without it everything is"),
    one("audit.maxSize", "size", "100Mi", "a file of the audit log that has grown to this is put aside"),
    one("audit.maxFiles", "count", "10", "files of the audit log put aside that are kept"),
    one(
        "access.log",
        "path|stdout|off",
        "off",
        "where a line is written for every request: who asked for what, how it was answered, and how long it took",
    ),
    one("access.maxSize", "size", "100Mi", "a file of the access log that has grown to this is put aside"),
    one("access.maxFiles", "count", "3", "files of the access log put aside that are kept"),
    Setting {
        key: "resources",
        kind: Kind::Rules,
        default: "",
        help: "rules for resources, the first that matches decides: resource, exclude, pin, namespaces, fieldSelector, labelSelector, consistentReads, protobuf, whileAway, form, snapshot",
    },
    one(
        "consistentReads.get",
        "auto|bounded|upstream|probe|cache",
        "auto",
        "how a get that asks for the newest state is answered",
    ),
    one(
        "consistentReads.list",
        "auto|bounded|upstream|probe|cache",
        "auto",
        "how a list that asks for the newest state is answered",
    ),
    one(
        "consistentReads.watch",
        "auto|bounded|upstream|probe|cache",
        "auto",
        "how the initial events of a watch that asks for the newest state are answered",
    ),
    one(
        "protobuf",
        "serve|json|forward",
        "serve",
        "how clients that prefer protobuf are answered: from an informer of its own, in JSON if they take it too, or by the apiserver",
    ),
    one(
        "consistentReads.maxAge",
        "duration",
        "100ms",
        "how old the proof may be that a read in the mode bounded relies on",
    ),
    one("consistentReads.timeout", "duration", "3s", "how long a read waits for a resourceVersion"),
    one(
        "whileAway",
        "refuse|serve",
        "refuse",
        "what becomes of reads that need the apiserver while it does not answer: 503, or the last state that is known, with a warning that tells its age",
    ),
    one("notSynced.wait", "duration", "5s", "how long a read waits for an informer that is not synced"),
    one("notSynced.then", "forward|429", "forward", "what happens to a read after that wait"),
    one(
        "compression",
        "gzip|off",
        "gzip",
        "whether gets and lists over 128 KiB are compressed for clients that accept gzip, as by the apiserver",
    ),
    one("idleTimeout", "duration", "10m", "an informer without readers for this long is stopped"),
    one(
        "storeCheck",
        "duration",
        "10m",
        "how often an informer is compared with the apiserver's store, to notice one that was restored from a backup; 0s: never",
    ),
    one("queueLinger", "duration", "5m", "a work queue without workers is kept for this long"),
    one(
        "snapshots.dir",
        "path",
        "",
        "directory where caches are kept over a restart, which then needs no list; without it they are not kept",
    ),
    one("snapshots.maxBytes", "size", "1Gi", "space that all snapshots may use together"),
    one("snapshots.maxAge", "duration", "15m", "no watch continues from a snapshot that was not written to for longer"),
    one(
        "snapshots.maxServedAge",
        "duration",
        "24h",
        "where whileAway is serve, a daemon that starts while the apiserver does not answer serves no snapshot that was not written to for longer",
    ),
    one(
        "snapshots.key",
        "path",
        "",
        "file with 64 hexadecimal digits that encrypt the snapshots (AES-256-GCM); without it Secrets are not kept",
    ),
    one("window.minAge", "duration", "75s", "events younger than this are kept while the two maxima allow"),
    one("window.maxEvents", "count", "600000", "events kept per informer at most"),
    one("window.maxBytes", "size", "256Mi", "memory of the events kept per informer at most"),
    one("drain.timeout", "duration", "25s", "how long open requests may take to end after the first signal"),
    one("drain.spread", "duration", "3s", "over how long the ends of open watches are spread when draining"),
    one("limits.maxConnections", "count", "10000", "connections served at once; one more is closed at once"),
    one(
        "limits.memory",
        "size|percentage",
        "60%",
        "memory that all caches may use together, objects and windows: a size, or a part of the memory that the cgroup allows or the machine has; what does not fit is forwarded",
    ),
    one(
        "memory.form",
        "auto|plain|packed",
        "auto",
        "whether objects that nobody reads are packed: auto packs them once all caches together would hold 64 MiB or a third of limits.memory, and never where that is below 64 MiB",
    ),
    one(
        "memory.hotBytes",
        "size",
        "64Mi",
        "bytes of objects that stay plain because they are read, at most a quarter of limits.memory",
    ),
    one("limits.compressedBytes", "size", "64Mi", "compressed lists kept for the next client that asks for the same"),
    one("limits.maxInformers", "count", "500", "informers at once; reads of further resources are forwarded"),
    one(
        "limits.maxQueues",
        "count",
        "100",
        "groups of workers with a work queue at once, a quarter of them for one user; one more replaces one without workers, or is refused",
    ),
    one(
        "limits.maxQueueDeletions",
        "count",
        "100000",
        "deletions of one selection that no worker has handled yet; one more ends the group, which begins anew",
    ),
    one(
        "limits.headerTimeout",
        "duration",
        "90s",
        "how long a client may take for a request's headers, and idle between requests",
    ),
    one(
        "limits.handshakeTimeout",
        "duration",
        "30s",
        "how long a client may take for its first bytes and the TLS handshake",
    ),
    one(
        "limits.grpcConnectionAge",
        "duration",
        "30m",
        "when a connection with gRPC calls takes no further one, a tenth more or less; 0s for never",
    ),
    one(
        "limits.grpcConnectionGrace",
        "duration",
        "30m",
        "how much later the streams of such a connection say goodbye; none is cut",
    ),
    one("limits.writeStallTimeout", "duration", "5m", "a client that takes no byte for this long is disconnected"),
    one(
        "explainHeader",
        "true|false",
        "false",
        "whether every answer carries X-Informerd-Plan: from a cache or forwarded, why, of which revision, and how old",
    ),
    one("inject.listen", "address", "0.0.0.0:8443", "where informerd injector answers the apiserver, ADDRESS:PORT"),
    one(
        "inject.webhook",
        "name",
        "informerd-injector",
        "MutatingWebhookConfiguration, which must exist, in whose caBundle informerd injector publishes the CA of tls.caSecret",
    ),
    one("inject.image", "image", "", "image of the sidecars that are added to pods; without it informerd:vVERSION"),
    one(
        "inject.deployment",
        "namespace/name",
        "",
        "Deployment of informerd injector, of which the sidecars get the image, and in whose namespace no pod is changed",
    ),
    one("inject.tierAddress", "host:port", "informerd.informerd-tier.svc:443", "where pods find the tier"),
    one(
        "inject.tierConfigMap",
        "name",
        "informerd-ca",
        "ConfigMap with the CA of the tier in the namespaces of its clients",
    ),
    one("inject.nodePort", "port", "8643", "where pods find the agent of their node"),
    one(
        "inject.nodeConfigMap",
        "name",
        "informerd-node-ca",
        "ConfigMap with the CA of the node agents in the namespaces of their clients",
    ),
    many(
        "inject.exclude",
        "namespace",
        "informerd-injector,informerd-tier,informerd-node-agent",
        "namespaces besides kube-system in which no pod is changed",
    ),
    one("threads", "count", "0", "threads that serve traffic; 0 takes as many as the process may use processors"),
    one(
        "log.level",
        "filter",
        "info",
        "off, error, warn, info, debug or trace, also per target: info,informerd::cache=debug",
    ),
    one("log.format", "text|json", "text", "form of the log lines on standard error"),
];

// === impl Setting ===

impl Setting {
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The flag without its leading dashes: `consistent-reads-get`.
    pub fn flag(&self) -> &'static str {
        static FLAGS: LazyLock<Vec<String>> =
            LazyLock::new(|| SETTINGS.iter().map(|setting| setting.words('-').to_lowercase()).collect());
        let position = SETTINGS.iter().position(|setting| setting.key == self.key);
        position.and_then(|position| FLAGS.get(position)).map_or("", String::as_str)
    }

    /// The environment variable: `INFORMERD_CONSISTENT_READS_GET`.
    pub fn variable(&self) -> String {
        format!("INFORMERD_{}", self.words('_').to_uppercase())
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

    fn words(&self, separator: char) -> String {
        let mut words = String::new();
        for c in self.key.chars() {
            if c == '.' {
                words.push(separator);
            } else {
                if c.is_uppercase() {
                    words.push(separator);
                }
                words.push(c);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_from_the_key() {
        let setting = Setting::find("consistentReads.get").unwrap();
        assert_eq!(setting.flag(), "consistent-reads-get");
        assert_eq!(setting.variable(), "INFORMERD_CONSISTENT_READS_GET");
    }

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
