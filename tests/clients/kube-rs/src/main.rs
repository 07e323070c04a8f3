//! Informers on kube-rs, all of its modes at once. Prints what they see in the lines of `judge informer`, except that
//! kube says of an object only that it was applied, not whether it is new.

use std::collections::BTreeMap;
use std::io::Write;

use futures_util::{Stream, StreamExt};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicResourceScope, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use tokio::io::AsyncBufReadExt;
use tokio::sync::watch;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        options.insert(name, value);
    }
    let option = |name: &str| options.get(name).cloned().unwrap_or_default();

    let kubeconfig = Kubeconfig::read_from(option("--kubeconfig"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let resource = option("--resource");
    let mut parts = resource.rsplit('/');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (plural, version, group) = (part(), part(), part());
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind { group, version, kind: plural.clone() }, &plural);
    let namespace = option("--namespace");
    let api: Api<DynamicObject> = api(&client, &namespace, &resource);
    let metadata: Api<PartialObjectMeta<DynamicObject>> = self::api(&client, &namespace, &resource);

    let mut base = watcher::Config::default();
    if let Some(labels) = options.get("--label-selector") {
        base = base.labels(labels);
    }
    // Pages, and a watch that ends and is resumed while the test looks on.
    let paged = base.clone().page_size(3).timeout(7);
    // A page size turns a list of "any" resourceVersion into a consistent one.
    let any = watcher::Config { page_size: None, ..base.clone().any_semantic() };
    let streaming = base.clone().streaming_lists();
    let (stop, stopped) = watch::channel(());
    let runs = [
        tokio::spawn(run(0, watcher::watcher(api.clone(), paged), stopped.clone())),
        tokio::spawn(run(1, watcher::watcher(api.clone(), any), stopped.clone())),
        tokio::spawn(run(2, watcher::watcher(api.clone(), streaming), stopped.clone())),
        tokio::spawn(run(3, watcher::watcher(metadata, base), stopped)),
    ];

    let mut line = String::new();
    if tokio::io::BufReader::new(tokio::io::stdin()).read_line(&mut line).await? == 0 {
        return Err("stdin was closed".into());
    }
    drop(stop);
    for run in runs {
        run.await??;
    }
    Ok(())
}

fn api<K>(client: &Client, namespace: &str, resource: &ApiResource) -> Api<K>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        "" => Api::all_with(client.clone(), resource),
        namespace => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

/// Prints the events of one watcher until `stopped`, and then its state.
async fn run<K>(
    index: usize,
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
    mut stopped: watch::Receiver<()>,
) -> Result<(), Error>
where
    K: ResourceExt + Send,
{
    let mut events = std::pin::pin!(events);
    let mut items: BTreeMap<String, String> = BTreeMap::new();
    let mut listed = BTreeMap::new();
    let mut synced = false;
    loop {
        let event = tokio::select! {
            _ = stopped.changed() => break,
            event = events.next() => event,
        };
        match event {
            None => return Err("the stream of events has ended".into()),
            Some(Err(error)) => say(&json!({"t": "ERROR", "message": error.to_string(), "i": index}))?,
            Some(Ok(Event::Init)) => listed.clear(),
            Some(Ok(Event::InitApply(object))) => {
                listed.insert(key(&object), version(&object));
                let t = if synced { "RELISTED" } else { "ADDED" };
                print(t, &object, true, index)?;
            }
            Some(Ok(Event::InitDone)) => {
                items = std::mem::take(&mut listed);
                synced = true;
                say(&json!({"t": "SYNCED", "i": index}))?;
            }
            Some(Ok(Event::Apply(object))) => {
                items.insert(key(&object), version(&object));
                print("APPLIED", &object, false, index)?;
            }
            Some(Ok(Event::Delete(object))) => {
                items.remove(&key(&object));
                print("DELETED", &object, false, index)?;
            }
        }
    }
    say(&json!({"t": "STATE", "items": items, "i": index}))
}

fn key(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

fn version(object: &impl ResourceExt) -> String {
    object.resource_version().unwrap_or_default()
}

fn print(t: &str, object: &impl ResourceExt, initial: bool, index: usize) -> Result<(), Error> {
    say(&json!({
        "t": t, "key": key(object), "uid": object.uid(), "rv": version(object), "initial": initial, "i": index,
    }))
}

fn say(line: &serde_json::Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
