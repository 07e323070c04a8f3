//! What a kubeconfig says of an OIDC provider.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::kubeconfig::pem;

pub(super) const ISSUER: &str = "idp-issuer-url";
pub(super) const CLIENT_ID: &str = "client-id";
pub(super) const CLIENT_SECRET: &str = "client-secret";
pub(super) const CA_FILE: &str = "idp-certificate-authority";
pub(super) const CA_DATA: &str = "idp-certificate-authority-data";
pub(super) const ID_TOKEN: &str = "id-token";
pub(super) const REFRESH_TOKEN: &str = "refresh-token";

/// The configuration of a provider.
pub(super) struct Config {
    /// As in the kubeconfig.
    pub(super) fields: HashMap<String, String>,
    pub(super) trust: Trust,
}

/// Who may have signed the certificate of the provider.
pub(in crate::kubeconfig) struct Trust {
    /// In DER; `None` for the CAs of the system.
    pub(super) roots: Option<Vec<Vec<u8>>>,
    /// The file they are from.
    pub(super) file: Option<PathBuf>,
}

/// A field of the configuration; empty if it is not there.
pub(super) fn field<'a>(config: &'a HashMap<String, String>, name: &str) -> &'a str {
    config.get(name).map_or("", String::as_str)
}

pub(super) fn failed(error: impl std::fmt::Display) -> String {
    format!("auth-provider oidc: {error}")
}

// === impl Trust ===

impl Trust {
    /// Checks what client-go checks of a configuration before it uses it. Reads the CA's file.
    ///
    /// # Errors
    /// A field is missing, or the CA cannot be read.
    pub(in crate::kubeconfig) fn of(config: &HashMap<String, String>) -> Result<Self, String> {
        if let Some(missing) = [ISSUER, CLIENT_ID].into_iter().find(|name| field(config, name).is_empty()) {
            return Err(failed(format!("there is no {missing}")));
        }
        // As client-go: the data comes before the file, whose path is relative to the working directory.
        let (data, path) = (field(config, CA_DATA), field(config, CA_FILE));
        let Some(text) = pem::data_or_file(CA_FILE, data, path).map_err(failed)? else {
            return Ok(Self { roots: None, file: None });
        };
        let (name, file) = if data.is_empty() { (CA_FILE, Some(path.into())) } else { (CA_DATA, None) };
        match pem::certificates(&text) {
            roots if roots.is_empty() => Err(failed(format!("{name}: no certificate in it"))),
            roots => Ok(Self { roots: Some(roots), file }),
        }
    }
}
