//! A kubeconfig file, against what its text says.
//!
//! Files that name other files, commands or providers are not read: what a fuzzer writes must neither be opened nor run.

use std::cell::RefCell;
use std::io::{Seek, Write};

use informerd::apiserver::client::ConfigSource;
use tempfile::NamedTempFile;

use super::runtime::block_on;

/// Fields that name a file.
const FILES: [&str; 4] = ["certificate-authority:", "client-certificate:", "client-key:", "tokenFile"];

thread_local! {
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a file"));
}

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // In other encodings, in quotes or with an escape they would not be found.
    if !data.is_ascii()
        || text.contains('\\')
        || FILES.iter().any(|field| text.replace(['"', '\''], "").contains(field))
    {
        return;
    }
    FILE.with_borrow_mut(|file| {
        file.as_file_mut().set_len(0).expect("a file");
        file.rewind().expect("a file");
        file.write_all(data).expect("a file");
        let source = ConfigSource::kubeconfig(file.path());
        let read = match block_on(source.read()) {
            Ok(config) => config,
            Err(error) => {
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
                return;
            }
        };
        let host = read.cluster_url.host().expect("a server without a host");
        assert!(text.contains(host), "the host {host} is nowhere in the file");
        let is_https = read.cluster_url.scheme_str() == Some("https");
        let user = &read.auth_info;
        let has_credentials = user.token.is_some() || user.username.is_some() || user.client_certificate_data.is_some();
        assert!(is_https || !has_credentials, "credentials without TLS");
        assert!(user.token.is_none() || user.username.is_none(), "two credentials");
        // It stays the same as long as the file does.
        assert_eq!(block_on(source.read()).map(|config| config.cluster_url).ok(), Some(read.cluster_url));
    });
}
