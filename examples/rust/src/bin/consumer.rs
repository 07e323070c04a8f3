//! Prints the objects of one selection, and then every change of them.

use clap::Parser;
use informerd_client::{Client, Error, Selected};
use serde::de::IgnoredAny;
use tokio_stream::StreamExt;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "")]
    namespace: String,
    /// Label selector.
    #[arg(long, default_value = "")]
    selector: String,
    /// Such as v1/pods or deployments.apps.
    resource: String,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Arguments { namespace, selector, resource } = Arguments::parse();
    let selected = Selected { namespace, labels: selector, ..Default::default() };
    let mut events = Client::find().await?.watch::<IgnoredAny>(&resource, selected);
    while let Some(event) = events.try_next().await? {
        println!("{event} {}", event.key().map_or("", |key| &key.resource_version));
    }
    Ok(())
}
