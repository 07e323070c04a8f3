//! Where informerd is, and how to speak to it.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::{PathAndQuery, Uri};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::Error;

/// An object may be larger than gRPC's 4 MiB.
pub(crate) const LARGEST_MESSAGE: usize = 64 << 20;
/// Of a token, or of the CAs.
const LARGEST_FILE: u64 = 1 << 20;

/// An informerd. A token is never sent in plain text to another machine. Both files are read for every stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    address: String,
    uri: Uri,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
}

// === impl Server ===

impl Server {
    /// # Errors
    /// The address is wrong, or a token would be sent in plain text to another machine.
    pub fn new(address: &str, ca_file: Option<PathBuf>, token_file: Option<PathBuf>) -> Result<Self, Error> {
        let wrong = || {
            let message =
                format!("{address:?} is no address: want http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH");
            Error::Invalid(message)
        };
        let address = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let socket = address.starts_with("unix:///");
        // A URI of this library has an authority. That of a socket is not used.
        let uri = if socket { Ok(Uri::from_static("unix://socket")) } else { address.parse::<Uri>() };
        let uri = uri.map_err(|_| wrong())?;
        let named = matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.port_u16().is_some_and(|port| port > 0)
            && uri.host().is_some_and(|host| !host.is_empty())
            && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'))
            && uri.path().trim_matches('/').is_empty()
            && uri.query().is_none();
        if !socket && !named {
            return Err(wrong());
        }
        let server = Self { address, uri, ca_file, token_file };
        if server.token_file.is_some() && !server.is_safe() {
            let message =
                format!("{}: a token is not sent in plain text to another machine; use https", server.address);
            return Err(Error::Invalid(message));
        }
        Ok(server)
    }

    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The CA of an `https://` address, in PEM; without it, the system's.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// The value of the header `authorization`, as the token's file has it now; `None` without one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn authorization(&self) -> io::Result<Option<String>> {
        let read = self.token_file.as_deref().map(read).transpose()?;
        Ok(read.map(|token| format!("Bearer {}", token.trim())))
    }

    /// A connection for the stubs in [`crate::v1`]. It connects when it is first used.
    ///
    /// # Errors
    /// The CA cannot be read.
    pub fn channel(&self) -> Result<Channel, Error> {
        let invalid = |error: &dyn std::fmt::Display| Error::Invalid(format!("{}: {error}", self.address));
        let mut endpoint = Endpoint::from_shared(self.address.clone())
            .and_then(|endpoint| endpoint.user_agent("informerd-rust"))
            .map_err(|error| invalid(&error))?
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        if self.uri.scheme_str() == Some("https") {
            let tls = ClientTlsConfig::new().domain_name(self.host());
            let tls = match &self.ca_file {
                Some(file) => {
                    let pem = read(file).map_err(|error| invalid(&format!("{}: {error}", file.display())))?;
                    tls.ca_certificate(Certificate::from_pem(pem))
                }
                None => tls.with_native_roots(),
            };
            endpoint = endpoint.tls_config(tls).map_err(|error| invalid(&error))?;
        }
        Ok(endpoint.connect_lazy())
    }

    /// Adds the token to a call of a stub.
    ///
    /// # Errors
    /// The token's file cannot be read.
    pub fn authorize(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        let read = self.authorization();
        if let Some(value) = read.map_err(|error| Status::unknown(format!("the token cannot be read: {error}")))? {
            let mut value: AsciiMetadataValue = value.parse().map_err(|_| Status::unknown("the token is no header"))?;
            value.set_sensitive(true);
            metadata.insert("authorization", value);
        }
        Ok(())
    }

    /// Whether an informerd is there and ready. No credentials are shown to what might be something else.
    pub async fn answers(&self, timeout: Duration) -> bool {
        let Ok(channel) = self.channel() else { return false };
        // Of grpc.health.v1, of which one call of one message is all that is needed. Nobody else has that service.
        let check = async {
            let mut client = Grpc::new(channel);
            client.ready().await.ok()?;
            let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
            let request = tonic::Request::new(HealthCheckRequest { service: "informerd.v1.Objects".to_owned() });
            let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
            Some(client.unary(request, path, codec).await.ok()?.into_inner().status)
        };
        tokio::time::timeout(timeout, check).await.ok().flatten() == Some(SERVING)
    }

    fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Whether a token may be sent there.
    pub(crate) fn is_safe(&self) -> bool {
        let loopback = || self.host() == "localhost" || self.host().parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        self.uri.scheme_str() != Some("http") || loopback()
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST_FILE).read_to_string(&mut text)?;
    Ok(text)
}

const SERVING: i32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}
