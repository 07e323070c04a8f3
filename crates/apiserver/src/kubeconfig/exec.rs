//! Exec plugins: programs that print credentials (`client.authentication.k8s.io`).

use std::io::{IsTerminal as _, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::authorization::bearer;
use super::keys::{self, Shown};
use super::yaml::first_document;

/// The most bytes that a plugin may print.
const MOST: u64 = 1 << 20;

/// A plugin, and what it printed last. It runs again when that has expired.
pub(super) struct Plugin {
    config: ExecConfig,
    shown: Arc<Shown>,
    issued: Mutex<Issued>,
}

struct Issued {
    header: Option<HeaderValue>,
    expires: Option<Timestamp>,
}

/// What a plugin prints.
#[derive(Deserialize)]
struct Credential {
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

// === impl Plugin ===

impl Plugin {
    /// Runs it for the first time. Blocks until it has ended.
    pub(super) fn start(config: ExecConfig, shown: Arc<Shown>) -> Result<Arc<Self>, String> {
        let (issued, pair) = run(&config)?;
        shown.0.store(pair);
        Ok(Arc::new(Self { config, shown, issued: Mutex::new(issued) }))
    }

    /// The `Authorization` of a request, if the plugin gives tokens.
    ///
    /// # Errors
    /// The credentials have expired, and the plugin has failed to renew them.
    pub(super) async fn header(self: &Arc<Self>) -> Result<Option<HeaderValue>, String> {
        // Held while it runs, because it may ask somebody something.
        let mut issued = self.issued.lock().await;
        if issued.expires.is_some_and(|expires| expires < Timestamp::now()) {
            let plugin = Arc::clone(self);
            let run = tokio::task::spawn_blocking(move || run(&plugin.config)).await;
            let (renewed, pair) = run.map_err(|error| error.to_string())??;
            *issued = renewed;
            self.shown.0.store(pair);
        }
        Ok(issued.header.clone())
    }

    /// Whether a request would have what it printed last. Not while it runs.
    pub(super) fn is_valid(&self) -> bool {
        self.issued.try_lock().is_ok_and(|issued| issued.expires.is_none_or(|expires| expires >= Timestamp::now()))
    }
}

fn run(config: &ExecConfig) -> Result<(Issued, Option<Arc<CertifiedKey>>), String> {
    let command = config.command.as_deref().unwrap_or_default();
    let failed = |error: String| format!("exec plugin {command}: {error}");
    let is_interactive = is_interactive(config.interactive_mode.as_ref()).map_err(|error| failed(error.to_owned()))?;
    let version = config.api_version.as_deref().unwrap_or_default();
    let mut spec = serde_json::json!({ "interactive": is_interactive });
    if config.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&config.cluster).map_err(|error| failed(error.to_string()))?;
    }
    let info = serde_json::json!({ "kind": "ExecCredential", "apiVersion": version, "spec": spec });
    let variables = config.env.iter().flatten().filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
    let mut child = Command::new(program(command));
    child.args(config.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", info.to_string());
    child.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() }).stdout(Stdio::piped());
    let hint = config
        .install_hint
        .as_ref()
        .map(|hint| format!(" ({})", hint.split_whitespace().collect::<Vec<_>>().join(" ")));
    let mut child = child.spawn().map_err(|error| failed(format!("{error}{}", hint.unwrap_or_default())))?;
    let mut printed = Vec::new();
    let read = child.stdout.take().map(|out| out.take(MOST).read_to_end(&mut printed)).transpose();
    // It ends at the latest when it writes more than is read.
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    read.map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(format!("{status}; it may have said more on standard error")));
    }
    parse(&printed, version).map_err(failed)
}

/// The program of a command without a slash. It is looked up in our own PATH: the one among the plugin's variables is for
/// what the plugin runs.
fn program(command: &str) -> PathBuf {
    let path = std::env::var_os("PATH").filter(|_| !command.contains('/')).unwrap_or_default();
    let is_program = |file: &PathBuf| {
        file.is_absolute() && file.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(&path).map(|directory| directory.join(command)).find(is_program);
    found.unwrap_or_else(|| command.into())
}

fn is_interactive(mode: Option<&ExecInteractiveMode>) -> Result<bool, &'static str> {
    let is_terminal = std::io::stdin().is_terminal();
    match mode {
        Some(ExecInteractiveMode::Never) => Ok(false),
        None | Some(ExecInteractiveMode::IfAvailable) => Ok(is_terminal),
        Some(ExecInteractiveMode::Always) if is_terminal => Ok(true),
        Some(ExecInteractiveMode::Always) => Err("its interactiveMode is Always, and standard input is no terminal"),
    }
}

/// Reads what a plugin printed: JSON, or YAML.
fn parse(printed: &[u8], version: &str) -> Result<(Issued, Option<Arc<CertifiedKey>>), String> {
    let unreadable = "what it printed is no ExecCredential";
    // As Go: a byte of no character is U+FFFD.
    let printed = first_document(&String::from_utf8_lossy(printed)).map_err(|_| unreadable)?;
    let printed: Credential = serde_json::from_value(printed).map_err(|_| unreadable)?;
    if !matches!(printed.kind.as_str(), "" | "ExecCredential") {
        return Err(unreadable.to_owned());
    }
    if printed.api_version != version {
        return Err(format!("it is configured for {version}, and it printed {}", printed.api_version));
    }
    let Status { expiration_timestamp, token, client_certificate_data, client_key_data } =
        printed.status.ok_or("it printed no status")?;
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let header = some(token).map(|token| bearer(&token)).transpose()?;
    let pair = match (some(client_certificate_data), some(client_key_data)) {
        (Some(certificate), Some(key)) => Some(Arc::new(keys::pair(certificate.as_bytes(), key.as_bytes())?)),
        (None, None) if header.is_none() => return Err("it printed neither a token nor a certificate".to_owned()),
        (None, None) => None,
        _ => return Err("it printed only one of a certificate and its key".to_owned()),
    };
    let expires = some(expiration_timestamp).map(|time| time.parse()).transpose();
    let expires = expires.map_err(|error: jiff::Error| format!("expirationTimestamp: {error}"))?;
    Ok((Issued { header, expires }, pair))
}
