//! A controller on informerd.v1.Queue: keeps the annotation example.com/keys of every selected ConfigMap at the number of
//! its keys. Any number of these processes share the work.

use std::time::Duration;

use clap::Parser;
use informerd_examples::{is_hopeless, v1};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use v1::queue_client::QueueClient;
use v1::work_request::Action;
use v1::work_response::Frame;

#[derive(Clone, Parser)]
struct Arguments {
    /// Where informerd listens.
    #[arg(long, default_value = "http://127.0.0.1:8001")]
    address: String,
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let channel = Endpoint::from_shared(arguments.address.clone())?
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .connect_lazy();
    let mut client = QueueClient::new(channel).max_decoding_message_size(16 << 20);
    loop {
        match work(&mut client, &arguments).await {
            Ok(()) => {}
            Err(status) if is_hopeless(&status) => anyhow::bail!("{}", status.message()),
            Err(status) => eprintln!("{}, joining again", status.message()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// One stream: while it lives, this process is a worker of its group. When it ends, what was in hand goes to the others.
async fn work(client: &mut QueueClient<Channel>, arguments: &Arguments) -> Result<(), Status> {
    let (answers, requests) = mpsc::channel(arguments.workers as usize + 1);
    let selection = v1::Selection {
        resource: Some(v1::Resource { group: String::new(), version: "v1".into(), resource: "configmaps".into() }),
        filters: vec![v1::Filter {
            namespace: arguments.namespace.clone(),
            label_selector: arguments.selector.clone(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let join =
        v1::JoinGroup { group: arguments.group.clone(), selections: vec![selection], capacity: arguments.workers };
    // There is room for it.
    answers.try_send(v1::WorkRequest { action: Some(Action::Join(join)) }).ok();
    let mut stream = client.work(ReceiverStream::new(requests)).await?.into_inner();
    while let Some(response) = stream.message().await? {
        match response.frame {
            Some(Frame::Items(items)) => {
                for item in items.items {
                    // Never more than the capacity.
                    tokio::spawn(handle(item, arguments.address.clone(), answers.clone()));
                }
            }
            Some(Frame::Goodbye(_)) => return Ok(()),
            Some(Frame::Joined(_) | Frame::Synced(_)) | None => {}
        }
    }
    Ok(())
}

async fn handle(item: v1::Item, address: String, answers: mpsc::Sender<v1::WorkRequest>) {
    let Some(key) = item.r#ref.clone() else { return };
    let action = match reconcile(&item, &key, &address).await {
        Ok(()) => Action::Done(key),
        Err(error) => {
            eprintln!("{}/{}, attempt {}: {error}", key.namespace, key.name, item.attempt);
            Action::Retry(key)
        }
    };
    // The stream may be over: then the key has gone to somebody else.
    answers.send(v1::WorkRequest { action: Some(action) }).await.ok();
}

/// Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second time.
async fn reconcile(item: &v1::Item, key: &v1::ItemRef, address: &str) -> anyhow::Result<()> {
    let v1::ItemRef { namespace, name, .. } = key;
    let Some(object) = &item.object else {
        println!("gone {namespace}/{name}");
        return Ok(());
    };
    let config_map: Value = serde_json::from_slice(&object.object)?;
    let keys = config_map["data"].as_object().map_or(0, |data| data.len()).to_string();
    if config_map["metadata"]["annotations"]["example.com/keys"] == keys.as_str() {
        return Ok(());
    }
    // Writes go to the kube-apiserver, here through informerd's REST side.
    let rv = object.key.as_ref().map_or("", |key| &key.resource_version);
    let patch = json!({"metadata": {"resourceVersion": rv, "annotations": {"example.com/keys": keys}}});
    let answer = reqwest::Client::new()
        .patch(format!("{address}/api/v1/namespaces/{namespace}/configmaps/{name}"))
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string())
        .send()
        .await?;
    match answer.status().as_u16() {
        200 => println!("counted {namespace}/{name} {keys}"),
        // It changed meanwhile, so it comes again.
        404 | 409 => {}
        _ => anyhow::bail!("{}: {}", answer.status(), answer.text().await?),
    }
    Ok(())
}
