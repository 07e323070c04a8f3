//! `informerd kubeconfig`: writes a kubeconfig with which kubectl uses the local endpoint.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::http::ListenAddr;

/// The address of the daemon, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub https: bool,
    pub address: SocketAddr,
    /// The CA that issued our certificate, in PEM. `None`: the client's system already trusts the issuer.
    pub ca: Option<Vec<u8>>,
    /// The namespace of the context, where it has one.
    pub namespace: Option<String>,
}

/// The first listener that a kubeconfig without credentials can use. It must not require credentials, and must not be a
/// Unix socket, which Kubernetes clients cannot use.
///
/// # Errors
/// There is no such listener, or its port is chosen only when the daemon starts.
pub fn listener(listen: &[ListenAddr]) -> Result<(bool, SocketAddr), String> {
    let usable = listen.iter().find_map(|address| match address {
        ListenAddr::Http(at) => Some((false, *at)),
        ListenAddr::Https(at) => Some((true, *at)),
        // Our kubeconfig contains no credentials.
        ListenAddr::Delegated(_) | ListenAddr::Unix(_) => None,
    });
    let (https, at) = usable.ok_or(
        "no listener that a kubeconfig without credentials can name: delegated ones want some, and kubectl and the client libraries do not speak over unix sockets",
    )?;
    if at.port() == 0 {
        return Err("the port of the listener is chosen when the daemon starts: give --listen a port".to_owned());
    }
    Ok((https, at))
}

/// Returns the kubeconfig as YAML.
///
/// # Errors
/// The key pair could not be generated.
pub fn render(endpoint: &Endpoint) -> Result<String, String> {
    let scheme = if endpoint.https { "https" } else { "http" };
    let mut cluster = format!("    server: {scheme}://{}\n", endpoint.address);
    if !endpoint.https {
        // Without TLS this has no effect, but the JavaScript client accepts no http:// URL without it.
        cluster.push_str("    insecure-skip-tls-verify: true\n");
    }
    if let Some(ca) = &endpoint.ca {
        cluster.push_str(&format!("    certificate-authority-data: {}\n", STANDARD.encode(ca)));
    }
    let namespace =
        endpoint.namespace.as_ref().map(|name| format!("    namespace: {}\n", serde_json::Value::from(&**name)));
    let user = if endpoint.https { placeholder_credential()? } else { "  user: {}\n".to_owned() };
    Ok(format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: informerd\n  cluster:\n{cluster}users:\n- name: informerd\n{user}\
         contexts:\n- name: informerd\n  context:\n    cluster: informerd\n    user: informerd\n{}\
         current-context: informerd\n",
        namespace.unwrap_or_default()
    ))
}

/// A client certificate that no server trusts or asks for. Over TLS, kubectl prompts for a user name unless the
/// kubeconfig has a credential. Any other kind of credential would be sent in a header and forwarded to the apiserver
/// as the client's own.
fn placeholder_credential() -> Result<String, String> {
    let pair =
        rcgen::generate_simple_self_signed(vec!["informerd-client".to_owned()]).map_err(|error| error.to_string())?;
    Ok(format!(
        "  # Not a credential: it only keeps kubectl from asking for a user name.\n  user:\n    \
         client-certificate-data: {}\n    client-key-data: {}\n",
        STANDARD.encode(pair.cert.pem()),
        STANDARD.encode(pair.signing_key.serialize_pem()),
    ))
}

/// Writes the file atomically. Only its owner can read it.
///
/// # Errors
/// The directory does not exist or is not writable.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| std::fs::rename(&temporary, path)).inspect_err(|_| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn endpoint(https: bool, ca: Option<&str>) -> Endpoint {
        let (address, ca) = ("127.0.0.1:8001".parse().unwrap(), ca.map(|ca| ca.as_bytes().to_vec()));
        Endpoint { https, address, ca, namespace: None }
    }

    /// Reads the text with the loader that Rust client libraries use.
    fn read_back(text: &str) -> kube::config::Kubeconfig {
        kube::config::Kubeconfig::from_yaml(text).unwrap()
    }

    #[test]
    fn plain_http_needs_nothing() {
        let config = read_back(&render(&endpoint(false, None)).unwrap());
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("http://127.0.0.1:8001"));
        assert_eq!(cluster.insecure_skip_tls_verify, Some(true), "or the JavaScript client refuses it");
        assert_eq!(config.current_context.as_deref(), Some("informerd"));
        assert!(config.auth_infos[0].auth_info.as_ref().unwrap().client_certificate_data.is_none());
    }

    #[test]
    fn https_carries_the_ca() {
        let config = read_back(&render(&endpoint(true, Some("a CA"))).unwrap());
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:8001"));
        assert_eq!(cluster.insecure_skip_tls_verify, None);
        let ca = STANDARD.decode(cluster.certificate_authority_data.as_ref().unwrap()).unwrap();
        assert_eq!(ca, b"a CA");
        let user = config.auth_infos[0].auth_info.as_ref().unwrap();
        let certificate = STANDARD.decode(user.client_certificate_data.as_ref().unwrap()).unwrap();
        assert!(certificate.starts_with(b"-----BEGIN CERTIFICATE-----"));
        assert!(user.token.is_none() && user.username.is_none(), "nothing that would travel in a header");
    }

    #[test]
    fn finds_a_listener() {
        let listen = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<ListenAddr>>();
        let found = listener(&listen(&["unix:///s", "https://127.0.0.1:1", "http://127.0.0.1:2"])).unwrap();
        assert_eq!(found, (true, "127.0.0.1:1".parse().unwrap()));
        assert!(listener(&listen(&["unix:///s"])).unwrap_err().contains("unix sockets"));
        assert!(listener(&listen(&["http://127.0.0.1:0"])).unwrap_err().contains("port"));
    }

    #[test]
    fn is_written_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, "old").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
        assert!(write(&directory.path().join("no/such"), "x").is_err());
    }
}
