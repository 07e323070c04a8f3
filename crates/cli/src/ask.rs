//! What is asked of a daemon, and how each question begins.

use std::future::Future;
use std::time::Duration;

use informerd_api::v1;
use tokio::time::timeout;

use super::connection::Connection;
use super::failure::Failure;
use super::print::Output;
use super::readers::Readers;
use super::resolve::{self, Named};
use super::server::{Server, Target};

/// The query for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub server: Server,
    /// As in kubectl: `pods`, `po`, `deployments.apps`, `deployments.v1.apps`.
    pub resource: String,
    pub name: Option<String>,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub labels: String,
    pub fields: String,
    pub output: Output,
    /// The longest wait for the first message of the daemon, and for each message after it.
    pub timeout: Duration,
}

/// Waits for the daemon, with the timeout of the command line.
pub(super) async fn in_time<T>(
    ask: &Ask,
    target: &Target,
    wait: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(ask.timeout, wait).await.unwrap_or_else(|_elapsed| {
        let Target { address, .. } = target;
        Err(Failure::Late(format!(
            "informerd at {address} has not answered within {:?}; --timeout sets another time",
            ask.timeout
        )))
    })
}

pub(super) async fn begin(ask: &Ask, target: &Target, readers: Readers) -> Result<(Connection, Named), Failure> {
    let connection = Connection::open(target).await.map_err(|error| {
        Failure::Said(format!(
            "there is no informerd at {} ({error}); is it running? --address names another",
            target.address
        ))
    })?;
    let named = resolve::resolve(&connection, readers, &ask.resource, ask.timeout / 2).await?;
    if ask.namespace.is_some() && !named.namespaced {
        return Err(Failure::Said(format!("{} have no namespaces", named.short())));
    }
    Ok((connection, named))
}

pub(super) fn selection(ask: &Ask, named: &Named) -> v1::Selection {
    let filter = v1::Filter {
        namespace: ask.namespace.clone().unwrap_or_default(),
        names: ask.name.iter().cloned().collect(),
        label_selector: ask.labels.clone(),
        field_selector: ask.fields.clone(),
        ..Default::default()
    };
    v1::Selection {
        resource: Some(named.resource.clone()),
        filters: vec![filter],
        // Only the printed fields have to be sent.
        shape: if ask.output == Output::Json { v1::Shape::Full } else { v1::Shape::MetadataOnly }.into(),
        ..Default::default()
    }
}
