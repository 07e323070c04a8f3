//! The address of a daemon, as the command line names it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Http(String),
    /// Host and port.
    Https(String),
    Unix(PathBuf),
}

// === impl Address ===

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        let (https, bare) = match text.strip_prefix("https://") {
            Some(bare) => (true, bare),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let authority = bare.trim_end_matches('/');
        let known = authority.parse::<http::uri::Authority>().ok().filter(|authority| authority.port_u16().is_some());
        match known {
            Some(authority) if https => Ok(Self::Https(authority.to_string())),
            Some(authority) => Ok(Self::Http(authority.to_string())),
            None => {
                Err(format!("{text:?} is no address: want http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH"))
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(authority) => write!(f, "http://{authority}"),
            Self::Https(authority) => write!(f, "https://{authority}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let http = |authority: &str| Ok(Address::Http(authority.to_owned()));
        assert_eq!("http://127.0.0.1:8001".parse(), http("127.0.0.1:8001"));
        assert_eq!("http://localhost:1/".parse(), http("localhost:1"));
        assert_eq!("[::1]:8001".parse(), http("[::1]:8001"));
        assert_eq!("https://[::1]:6443/".parse(), Ok(Address::Https("[::1]:6443".to_owned())));
        assert_eq!("unix:///run/i.sock".parse(), Ok(Address::Unix("/run/i.sock".into())));
        for bad in ["", "localhost", "https://localhost", "unix://x", "http://localhost:x", "http://a:1/path"] {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }
}
