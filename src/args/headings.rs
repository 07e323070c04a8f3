//! The groups of settings in the help.

/// The settings for manifests and the webhook.
pub(super) const INJECTION: &str = "Injection";

/// The heading of a setting in the help, by the first part of its key.
pub(super) fn heading(key: &str) -> &'static str {
    match key.split('.').next().unwrap_or_default() {
        "config" | "kubeconfig" | "context" => "Configuration and cluster",
        "listen" | "admin" | "probes" | "stateDir" | "dropInDir" | "unixMode" | "allowedHosts" | "tls" => {
            "Listeners and certificates"
        }
        "lendIdentity" | "lendSessions" | "authentication" | "authorization" => "Clients and their rights",
        "resources" | "consistentReads" | "protobuf" | "whileAway" | "notSynced" => "Reads",
        "idleTimeout" | "storeCheck" | "snapshots" | "window" | "memory" => "Caches",
        "inject" => INJECTION,
        "audit" | "access" | "log" | "explainHeader" => "Logs",
        _ => "Limits and the process",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::args::parse;
    use crate::config::SETTINGS;

    #[test]
    fn the_help_has_groups() {
        let text = parse(["informerd", "--help"]).unwrap_err().text;
        let groups: BTreeSet<_> = SETTINGS.iter().map(|setting| heading(setting.key)).collect();
        assert_eq!(groups.len(), 8);
        for group in groups {
            assert_eq!(text.matches(&format!("\n{group}:\n")).count(), 1, "{group} in {text}");
        }
    }
}
