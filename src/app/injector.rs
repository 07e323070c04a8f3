//! `informerd injector`: a webhook that the apiserver asks about new pods. It keeps no state. Its replicas share the CA
//! of their certificates, which they publish in the configuration of the webhook.

mod room;
mod webhook;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use informerd_injection::InjectionMetrics;
use informerd_status::{Apiserver, Lists};

use self::webhook::Webhook;
use super::authority;
use super::certificates::Validity;
use super::inject;
use super::process::Context;
use crate::admin::{Admin, Explaining, Introspect, Totals};
use crate::apiserver::client::{ConfigSource, Upstream, UpstreamConfig};
use crate::auth::ClientCa;
use crate::authority::{ObjectName, deployment_image};
use crate::config::{Config, InjectSettings};
use crate::http::{ConnectionLimits, HttpConfig, HttpMetrics, ListenAddr, Server};
use crate::lifecycle;
use crate::lifecycle::backoff::Backoff;

/// The apiservers of the cluster have few. Others can have the rest.
const CONNECTIONS: usize = 64;
/// What one connection may make this process hold: with all connections, and with what reviews may take (`room.rs`), less
/// than the 128 MiB of the manifest. A pod fits into one window. No stream can take the window of another one.
const LIMITS: ConnectionLimits =
    ConnectionLimits { streams: 8, stream_window: 32 << 10, connection_window: 8 * (32 << 10), head: 16 << 10 };
/// The apiserver waits for an answer, and takes it at once.
const STALL: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// What the admin side shows: there are no caches.
struct NoCaches(Upstream);

/// Whether the configuration is one of an injector.
///
/// # Errors
/// What is missing.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let has_certificate = config.authority.is_some() || config.http.tls.files.is_some();
    if !has_certificate {
        return Err(
            "the injector needs a certificate that the apiserver trusts: set tls.caSecret, or tls.certFile".to_owned()
        );
    }
    if config.http.tls.names.is_empty() {
        return Err("the injector needs tls.names: the name of its Service, such as informerd.informerd-injector.svc"
            .to_owned());
    }
    Ok(())
}

/// Binds the listener and starts to serve, until the drain is complete. The apiserver need not be reachable yet.
///
/// # Errors
/// Credentials cannot be read, certificates cannot be loaded, or addresses cannot be bound.
pub(super) async fn start(config: &Config, source: ConfigSource, context: &Context) -> anyhow::Result<Admin> {
    let Context { drain, fatal, readiness, metrics, .. } = context;
    let http_metrics = Arc::<HttpMetrics>::default();
    let InjectSettings { listen, webhook, deployment, config: mut injection } = config.inject.clone();
    let http = listening(config.http.clone(), listen, config.auth.client_ca.is_some());
    let server = Server::bind(http, Arc::clone(&http_metrics))?;
    let upstream = Upstream::new(source.clone(), UpstreamConfig::default()).await?;
    let mut with_webhook = config.clone();
    if let Some(authority) = &mut with_webhook.authority {
        authority.webhook = Some(webhook);
    }
    authority::start(&with_webhook, &upstream, source, server.certificates(), context);

    // Its own namespaces.
    let secret = config.authority.as_ref().map(|authority| &authority.secret);
    injection.excluded.extend(deployment.iter().chain(secret).map(|name| name.namespace.clone()));
    let injector = inject::injector(injection).map_err(anyhow::Error::msg)?;
    let counted = Arc::<InjectionMetrics>::default();
    let clients = config.auth.client_ca.as_ref().map(|ca| ClientCa::start(ca, &upstream, fatal)).transpose()?;
    if clients.is_none() {
        tracing::info!("everybody who reaches the webhook may send reviews: authentication.clientCa is not set");
    }
    let handler = Arc::new(Webhook::new(injector, upstream.clone(), Arc::clone(&counted), clients));
    if let Some(deployment) = deployment {
        let latch = readiness.latch("image");
        let (handler, upstream) = (Arc::clone(&handler), upstream.clone());
        lifecycle::spawn("image", async move {
            handler.set_image(image_of(&deployment, &upstream).await);
            latch.release();
        });
    }
    metrics.register_with(|registry| {
        counted.register(registry);
        http_metrics.register(registry);
        upstream.register(registry);
    });
    metrics.register(Validity { serving: server.certificates(), upstream: upstream.clone() });
    let caches = Arc::new(NoCaches(upstream));
    let admin = Admin::start(&config.admin, readiness.clone(), metrics.clone(), caches, fatal)?;
    for address in server.addresses() {
        tracing::info!(%address, "answering the apiserver");
    }
    server.serve(handler, drain, fatal)?;
    Ok(admin)
}

/// A client that opens many connections must not keep others out.
fn listening(http: HttpConfig, at: SocketAddr, asks_for_certificates: bool) -> HttpConfig {
    HttpConfig {
        // Both are TLS. Only on the second one, clients are asked for their certificates.
        listen: vec![if asks_for_certificates { ListenAddr::Delegated(at) } else { ListenAddr::Https(at) }],
        max_connections: CONNECTIONS.min(http.max_connections),
        evicts: true,
        write_stall_timeout: STALL.min(http.write_stall_timeout),
        limits: Some(LIMITS),
        ..http
    }
}

/// Sidecars run what the injector runs. A pod does not know its image, so the Deployment is asked.
async fn image_of(deployment: &ObjectName, upstream: &Upstream) -> String {
    let mut retry = Backoff::between(RETRY, RETRY_MOST);
    loop {
        match deployment_image(upstream, deployment).await {
            Ok(image) => {
                tracing::info!(image, "sidecars get this image");
                return image;
            }
            Err(error) => tracing::warn!(%deployment, %error, "the image of sidecars is not known yet, trying again"),
        }
        tokio::time::sleep(retry.next(None)).await;
    }
}

// === impl NoCaches ===

impl Introspect for NoCaches {
    fn lists(&self) -> Lists {
        Lists::default()
    }

    fn totals(&self) -> Totals {
        let Self(upstream) = self;
        Totals { server: upstream.authority().to_string(), own: upstream.metrics().own(), ..Totals::default() }
    }

    fn apiserver(&self) -> Apiserver {
        super::introspect::apiserver(&self.0)
    }

    fn explain(&self, _: Parts) -> Explaining {
        Box::pin(async { None })
    }
}
