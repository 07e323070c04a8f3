//! What a kubeconfig says in its context. The rules are those of client-go 1.36, so that a file means the same user here
//! as for kubectl. `docs/configuration.md` has them as a table.

use http::Uri;
use kube::config::{AuthInfo, AuthProviderConfig, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use percent_encoding::percent_decode_str;

use super::credentials::known_provider;
use super::error::KubeconfigError;
use super::file::{Cluster, Context, Exec, Merged, User};
use super::oidc::Trust;
use super::{pem, proxy};

/// The extension of a cluster that is for its exec plugins.
const FOR_EXEC: &str = "client.authentication.k8s.io/exec";
/// The versions of the plugins' API. `v1alpha1` went with Kubernetes 1.24.
const BETA: &str = "client.authentication.k8s.io/v1beta1";
const STABLE: &str = "client.authentication.k8s.io/v1";

/// What is to be used instead of what the files have as current. `None` is what the files say.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub context: Option<String>,
    pub cluster: Option<String>,
    pub user: Option<String>,
}

/// The parts of the files that one context selects.
pub(super) struct Selected {
    pub(super) context: String,
    pub(super) namespace: String,
    pub(super) cluster: Cluster,
    pub(super) user: User,
}

// === impl Selected ===

impl Selected {
    /// # Errors
    /// What was asked for by name does not exist, or no cluster is selected.
    pub(super) fn of(files: &Merged, wanted: &Wanted) -> Result<Self, KubeconfigError> {
        let context = wanted.context.as_ref().unwrap_or(&files.current_context);
        let missing = |kind: &str, name: &str| KubeconfigError(format!("the {kind} {name:?} does not exist"));
        let found = match files.contexts.get(context) {
            Some(found) => found.clone(),
            None if !context.is_empty() => return Err(missing("context", context)),
            None if wanted.cluster.is_some() => Context::default(),
            None => return Err(KubeconfigError("no context is selected: current-context is empty".to_owned())),
        };
        let name = wanted.cluster.as_ref().unwrap_or(&found.cluster);
        let cluster = files.clusters.get(name).cloned().ok_or_else(|| missing("cluster", name))?;
        let user = match &wanted.user {
            Some(name) => files.users.get(name).cloned().ok_or_else(|| missing("user", name))?,
            // As kubectl: a context may name a user that does not exist.
            None => files.users.get(&found.user).cloned().unwrap_or_default(),
        };
        Ok(Self { context: context.clone(), namespace: found.namespace, cluster, user })
    }

    /// Checks what kubectl checks before it uses the files, and makes a configuration of them. Reads the CA's file.
    ///
    /// # Errors
    /// kubectl would refuse it too. The message is one line, and has no secrets.
    pub(super) fn config(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<kube::Config, KubeconfigError> {
        let mut wrong = self.cluster.mistakes();
        wrong.extend(self.user.mistakes());
        if !wrong.is_empty() {
            return Err(KubeconfigError(wrong.join("; ")));
        }
        let (url, login) = server(&self.cluster.server)?;
        let mut config = kube::Config::new(url.clone());
        if !self.namespace.is_empty() {
            config.default_namespace.clone_from(&self.namespace);
        }
        config.disable_compression = self.cluster.disable_compression;
        config.proxy_url = match self.cluster.proxy_url.as_str() {
            "" => proxy::of_environment(&url, variable).map_err(KubeconfigError)?,
            explicit => Some(proxy::parse(explicit).map_err(|error| KubeconfigError(format!("proxy-url: {error}")))?),
        };
        config.auth_info = self.user.impersonation();
        // As kubectl: no credential goes over a connection without TLS, and nothing of TLS is read for it.
        if url.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Ok(config);
        }
        self.user.check_provider().map_err(KubeconfigError)?;
        let (data, file) = (&self.cluster.certificate_authority_data, &self.cluster.certificate_authority);
        let authorities = pem::data_or_file("certificate-authority", data, file).map_err(KubeconfigError)?;
        let roots = authorities.as_deref().map(pem::certificates);
        if roots.as_ref().is_some_and(Vec::is_empty) {
            return Err(KubeconfigError("certificate-authority: no certificate in it".to_owned()));
        }
        config.root_cert = roots;
        config.accept_invalid_certs = self.cluster.insecure_skip_tls_verify;
        config.tls_server_name = some(&self.cluster.tls_server_name);
        let info = || self.cluster.for_exec(authorities.clone());
        let of = &mut config.auth_info;
        self.user.credentials(of, info);
        if let Some((name, password)) = login {
            // As for Go, which adds nothing to a request that has an Authorization.
            (of.token, of.token_file, of.exec, of.auth_provider) = (None, None, None, None);
            (of.username, of.password) = (some(&name), Some(password.into()));
        }
        Ok(config)
    }
}

