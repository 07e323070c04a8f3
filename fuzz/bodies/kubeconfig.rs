//! A kubeconfig file, against its contexts, clusters and users as the client library reads them.
//!
//! Files that name other files, commands or providers are not read: what a fuzzer writes must neither be opened nor run.

use std::cell::RefCell;
use std::io::{Seek, Write};

use informerd::upstream::client::ConfigSource;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use tempfile::NamedTempFile;

use super::runtime::block_on;

thread_local! {
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a file"));
}

pub fn check(data: &[u8]) {
    // The client library panics where UTF-16 ends inside a character. The daemon takes that as a file that cannot be read.
    if (data.starts_with(&[0xff, 0xfe]) || data.starts_with(&[0xfe, 0xff])) && data.len() % 2 == 1 {
        return;
    }
    FILE.with_borrow_mut(|file| {
        file.as_file_mut().set_len(0).expect("a file");
        file.rewind().expect("a file");
        file.write_all(data).expect("a file");
        one(file);
    });
}

fn one(file: &NamedTempFile) {
    let source = ConfigSource::kubeconfig(file.path());
    let Ok(kubeconfig) = Kubeconfig::read_from(file.path()) else {
        assert!(block_on(source.read()).is_err(), "what is no kubeconfig");
        return;
    };
    let is_safe = kubeconfig
        .clusters
        .iter()
        .all(|named| named.cluster.as_ref().is_none_or(|cluster| cluster.certificate_authority.is_none()))
        && kubeconfig.auth_infos.iter().all(|named| named.auth_info.as_ref().is_none_or(is_plain));
    if !is_safe {
        return;
    }
    let read = block_on(source.read());
    let Ok(config) = read else { return };
    let (cluster, user) = current(&kubeconfig).expect("a configuration of no context");
    assert!(cluster.proxy_url.as_deref().unwrap_or_default().is_empty(), "a proxy");
    let server = cluster.server.as_deref().expect("a server");
    let uri: http::Uri = server.parse().expect("an address");
    assert_eq!((config.cluster_url.host(), config.cluster_url.port()), (uri.host(), uri.port()));
    assert_eq!(config.auth_info.username, user.and_then(|user| user.username.clone()));
    assert_eq!(config.accept_invalid_certs, cluster.insecure_skip_tls_verify.unwrap_or(false));
    // It stays the same as long as the file does.
    assert_eq!(block_on(source.read()).map(|config| config.cluster_url).ok(), Some(config.cluster_url));
}

fn is_plain(user: &AuthInfo) -> bool {
    user.exec.is_none()
        && user.auth_provider.is_none()
        && user.token_file.is_none()
        && user.client_certificate.is_none()
        && user.client_key.is_none()
}

/// The first of each name counts.
fn current(kubeconfig: &Kubeconfig) -> Option<(&Cluster, Option<&AuthInfo>)> {
    let name = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    let user = kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == context.user.as_ref());
    Some((cluster, user.and_then(|named| named.auth_info.as_ref())))
}
