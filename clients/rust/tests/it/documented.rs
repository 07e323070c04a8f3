//! What docs/clients.md shows. A test compares.
#![allow(dead_code, unused_variables, reason = "it is compiled, and not run")]

use std::convert::Infallible;

use informerd_client::{Client, Error, Item, Outcome, Queue, Selected};
use serde::Deserialize;

#[derive(Deserialize)]
struct Pod {}

#[derive(Deserialize)]
struct ConfigMap {}

async fn reconcile(item: Item<ConfigMap>) -> Result<Outcome, Infallible> {
    Ok(Outcome::Done)
}

async fn cache(client: Client) -> Result<(), Error> {
    let selected = Selected { namespace: "default".to_owned(), ..Selected::default() };
    let (pods, feed) = client.cache::<Pod>("v1/pods", selected);
    tokio::spawn(feed.run(|event, _old| println!("{event}")));
    pods.synced().await?; // An error if the feed has ended with one.
    let pod = pods.get("default", "web-1");
    Ok(())
}

async fn queue(client: Client) -> Result<(), Error> {
    let queue = Queue::new(&client, "key-counter", "v1/configmaps", Selected::default()).workers(4);
    queue.run(reconcile).await?; // async fn reconcile(item: Item<ConfigMap>) -> Result<Outcome, E>
    Ok(())
}
