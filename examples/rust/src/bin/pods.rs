use informerd_client::{Client, Error, Selected};
use serde_json::Value;
use tokio_stream::StreamExt;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::find().await?;
    let mut events = client.watch::<Value>("v1/pods", Selected::default());
    while let Some(event) = events.try_next().await? {
        println!("{event}"); // Event::Added(key, pod), ...
    }
    Ok(())
}
