//! The places where the trusted certificates are published: ConfigMaps for clients, and the configuration of a webhook
//! for the apiserver.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::members::Members;
use super::objects::Place;
use super::{AuthorityConfig, AuthorityError, ObjectName};
use informerd_apiserver::client::Upstream;

/// The key in the ConfigMaps.
pub(super) const TRUSTED: &str = "ca.crt";

/// The members of a webhook that name the CA.
const CLIENT: &str = "clientConfig";
const BUNDLE: &str = "caBundle";

/// What was read from the places.
pub(super) struct Published {
    found: Vec<(Kind, Members)>,
    /// Whether a place does not exist, or informerd may not write it.
    missing: bool,
    failed: Option<AuthorityError>,
}

enum Kind {
    ConfigMap(ObjectName),
    /// A MutatingWebhookConfiguration.
    Webhook(String),
}

// === impl Published ===

impl Published {
    pub(super) async fn read(config: &AuthorityConfig, upstream: &Upstream) -> Self {
        let config_maps = config.config_maps.iter().cloned().map(Kind::ConfigMap);
        let kinds = config_maps.chain(config.webhook.clone().map(Kind::Webhook));
        let mut published = Self { found: Vec::new(), missing: false, failed: None };
        for kind in kinds {
            match kind.place().get(upstream).await {
                Ok(object) => published.found.push((kind, object)),
                // It does not exist or informerd may not access it. Then nobody reads what informerd would write there.
                Err(error @ AuthorityError::Refused { status: 403 | 404, .. }) => {
                    tracing::warn!(place = %kind, %error, "the CA bundle is not published there");
                    published.missing = true;
                }
                // One failing place must not keep the others from their certificates.
                Err(error) => published.failed = Some(error),
            }
        }
        published
    }

    /// Whether this CA certificate is in every place that could be read.
    pub(super) fn has(&self, certificate: &str) -> bool {
        self.failed.is_none() && self.found.iter().all(|(kind, object)| kind.says(object, certificate.trim()))
    }

    /// Writes where something has changed. `cluster` is the CA of the apiserver, which clients need as well.
    pub(super) async fn write(&mut self, upstream: &Upstream, cluster: &str, ours: &str) -> Result<(), AuthorityError> {
        for (kind, object) in &mut self.found {
            let content = |error: serde_json::Error| AuthorityError::Content {
                what: kind.to_string(),
                message: error.to_string(),
            };
            if kind.publish(object, cluster, ours).map_err(content)? {
                kind.place().put(upstream, object).await?;
                tracing::info!(place = %kind, "the CA bundle is published");
            }
        }
        Ok(())
    }

    /// Whether all places could be read.
    ///
    /// # Errors
    /// One of them failed.
    pub(super) fn end(self) -> Result<bool, AuthorityError> {
        self.failed.map_or(Ok(!self.missing), Err)
    }
}

// === impl Kind ===

impl Kind {
    fn place(&self) -> Place {
        match self {
            Self::ConfigMap(name) => Place::config_map(name),
            Self::Webhook(name) => Place::webhook(name),
        }
    }

    fn says(&self, object: &Members, certificate: &str) -> bool {
        match self {
            Self::ConfigMap(_) => object.get::<Members>("data").get::<String>(TRUSTED).contains(certificate),
            Self::Webhook(_) => object.get::<Vec<Members>>("webhooks").iter().all(|webhook| {
                let bundle = STANDARD.decode(webhook.get::<Members>(CLIENT).get::<String>(BUNDLE));
                bundle.is_ok_and(|bundle| String::from_utf8_lossy(&bundle).contains(certificate))
            }),
        }
    }

    /// Writes the certificates into the object. Returns whether that has changed it.
    fn publish(&self, object: &mut Members, cluster: &str, ours: &str) -> serde_json::Result<bool> {
        match self {
            Self::ConfigMap(_) => {
                let mut data: Members = object.get("data");
                let changed = replace(&mut data, TRUSTED, &format!("{cluster}{ours}"))?;
                object.set("data", &data)?;
                Ok(changed)
            }
            Self::Webhook(_) => {
                let (mut webhooks, mut changed): (Vec<Members>, _) = (object.get("webhooks"), false);
                for webhook in &mut webhooks {
                    let mut client: Members = webhook.get(CLIENT);
                    changed |= replace(&mut client, BUNDLE, &STANDARD.encode(ours))?;
                    webhook.set(CLIENT, &client)?;
                }
                object.set("webhooks", &webhooks)?;
                Ok(changed)
            }
        }
    }
}

fn replace(members: &mut Members, name: &str, text: &str) -> serde_json::Result<bool> {
    let changed = members.get::<String>(name) != text;
    members.set(name, &text).map(|()| changed)
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConfigMap(name) => write!(f, "ConfigMap {name}"),
            Self::Webhook(name) => write!(f, "MutatingWebhookConfiguration {name}"),
        }
    }
}
