//! Kubeconfigs of many kinds: informerd must be the same user as kubectl, or refuse what kubectl refuses.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of a test")]

mod cases;
mod provider;
mod proxies;
mod yaml;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body_util::BodyExt as _;
use informerd::apiserver::client::{ConfigSource, Identity, Upstream, UpstreamConfig, full};
use serde_json::Value;

use self::provider::Provider;
use crate::cluster::Cluster;
use crate::process::{judge, run};
use crate::support::binary::informerd;
use crate::support::{file, tied};

/// A directory with files, in front of a cluster that takes the certificates in `tests/data/kubeconfigs`.
pub(crate) struct World {
    cluster: Cluster,
    directory: tempfile::TempDir,
    /// `https://127.0.0.1:port`
    server: String,
    /// The CA of the server, in base64.
    ca: String,
    /// `host:port` of proxies by HTTP, by HTTP over TLS, and by SOCKS.
    http: String,
    https: String,
    socks: String,
    provider: Provider,
}

/// One or several kubeconfigs, and who they are of.
struct Case {
    name: &'static str,
    files: Vec<String>,
    /// `None`: refused.
    user: Option<&'static str>,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kubeconfigs").join(name)
}

/// A file of the data, in base64.
fn base64(name: &str) -> String {
    STANDARD.encode(std::fs::read(data(name)).expect("a file of the data"))
}

