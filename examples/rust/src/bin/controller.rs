//! Keeps the annotation example.com/keys of every selected ConfigMap at the number of its keys. Any number of these
//! processes share the work.

use std::collections::BTreeMap;

use clap::Parser;
use informerd_client::{Client, Item, Outcome, Queue, Selected, Server};
use reqwest::Certificate;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    /// Workers of one group share one queue.
    #[arg(long, default_value = "key-counter")]
    group: String,
    /// Keys that are worked on at once.
    #[arg(long, default_value_t = 4)]
    workers: u32,
    #[arg(long, default_value = "")]
    namespace: String,
    /// Label selector.
    #[arg(long, default_value = "")]
    selector: String,
}

/// What is read of a ConfigMap. The types of k8s-openapi can be used as well.
#[derive(Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Arguments { group, workers, namespace, selector } = Arguments::parse();
    let client = Client::find().await?;
    let rest = Rest { server: client.server().clone(), client: trusting(client.server())? };
    let selected = Selected { namespace, labels: selector, ..Default::default() };
    let queue = Queue::new(&client, &group, "v1/configmaps", selected).workers(workers);
    queue.run(|item| reconcile(rest.clone(), item)).await?;
    Ok(())
}

/// informerd's REST side, through which writes go to the kube-apiserver.
#[derive(Clone)]
struct Rest {
    server: Server,
    client: reqwest::Client,
}

/// Trusts whom the watches trust.
fn trusting(server: &Server) -> anyhow::Result<reqwest::Client> {
    let builder = reqwest::Client::builder();
    Ok(match server.ca_file() {
        Some(file) => builder.tls_certs_only(Certificate::from_pem_bundle(&std::fs::read(file)?)?).build()?,
        None => builder.build()?,
    })
}

/// Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second time.
async fn reconcile(rest: Rest, item: Item<ConfigMap>) -> anyhow::Result<Outcome> {
    let key = item.key();
    let Some(ConfigMap { metadata, data }) = item.object else {
        println!("gone {key}");
        return Ok(Outcome::Done);
    };
    let keys = data.len().to_string();
    if metadata.annotations.get("example.com/keys") == Some(&keys) {
        return Ok(Outcome::Done);
    }
    let patch = json!({"resourceVersion": metadata.resource_version, "annotations": {"example.com/keys": keys}});
    let (address, namespace, name) = (rest.server.address(), item.namespace, item.name);
    let mut request = rest
        .client
        .patch(format!("{address}/api/v1/namespaces/{namespace}/configmaps/{name}"))
        .header("content-type", "application/merge-patch+json")
        .body(json!({"metadata": patch}).to_string());
    if let Some(token) = rest.server.authorization()? {
        request = request.header("authorization", token);
    }
    let answer = request.send().await?;
    match answer.status().as_u16() {
        200 => println!("counted {key} {keys}"),
        404 | 409 => {} // It changed meanwhile, so it comes again.
        status => anyhow::bail!("{status}: {}", answer.text().await?),
    }
    Ok(Outcome::Done)
}
