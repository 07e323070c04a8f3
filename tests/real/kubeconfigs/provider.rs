//! An OIDC provider for kubeconfigs. The tokens it gives are those of a service account, which the kube-apiserver takes
//! from everybody. The first part of a path decides how it behaves.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::TlsAcceptor;

use crate::cluster::Cluster;
use crate::support::serve::{acceptor, answering};

/// Who one is with its tokens.
pub(super) const USER: &str = "system:serviceaccount:oidc:user";

pub(super) struct Provider {
    /// `host:port`, and the same over TLS.
    pub(super) http: String,
    pub(super) https: String,
    /// Of the latter, in PEM.
    pub(super) ca: String,
    /// What it gives.
    pub(super) token: String,
}

impl Provider {
    pub(super) async fn start(cluster: &Cluster) -> Self {
        cluster
            .apply(
                "apiVersion: v1\nkind: Namespace\nmetadata: {name: oidc}\n---\n\
                 apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: user, namespace: oidc}\n---\n\
                 apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: oidc}\n\
                 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
                 subjects: [{kind: ServiceAccount, name: user, namespace: oidc}]\n",
            )
            .await;
        let token = cluster.token("oidc", "user").await;
        let (ca, tls) = certificates();
        let http = serve(&token, None).await;
        let https = serve(&token, Some(tls)).await;
        Self { http, https, ca, token }
    }

    /// A user with this provider, in YAML's flow style.
    pub(super) fn user(&self, path: &str, more: &str) -> String {
        user(&format!("http://{}/{path}", self.http), more)
    }

    pub(super) fn user_over_tls(&self, more: &str) -> String {
        user(&format!("https://{}/good", self.https), more)
    }

    pub(super) fn ca_data(&self) -> String {
        STANDARD.encode(&self.ca)
    }
}

pub(super) fn user(issuer: &str, more: &str) -> String {
    format!(
        "{{auth-provider: {{name: oidc, config: \
         {{idp-issuer-url: '{issuer}', client-id: 'us/1', client-secret: 'a &b'{more}}}}}}}"
    )
}

/// A token that nobody has signed, with these claims.
pub(super) fn unsigned(claims: &str) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

fn certificates() -> (String, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "CA of the provider");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, "provider");
    let certificate = params.signed_by(&key, &ca).expect("a certificate").der().clone();
    (ca.pem(), acceptor(certificate, PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
}

/// Returns its `host:port`.
async fn serve(token: &str, tls: Option<TlsAcceptor>) -> String {
    let (scheme, token) = (if tls.is_some() { "https" } else { "http" }, Arc::<str>::from(token));
    let answers = move |request| {
        let token = Arc::clone(&token);
        async move { answer(request, scheme, &token).await }
    };
    answering(tls, answers).await.to_string()
}

async fn answer(request: Request<Incoming>, scheme: &str, token: &str) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let form = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let form = String::from_utf8_lossy(&form);
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (kind, rest) = head.uri.path().trim_start_matches('/').split_once('/').unwrap_or_default();
    let json = |code: u16, text: String| {
        Response::builder().status(code).header(CONTENT_TYPE, "application/json").body(text.into()).expect("an answer")
    };
    let of_kind = format!("{scheme}://{}/{kind}", text(HOST));
    if rest == ".well-known/openid-configuration" {
        return match kind {
            "gone" => json(404, "{}".to_owned()),
            "empty" => json(200, "{}".to_owned()),
            "moved" => {
                let to = of_kind.replace("/moved", "/good/.well-known/openid-configuration");
                Response::builder().status(302).header(LOCATION, to).body("".into()).expect("an answer")
            }
            _ => json(200, format!(r#"{{"token_endpoint":"{of_kind}/token"}}"#)),
        };
    }
    let in_header = text(AUTHORIZATION) == format!("Basic {}", STANDARD.encode("us%2F1:a+%26b"));
    let in_body = form.contains("client_id=us%2F1") && form.contains("client_secret=a+%26b");
    let is_client = if kind == "body" { in_body && text(AUTHORIZATION).is_empty() } else { in_header && !in_body };
    let is_grant = form.contains("grant_type=refresh_token") && form.contains("refresh_token=r%2F0");
    match kind {
        _ if rest != "token" || !is_client || !is_grant => json(401, r#"{"error":"invalid_client"}"#.to_owned()),
        "without" => json(200, r#"{"access_token":"a"}"#.to_owned()),
        "refused" => json(400, r#"{"error":"invalid_grant"}"#.to_owned()),
        "refused-with-200" => json(200, format!(r#"{{"access_token":"a","id_token":"{token}","error":"no"}}"#)),
        "no-access-token" => json(200, format!(r#"{{"id_token":"{token}"}}"#)),
        "garbage" => json(200, "<html>".to_owned()),
        "form" => Response::builder()
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")
            .body(format!("access_token=a&id_token={token}").into())
            .expect("an answer"),
        "again" => Response::builder().status(307).header(LOCATION, "/good/token").body("".into()).expect("an answer"),
        _ => json(200, format!(r#"{{"access_token":"a","token_type":"bearer","expires_in":1,"id_token":"{token}"}}"#)),
    }
}