/// What kubectl says with these files, or what it says about what it cannot read.
async fn kubectl(files: &[PathBuf], home: &Path, args: &[&str]) -> Result<Value, String> {
    let mut command = tied::command(judge().await);
    command.arg("kubectl").args(args).args(["-o", "json"]);
    command.env("HOME", home).env("KUBERC", "off").env_remove("HTTPS_PROXY");
    command.env("KUBECONFIG", std::env::join_paths(files).expect("paths"));
    let output = run(command, "").await;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

impl World {
    async fn start() -> Self {
        let path = |name: &str| data(name).display().to_string();
        let mut flags = vec![format!("--apiserver-flag=client-ca-file={}", path("ca.crt"))];
        for name in ["leaf", "own", "client", "old"] {
            let (certificate, key) = (path(&format!("server-{name}.crt")), path(&format!("server-{name}.key")));
            flags.push(format!("--apiserver-flag=tls-sni-cert-key={certificate},{key}"));
        }
        let cluster = Cluster::start_with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let directory = tempfile::tempdir().expect("a directory");
        let server = cluster.info.server.clone();
        let ca = STANDARD.encode(std::fs::read(&cluster.info.ca).expect("a CA"));
        let address = server.trim_start_matches("https://").parse().expect("an address");
        let http = proxies::before(address).await;
        let https = proxies::over_tls(address).await;
        let socks = proxies::before(address).await;
        let provider = Provider::start(&cluster).await;
        Self { cluster, directory, server, ca, http, https, socks, provider }
    }

    /// A file in the directory, for relative paths.
    fn file(&self, name: &str, content: &[u8]) {
        file(self.directory.path(), name, content);
    }

    async fn kubectl(&self, files: &[PathBuf], args: &[&str]) -> Result<Value, String> {
        kubectl(files, self.directory.path(), args).await
    }

    async fn informerd(&self, files: &[PathBuf]) -> Result<Value, String> {
        let source = ConfigSource::Kubeconfig { paths: files.to_vec(), context: None, cluster: None, user: None };
        let upstream = Upstream::new(source, UpstreamConfig::default()).await.map_err(|error| error.to_string())?;
        let review = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
        let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json")
            .body(full(review))
            .expect("a request");
        let response = upstream.send(Identity::Own, request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        if !head.status.is_success() {
            return Err(format!("{}: {}", head.status, String::from_utf8_lossy(&body)));
        }
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }

    /// What is wrong with one case.
    async fn judge(&self, number: usize, case: Case) -> Vec<String> {
        let paths: Vec<_> =
            (0..case.files.len()).map(|file| self.directory.path().join(format!("{number}-{file}"))).collect();
        let write = || {
            for (path, text) in paths.iter().zip(&case.files) {
                std::fs::write(path, text).expect("written");
            }
        };
        write();
        let theirs = self.kubectl(&paths, &["auth", "whoami"]).await;
        // kubectl writes renewed tokens to its file.
        write();
        let ours = self.informerd(&paths).await;
        let user = |said: &Result<Value, String>| said.as_ref().ok().map(|said| said["status"]["userInfo"].clone());
        let mut wrong = Vec::new();
        let name = user(&theirs).map(|user| user["username"].as_str().unwrap_or_default().to_owned());
        if name.as_deref() != case.user {
            wrong.push(format!("{}: kubectl is {name:?}, and should be {:?}: {theirs:?}", case.name, case.user));
        }
        if user(&theirs) != user(&ours) {
            wrong.push(format!("{}: kubectl: {theirs:?}\n  informerd: {ours:?}", case.name));
        }
        if let Err(message) = &ours
            && (message.lines().count() != 1 || message.contains("BEGIN"))
        {
            wrong.push(format!("{}: not one clear line: {message}", case.name));
        }
        if case.user.is_some() {
            wrong.extend(self.same_view(&paths).await.map(|different| format!("{}: {different}", case.name)));
        }
        wrong
    }

    /// What `kubectl config view` sees differently.
    async fn same_view(&self, files: &[PathBuf]) -> Option<String> {
        let view = self.kubectl(files, &["config", "view", "--minify", "--raw"]).await.expect("a view");
        let source = ConfigSource::Kubeconfig { paths: files.to_vec(), context: None, cluster: None, user: None };
        let config = source.read().await.expect("a configuration");
        let user = serde_json::to_value(&config.auth_info).expect("JSON");
        let (cluster, context) = (&view["clusters"][0]["cluster"], &view["contexts"][0]["context"]);
        let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
        let mut pairs = vec![
            (
                "server",
                text(cluster, "server").trim_end_matches('/').to_owned(),
                config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            ),
            ("tls-server-name", text(cluster, "tls-server-name"), config.tls_server_name.unwrap_or_default()),
            ("namespace", text(context, "namespace"), config.default_namespace.replace("default", "")),
            (
                "insecure-skip-tls-verify",
                cluster["insecure-skip-tls-verify"].as_bool().unwrap_or_default().to_string(),
                config.accept_invalid_certs.to_string(),
            ),
        ];
        let theirs = &view["users"][0]["user"];
        for name in ["token", "username", "client-certificate", "client-certificate-data", "client-key", "as", "as-uid"]
        {
            pairs.push((name, text(theirs, name), text(&user, name)));
        }
        // A view shows a path as it is written.
        let file = Some(text(theirs, "tokenFile")).filter(|file| !file.is_empty());
        let file = file.map(|file| self.directory.path().join(file).display().to_string()).unwrap_or_default();
        pairs.push(("tokenFile", file, text(&user, "tokenFile")));
        let different = pairs.into_iter().find(|(_, theirs, ours)| theirs != ours);
        different.map(|(name, theirs, ours)| format!("{name}: kubectl sees {theirs:?}, and informerd {ours:?}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_means_the_same_user_as_for_kubectl() {
    let world = World::start().await;
    let cases = cases::all(&world);
    assert!(cases.len() >= 40, "{}", cases.len());
    let judged = stream::iter(cases.into_iter().enumerate()).map(|(number, case)| world.judge(number, case));
    let wrong: Vec<_> = judged.buffer_unordered(3).collect::<Vec<_>>().await.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The names resolve nowhere: only through the proxy is there a server, or a provider.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxies_of_the_environment_are_used() {
    let world = World::start().await;
    let (port, ca) = (world.server.rsplit(':').next().expect("a port"), world.ca_field());
    let nowhere = format!("{{server: 'https://judge.invalid:{port}', tls-server-name: localhost, {ca}}}");
    let here = format!("{{server: '{}', {ca}}}", world.server);
    let token = "{token: admin-token}";
    let renewed = &*provider::user("http://provider.invalid/good", ", refresh-token: 'r/0'");
    let (http, of_provider) = (&*world.http, &*world.provider.http);
    let socks = format!("socks5://{}", world.socks);
    for (cluster, user, variables, works) in [
        (&nowhere, token, &[][..], false),
        (&nowhere, token, &[("HTTPS_PROXY", http)], true),
        (&nowhere, token, &[("HTTPS_PROXY", &*socks), ("https_proxy", "http://127.0.0.1:1")], true),
        (&nowhere, token, &[("HTTPS_PROXY", http), ("NO_PROXY", "a, .invalid")], false),
        (&nowhere, token, &[("HTTPS_PROXY", http), ("NO_PROXY", "judge.invalid:1")], true),
        (&nowhere, token, &[("HTTP_PROXY", http)], false),
        (&here, renewed, &[], false),
        (&here, renewed, &[("HTTP_PROXY", of_provider)], true),
        (&here, renewed, &[("HTTP_PROXY", of_provider), ("NO_PROXY", "provider.invalid")], false),
        (&here, renewed, &[("HTTPS_PROXY", of_provider)], false),
    ] {
        let mut kubectl = tied::command(judge().await);
        kubectl.args(["kubectl", "auth", "whoami"]);
        for mut command in [kubectl, informerd("check")] {
            let path = file(world.directory.path(), "config", cases::file(cluster, user));
            for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"] {
                command.env_remove(name);
            }
            command.env("HOME", world.directory.path()).env("KUBECONFIG", path).env("KUBERC", "off");
            command.envs(variables.iter().copied());
            let output = run(command, "").await;
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), works, "{variables:?}: {said}");
        }
    }
}
