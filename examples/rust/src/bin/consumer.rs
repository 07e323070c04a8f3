//! A consumer of informerd.v1.Objects: keeps the objects of one selection, and prints what changes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use clap::Parser;
use informerd_examples::{is_hopeless, v1};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use v1::objects_client::ObjectsClient;
use v1::watch_request::Start;
use v1::watch_response::Frame;

#[derive(Parser)]
struct Arguments {
    /// Where informerd listens; unix:///path for a socket.
    #[arg(long, default_value = "http://127.0.0.1:8001")]
    address: String,
    #[arg(long, default_value = "")]
    namespace: String,
    /// Label selector.
    #[arg(long, default_value = "")]
    selector: String,
    /// [GROUP/]VERSION/RESOURCE, such as v1/pods or apps/v1/deployments.
    resource: String,
}

type Key = (String, String);

struct Consumer {
    client: ObjectsClient<Channel>,
    selection: v1::Selection,
    /// What is there; `object` of each is the object as JSON.
    objects: HashMap<Key, v1::Event>,
    /// After the last frame.
    token: Vec<u8>,
    /// What the snapshot had so far; `None` when none is under way.
    snapshot: Option<HashSet<Key>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let path: Vec<&str> = arguments.resource.split('/').collect();
    let [group @ .., version, resource] = path.as_slice() else { anyhow::bail!("which resource? Such as v1/pods") };
    let channel = Endpoint::from_shared(arguments.address)?
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .connect_lazy();
    let selection = v1::Selection {
        resource: Some(v1::Resource {
            group: group.concat(),
            version: (*version).to_owned(),
            resource: (*resource).to_owned(),
        }),
        filters: vec![v1::Filter {
            namespace: arguments.namespace,
            label_selector: arguments.selector,
            ..Default::default()
        }],
        ..Default::default()
    };
    // An object may be larger than gRPC's 4 MiB.
    let client = ObjectsClient::new(channel).max_decoding_message_size(16 << 20);
    let mut consumer = Consumer { client, selection, objects: HashMap::new(), token: vec![], snapshot: None };
    loop {
        let wait = match consumer.watch().await {
            Ok(wait) => wait,
            Err(status) if is_hopeless(&status) => anyhow::bail!("{}", status.message()),
            Err(status) => {
                eprintln!("{}, trying again", status.message());
                Duration::from_secs(1)
            }
        };
        tokio::time::sleep(wait).await;
    }
}

impl Consumer {
    /// One watch, from the token on, until it ends. Everything that a correct consumer has to do is here.
    async fn watch(&mut self) -> Result<Duration, Status> {
        let start = (!self.token.is_empty()).then(|| Start::ResumeToken(self.token.clone()));
        let request = v1::WatchRequest { selection: Some(self.selection.clone()), start, ..Default::default() };
        let mut stream = self.client.watch(request).await?.into_inner();
        while let Some(response) = stream.message().await? {
            match response.frame {
                // A whole snapshot follows.
                Some(Frame::Started(started)) if !started.resumed => self.snapshot = Some(HashSet::new()),
                // Likewise: something was missed.
                Some(Frame::Reset(_)) => self.snapshot = Some(HashSet::new()),
                Some(Frame::Events(events)) => events.events.into_iter().for_each(|event| self.apply(event)),
                Some(Frame::SnapshotEnd(_)) => {
                    let seen = self.snapshot.take().unwrap_or_default();
                    // Not in the snapshot: gone.
                    for (key, event) in self.objects.extract_if(|key, _| !seen.contains(key)) {
                        say("DELETED", &key, &event);
                    }
                    println!("SYNCED {} {}", self.objects.len(), response.resource_version);
                }
                Some(Frame::Goodbye(goodbye)) => {
                    self.token = response.resume_token;
                    return Ok(goodbye.retry_after.and_then(|wait| wait.try_into().ok()).unwrap_or_default());
                }
                Some(Frame::Started(_) | Frame::Bookmark(_)) | None => {}
            }
            // After the frame was worked on, not before.
            self.token = response.resume_token;
        }
        Ok(Duration::from_secs(1))
    }

    fn apply(&mut self, event: v1::Event) {
        let Some(of) = &event.key else { return };
        let key = (of.namespace.clone(), of.name.clone());
        let known = self.objects.get(&key).and_then(|known| known.key.as_ref());
        // Over a reconnect the same may come twice.
        let deleted = event.r#type() == v1::event::Type::Deleted;
        let news = if deleted { known.is_some() } else { known.is_none_or(|k| k.resource_version != of.resource_version) };
        if news {
            say(event.r#type().as_str_name().trim_start_matches("TYPE_"), &key, &event);
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.insert(key.clone());
        }
        if deleted {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, event);
        }
    }
}

fn say(kind: &str, (namespace, name): &Key, event: &v1::Event) {
    let rv = event.key.as_ref().map_or("", |key| &key.resource_version);
    let slash = if namespace.is_empty() { "" } else { "/" };
    println!("{kind} {namespace}{slash}{name} {rv}");
}
