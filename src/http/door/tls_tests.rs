use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::super::local_ca::CA_KEY;
use super::*;
use crate::http::testing::{self_signed, trusting, trusting_with};

fn config(directory: &Path) -> TlsConfig {
    TlsConfig {
        files: None,
        given: false,
        state_dir: directory.join("state"),
        names: vec!["cluster.example".into()],
        only_tls13: false,
        client_certificates: false,
        reload_interval: Duration::from_secs(10),
    }
}

/// Does a handshake and returns the negotiated protocol, or the client's error.
async fn handshake(certificates: &Certificates, ca: &[u8], name: &str) -> Result<Vec<u8>, io::Error> {
    let (near, far) = duplex(64 * 1024);
    let acceptor = certificates.server();
    let server = crate::lifecycle::spawn("server", async move {
        let mut stream = acceptor.accept(far).await?;
        stream.write_all(b"x").await?;
        stream.shutdown().await
    });
    let connector = trusting([CertificateDer::from_pem_slice(ca).unwrap()], &[b"h2".to_vec()]);
    let mut stream = connector.connect(ServerName::try_from(name.to_owned()).unwrap(), near).await?;
    assert_eq!(stream.read_u8().await?, b'x');
    server.await.unwrap()?;
    Ok(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec())
}

#[tokio::test]
async fn a_self_issued_certificate_is_trusted_through_its_ca_which_outlives_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let certificates = Certificates::load(&config(directory.path()), &["10.0.0.7".parse().unwrap()]).unwrap();
    let ca = fs::read(certificates.ca_file().unwrap()).unwrap();
    for name in ["localhost", "informerd.local", "127.0.0.1", "::1", "10.0.0.7", "cluster.example"] {
        assert_eq!(handshake(&certificates, &ca, name).await.unwrap(), b"h2", "{name}");
    }
    assert!(handshake(&certificates, &ca, "evil.example").await.is_err());
    let second = Certificates::load(&config(directory.path()), &[]).unwrap();
    assert_eq!(handshake(&second, &ca, "localhost").await.unwrap(), b"h2");
    assert!(second.refresh().unwrap(), "a new certificate from the same authority");
    assert_eq!(handshake(&second, &ca, "localhost").await.unwrap(), b"h2");
}

#[tokio::test]
async fn a_key_is_private_and_one_that_everybody_may_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    Certificates::load(&config(directory.path()), &[]).unwrap();
    let (state, key) = (directory.path().join("state"), directory.path().join("state").join(CA_KEY));
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&key)), (0o700, 0o600));
    for (mode, refused) in [(0o640, false), (0o604, true), (0o602, true)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let loaded = Certificates::load(&config(directory.path()), &[]);
        assert_eq!(matches!(loaded, Err(TlsError::Exposed(_))), refused, "{mode:o}");
    }
}

#[tokio::test]
async fn the_older_version_can_be_refused() {
    let directory = tempfile::tempdir().unwrap();
    let config = TlsConfig { only_tls13: true, ..config(directory.path()) };
    let certificates = Certificates::load(&config, &[]).unwrap();
    for server in [certificates.server(), certificates.delegated_server()] {
        let (near, far) = duplex(64 * 1024);
        let accepted = crate::lifecycle::spawn("server", async move { server.accept(far).await });
        let ca = CertificateDer::from_pem_file(certificates.ca_file().unwrap()).unwrap();
        let connector = trusting_with(aws_lc_rs::default_provider(), &[&rustls::version::TLS12], [ca], &[]);
        let connected = connector.connect(ServerName::try_from("localhost").unwrap(), near).await;
        assert!(connected.is_err() && accepted.await.unwrap().is_err());
    }
}

#[test]
fn an_authority_of_two_halves_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [&one, &other] {
        Certificates::load(&config(directory.path()), &[]).unwrap();
    }
    let path = |directory: &tempfile::TempDir| directory.path().join("state").join(CA_KEY);
    fs::copy(path(&one), path(&other)).unwrap();
    let error = Certificates::load(&config(other.path()), &[]).unwrap_err();
    assert!(matches!(error, TlsError::Mismatch(_)), "{error}");
}

#[tokio::test]
async fn files_are_read_again_when_they_change() {
    let directory = tempfile::tempdir().unwrap();
    let files =
        CertificateFiles { certificate: directory.path().join("tls.crt"), key: directory.path().join("tls.key") };
    let write = |with_key: bool| {
        let (certificate, key) = self_signed();
        fs::write(&files.certificate, certificate.pem()).unwrap();
        if with_key {
            fs::write(&files.key, key).unwrap();
        }
        certificate.pem().into_bytes()
    };
    let first = write(true);
    let config = TlsConfig { files: Some(files.clone()), ..config(directory.path()) };
    let certificates = Certificates::load(&config, &[]).unwrap();
    assert!(certificates.ca_file().is_none() && !config.state_dir.exists());
    assert!(!certificates.refresh().unwrap());
    assert_eq!(handshake(&certificates, &first, "localhost").await.unwrap(), b"h2");

    write(false);
    assert!(certificates.refresh().is_err(), "half a change is no pair");
    assert_eq!(handshake(&certificates, &first, "localhost").await.unwrap(), b"h2");

    let second = write(true);
    assert!(certificates.refresh().unwrap());
    assert_eq!(handshake(&certificates, &second, "localhost").await.unwrap(), b"h2");
    assert!(handshake(&certificates, &first, "localhost").await.is_err());
}
