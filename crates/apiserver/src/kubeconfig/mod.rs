//! Kubeconfigs: which files there are, what they say, and what is made of that. The rules are those of client-go 1.36,
//! so that a file that kubectl accepts works here too, as the same user.

mod authorization;
mod credentials;
mod der;
mod error;
mod exec;
mod file;
mod keys;
mod oidc;
mod pem;
mod proxy;
mod rsa;
mod select;
mod tls;
mod yaml;

use std::path::PathBuf;

pub(crate) use self::authorization::basic;
pub use self::credentials::Credentials;
pub use self::error::KubeconfigError;
pub use self::select::Wanted;
pub(crate) use self::tls::bare_client_config;

use self::file::Merged;
use self::select::Selected;

/// What the files say.
#[derive(Debug)]
pub struct Kubeconfig {
    pub config: kube::Config,
    /// The name of the context.
    pub context: String,
    /// The files that the selected cluster and user name, apart from that of the token.
    pub named: Vec<PathBuf>,
    pub token_file: Option<PathBuf>,
}

/// Reads files and merges them as kubectl does: the first file that has a value wins.
///
/// # Errors
/// A file cannot be read, or kubectl would refuse what the files say.
pub fn load(paths: &[PathBuf], wanted: &Wanted) -> Result<Kubeconfig, KubeconfigError> {
    load_with(paths, wanted, &|name| std::env::var(name).ok())
}

/// [`load`] with the variables of an environment, which may name a proxy.
fn load_with(
    paths: &[PathBuf],
    wanted: &Wanted,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Kubeconfig, KubeconfigError> {
    let selected = Selected::of(&Merged::read(paths)?, wanted)?;
    let config = selected.config(variable)?;
    let Selected { context, cluster, user, .. } = selected;
    let path = |name: &String| (!name.is_empty()).then(|| PathBuf::from(name));
    let named = [&cluster.certificate_authority, &user.client_certificate, &user.client_key];
    let named = named.into_iter().filter_map(path).collect();
    Ok(Kubeconfig { config, context, named, token_file: path(&user.token_file) })
}

#[cfg(test)]
mod tests;
