//! The objects of a selection, and every change of them.

use std::future::Future;
use std::time::Duration;

use futures_core::Stream;
use serde::de::DeserializeOwned;
use tonic::{Request, Status, Streaming};

use crate::follower::Follower;
use crate::retry::Retry;
use crate::selection::selection;
use crate::server::LARGEST_MESSAGE;
use crate::v1::objects_client::ObjectsClient;
use crate::{Client, Error, Event, Selected, v1};

/// Bookmarks come every minute: a stream that says nothing for so much longer is broken.
const SILENCE: Duration = Duration::from_secs(180);

impl Client {
    /// Tells the objects of a selection as [`Event::Added`], [`Event::Synced`], and then every change, each once.
    ///
    /// It goes on when the connection is lost, informerd is restarted, or the way back is no longer known; what was deleted
    /// in between is told then. It ends when it is dropped, or with one error. A consumer that is slow delays this watch
    /// alone.
    pub fn watch<T>(
        &self,
        resource: &str,
        selected: Selected,
    ) -> impl Stream<Item = Result<Event<T>, Error>> + Send + Unpin + use<T>
    where
        T: DeserializeOwned + Send,
    {
        let client = self.clone();
        let what = format!("watch of {resource}");
        let selection = selection(resource, selected);
        Box::pin(async_stream::try_stream! {
            let mut follower = Follower::new(what.clone(), selection?);
            let mut retry = Retry::new(client.clone(), what);
            loop {
                retry.begins();
                let ended = match heard(open(&client, &mut follower)).await {
                    Ok(mut stream) => loop {
                        match heard(stream.message()).await {
                            Ok(Some(response)) => {
                                retry.alive();
                                for event in follower.frame(response)? {
                                    yield event;
                                }
                            }
                            Ok(None) => break Ok(()),
                            Err(status) => break Err(status),
                        }
                    },
                    Err(status) => Err(status),
                };
                let wait = match ended {
                    Ok(()) => retry.after_goodbye(follower.wait),
                    Err(status) if follower.forgets(&status) => continue,
                    Err(status) => retry.after_error(&status)?,
                };
                tokio::time::sleep(wait).await;
            }
        })
    }
}

/// What is waited for, but not for ever. A slow consumer is no silence.
async fn heard<T>(next: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let silence = |_| Status::unknown(format!("nothing was heard for {} s", SILENCE.as_secs()));
    tokio::time::timeout(SILENCE, next).await.map_err(silence)?
}

async fn open(client: &Client, follower: &mut Follower) -> Result<Streaming<v1::WatchResponse>, Status> {
    let mut request = Request::new(follower.request());
    client.server().authorize(request.metadata_mut())?;
    let channel = client.server().channel().map_err(|error| Status::unknown(error.to_string()))?;
    let mut stub = ObjectsClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
    Ok(stub.watch(request).await?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_silent_for_too_long_is_broken() {
        let late = async {
            tokio::time::sleep(SILENCE / 2).await;
            Ok(())
        };
        assert!(heard(late).await.is_ok());
        let silence = heard(std::future::pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!(silence.message(), "nothing was heard for 180 s");
    }
}
