//! What the injector has to know of the cluster.

use super::members::Members;
use super::objects::Place;
use super::published::TRUSTED;
use super::{AuthorityError, ObjectName};
use informerd_apiserver::client::Upstream;

/// The name of the container in the manifests.
const CONTAINER: &str = "informerd";

/// The image that a Deployment runs.
///
/// # Errors
/// It cannot be read, or has no container of ours.
pub async fn deployment_image(upstream: &Upstream, name: &ObjectName) -> Result<String, AuthorityError> {
    let deployment = Place::deployment(name).get(upstream).await?;
    let template = deployment.get::<Members>("spec").get::<Members>("template");
    let containers: Vec<Members> = template.get::<Members>("spec").get("containers");
    let ours = containers.iter().find(|container| container.get::<String>("name") == CONTAINER);
    let image = ours.map(|container| container.get::<String>("image")).filter(|image| !image.is_empty());
    image.ok_or_else(|| AuthorityError::Content {
        what: format!("Deployment {name}"),
        message: format!("has no container {CONTAINER}"),
    })
}

/// Whether clients in this namespace find what to trust.
///
/// # Errors
/// The apiserver does not tell.
pub async fn config_map_has_ca(upstream: &Upstream, name: &ObjectName) -> Result<bool, AuthorityError> {
    match Place::config_map(name).get(upstream).await {
        Ok(map) => Ok(!map.get::<Members>("data").get::<String>(TRUSTED).is_empty()),
        Err(AuthorityError::Refused { status: 404, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