/// The URL of a server, and the user name and password in it. Without a scheme it is `http`. The URL has no password, so
/// it may be shown.
///
/// # Errors
/// It is no URL of a server. The text has nothing of what is before an `@`.
fn server(text: &str) -> Result<(Uri, Option<(String, String)>), KubeconfigError> {
    let shown = text.rsplit('@').next().unwrap_or_default();
    let wrong = |error: &dyn std::fmt::Display| KubeconfigError(format!("server {shown:?}: {error}"));
    let url = text
        .parse::<Uri>()
        .or_else(|error| if text.contains("://") { Err(error) } else { format!("http://{text}").parse() });
    let url = url.map_err(|error| wrong(&error))?;
    match (url.scheme_str(), url.host()) {
        (_, None) => return Err(wrong(&"it has no host")),
        (None | Some("http" | "https"), Some(_)) => {}
        (Some(other), _) => return Err(wrong(&format!("the scheme {other} is unknown"))),
    }
    let mut parts = url.into_parts();
    let authority = parts.authority.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut login = None;
    if let Some((userinfo, host)) = authority.rsplit_once('@') {
        let (name, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        login =
            Some((decoded(name).map_err(|error| wrong(&error))?, decoded(password).map_err(|error| wrong(&error))?));
        parts.authority = Some(host.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))?);
    }
    Ok((Uri::from_parts(parts).map_err(|error| wrong(&error))?, login))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn readable(field: &str, path: &str, wrong: &mut Vec<String>) {
    if let Some(error) = some(path).and_then(|path| std::fs::File::open(path).err()) {
        wrong.push(format!("{field}: {path}: {error}"));
    }
}

// === impl Cluster ===

impl Cluster {
    fn mistakes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.server.is_empty() {
            wrong.push("the cluster has no server".to_owned());
        }
        if !self.certificate_authority.is_empty() && !self.certificate_authority_data.is_empty() {
            wrong.push("certificate-authority and certificate-authority-data are both set".to_owned());
        }
        let has_ca = !self.certificate_authority.is_empty() || !self.certificate_authority_data.is_empty();
        if has_ca && self.insecure_skip_tls_verify && self.server.to_ascii_lowercase().starts_with("https://") {
            wrong.push("a certificate-authority is set together with insecure-skip-tls-verify".to_owned());
        }
        readable("certificate-authority", &self.certificate_authority, &mut wrong);
        wrong
    }

    /// What an exec plugin is told about the cluster.
    fn for_exec(&self, authorities: Option<Vec<u8>>) -> ExecAuthCluster {
        ExecAuthCluster {
            server: some(&self.server),
            insecure_skip_tls_verify: self.insecure_skip_tls_verify.then_some(true),
            certificate_authority_data: authorities,
            proxy_url: some(&self.proxy_url),
            tls_server_name: some(&self.tls_server_name),
            config: self.extensions.iter().find(|it| it.name == FOR_EXEC).map(|it| it.extension.clone()),
        }
    }
}

// === impl User ===

