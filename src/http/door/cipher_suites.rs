//! The cipher suite of a connection: the one that Go's TLS server, and so the apiserver, chooses for a client
//! whose first suite has AES-GCM or ChaCha20. rustls by itself follows the client's order, and many clients name AES-256
//! first. AES-128 costs less.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::Acceptor;
use rustls::{CipherSuite, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Accepts TLS. Cloning shares everything.
#[derive(Clone, Debug)]
pub struct TlsServer {
    aes_first: Arc<ServerConfig>,
    chacha_first: Arc<ServerConfig>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cipher {
    Aes128,
    Aes256,
    ChaCha20,
}

// === impl TlsServer ===

impl TlsServer {
    /// `configure` makes a configuration with this provider.
    ///
    /// # Errors
    /// `configure` fails.
    pub(super) fn new<E>(configure: impl Fn(CryptoProvider) -> Result<ServerConfig, E>) -> Result<Self, E> {
        let with = |first: fn(Cipher) -> bool| {
            let mut provider = aws_lc_rs::default_provider();
            provider.cipher_suites.sort_by_key(|suite| {
                let cipher = Cipher::of(suite.suite());
                (!cipher.is_some_and(first), cipher)
            });
            let mut config = configure(provider)?;
            config.ignore_client_order = true;
            Ok::<_, E>(config)
        };
        let aes_first = with(|cipher| cipher != Cipher::ChaCha20)?;
        let mut chacha_first = with(|cipher| cipher == Cipher::ChaCha20)?;
        // One ticketer and one cache for both.
        chacha_first.ticketer = Arc::clone(&aes_first.ticketer);
        chacha_first.session_storage = Arc::clone(&aes_first.session_storage);
        Ok(Self { aes_first: Arc::new(aes_first), chacha_first: Arc::new(chacha_first) })
    }

    /// Does the handshake of a connection.
    ///
    /// # Errors
    /// The socket fails, or the handshake does.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, socket: S) -> io::Result<TlsStream<S>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let uses_aes = has_aes() && prefers_aes(hello.client_hello().cipher_suites());
        let config = if uses_aes { &self.aes_first } else { &self.chacha_first };
        hello.into_stream(Arc::clone(config)).await
    }
}

/// Whether the first suite that rustls has, too, is one with AES. A client without instructions for it names ChaCha20 first.
fn prefers_aes(offered: &[CipherSuite]) -> bool {
    offered.iter().find_map(|suite| Cipher::of(*suite)).is_some_and(|cipher| cipher != Cipher::ChaCha20)
}

/// Whether this machine has instructions for AES-GCM.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

// === impl Cipher ===

impl Cipher {
    /// `None` for suites that rustls does not have.
    fn of(suite: CipherSuite) -> Option<Self> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(Self::Aes128),
            CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(Self::Aes256),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(Self::ChaCha20),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use tokio::io::duplex;

    use super::super::config::HttpConfig;
    use super::super::tls::Certificates;
    use super::*;
    use crate::http::testing::trusting_with;
    use crate::lifecycle::spawn;

    fn provider(order: &[Cipher]) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        let place = |suite| order.iter().position(|cipher| Some(*cipher) == Cipher::of(suite));
        provider.cipher_suites.retain(|suite| place(suite.suite()).is_some());
        provider.cipher_suites.sort_by_key(|suite| place(suite.suite()));
        provider
    }

    #[tokio::test]
    async fn a_connection_gets_the_suite_that_the_apiserver_chooses() {
        use Cipher::{Aes128, Aes256, ChaCha20};
        let directory = tempfile::tempdir().unwrap();
        let certificates =
            Certificates::load(&HttpConfig::new(vec![], directory.path().join("state")).tls, &[]).unwrap();
        let ca = certificates.chain().pop().unwrap();
        let aes = |cipher| if has_aes() { cipher } else { ChaCha20 };
        for (order, chosen) in [
            (&[Aes256, Aes128, ChaCha20][..], aes(Aes128)),
            (&[Aes128, Aes256, ChaCha20], aes(Aes128)),
            (&[Aes256, ChaCha20], aes(Aes256)),
            (&[ChaCha20, Aes256, Aes128], ChaCha20),
            (&[ChaCha20, Aes128], ChaCha20),
            (&[Aes256], Aes256),
        ] {
            for version in rustls::ALL_VERSIONS {
                for server in [certificates.server(), certificates.delegated_server()] {
                    let (near, far) = duplex(64 << 10);
                    let accepted = spawn("server", async move { server.accept(far).await });
                    let connector = trusting_with(provider(order), &[version], [ca.clone()], &[]);
                    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), near).await.unwrap();
                    accepted.await.unwrap().unwrap();
                    let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
                    assert_eq!(Cipher::of(suite), Some(chosen), "{version:?} {order:?}");
                }
            }
        }
    }
}