impl User {
    fn mistakes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let is_basic = !self.username.is_empty() || !self.password.is_empty();
        if is_basic && !self.token.is_empty() || !self.username.is_empty() && !self.token_file.is_empty() {
            wrong.push("a token and a username or password are both set".to_owned());
        }
        let has_certificate = !self.client_certificate.is_empty() || !self.client_certificate_data.is_empty();
        if has_certificate {
            if !self.client_certificate.is_empty() && !self.client_certificate_data.is_empty() {
                wrong.push("client-certificate and client-certificate-data are both set".to_owned());
            }
            if !self.client_key.is_empty() && !self.client_key_data.is_empty() {
                wrong.push("client-key and client-key-data are both set".to_owned());
            }
            if self.client_key.is_empty() && self.client_key_data.is_empty() {
                wrong.push("the client certificate has no client-key and no client-key-data".to_owned());
            }
            readable("client-certificate", &self.client_certificate, &mut wrong);
            readable("client-key", &self.client_key, &mut wrong);
        }
        if let Some(exec) = &self.exec {
            if self.auth_provider.is_some() {
                wrong.push("exec and auth-provider are both set".to_owned());
            }
            wrong.extend(exec.mistakes());
        }
        let more = !self.impersonate_uid.is_empty()
            || !self.impersonate_groups.is_empty()
            || !self.impersonate_extra.is_empty();
        if more && self.impersonate.is_empty() {
            wrong.push("as-uid, as-groups or as-user-extra is set without as".to_owned());
        }
        wrong
    }

    /// As kubectl, even if another credential sets the provider aside. Reads the file of its CA.
    fn check_provider(&self) -> Result<(), String> {
        let Some(provider) = self.provider() else { return Ok(()) };
        known_provider(&provider.name)?;
        Trust::of(&provider.config).map(drop)
    }

    fn provider(&self) -> Option<AuthProviderConfig> {
        self.auth_provider.as_ref().map(|provider| AuthProviderConfig {
            name: provider.name.clone(),
            config: provider.config.clone().into_iter().collect(),
            ..AuthProviderConfig::default()
        })
    }

    fn impersonation(&self) -> AuthInfo {
        AuthInfo {
            impersonate: some(&self.impersonate),
            impersonate_uid: some(&self.impersonate_uid),
            impersonate_groups: Some(self.impersonate_groups.clone()).filter(|groups| !groups.is_empty()),
            impersonate_user_extra: Some(&self.impersonate_extra)
                .filter(|extra| !extra.is_empty())
                .map(|extra| extra.iter().map(|(key, texts)| (key.clone(), texts.0.clone())).collect()),
            ..AuthInfo::default()
        }
    }

    /// Adds the credentials that are used. A token or a user name sets exec and auth-provider aside, and a client
    /// certificate sets exec aside.
    fn credentials(&self, of: &mut AuthInfo, info: impl FnOnce() -> ExecAuthCluster) {
        of.token = some(&self.token).map(Into::into);
        of.token_file = some(&self.token_file);
        // A password without a user name is no credential.
        of.username = some(&self.username);
        of.password = of.username.as_ref().map(|_| self.password.clone().into());
        let has_certificate = !self.client_certificate.is_empty() || !self.client_certificate_data.is_empty();
        if has_certificate {
            of.client_certificate = some(&self.client_certificate);
            of.client_certificate_data = some(&pem::unbroken(&self.client_certificate_data));
            of.client_key = some(&self.client_key);
            of.client_key_data = some(&pem::unbroken(&self.client_key_data)).map(Into::into);
        }
        if of.token.is_some() || of.token_file.is_some() || of.username.is_some() {
            return;
        }
        of.auth_provider = self.provider();
        of.exec = self.exec.as_ref().filter(|_| !has_certificate).map(|exec| exec.config(info));
    }
}

// === impl Exec ===

impl Exec {
    fn mistakes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.command.is_empty() {
            wrong.push("exec: there is no command".to_owned());
        }
        if !matches!(self.api_version.as_str(), BETA | STABLE) {
            wrong.push(format!("exec: the apiVersion is {:?}, and may be {STABLE} or {BETA}", self.api_version));
        }
        if self.env.iter().any(|variable| variable.name.is_empty()) {
            wrong.push("exec: a variable has no name".to_owned());
        }
        if self.mode().is_none() {
            wrong.push(format!(
                "exec: the interactiveMode is {:?}, and may be Never, IfAvailable or Always",
                self.interactive_mode
            ));
        }
        wrong
    }

    /// Only `v1beta1` has a default.
    fn mode(&self) -> Option<ExecInteractiveMode> {
        match (self.interactive_mode.as_str(), self.api_version.as_str()) {
            ("Never", _) => Some(ExecInteractiveMode::Never),
            ("IfAvailable", _) | ("", BETA) => Some(ExecInteractiveMode::IfAvailable),
            ("Always", _) => Some(ExecInteractiveMode::Always),
            _ => None,
        }
    }

    fn config(&self, info: impl FnOnce() -> ExecAuthCluster) -> ExecConfig {
        let variable = |name: &str, value: &str| {
            [("name", name), ("value", value)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        };
        ExecConfig {
            api_version: Some(self.api_version.clone()),
            command: Some(self.command.clone()),
            args: Some(self.args.clone()),
            env: Some(self.env.iter().map(|it| variable(&it.name, &it.value)).collect()),
            install_hint: some(&self.install_hint),
            interactive_mode: self.mode(),
            provide_cluster_info: self.provide_cluster_info,
            cluster: self.provide_cluster_info.then(info),
            ..ExecConfig::default()
        }
    }
}
