//! The admin side of a running daemon, as the commands ask it.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, Request, Uri};
use informerd_status::Admin;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::apiserver::client::empty;
use crate::apiserver::reader::ask_json;
use crate::apiserver::{CallOptions, Upstream, UpstreamError};

/// The daemon is on this machine, so it answers at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer: enough for thousands of informers.
const MOST_BYTES: usize = 16 << 20;

/// The daemon whose admin side listens on this address.
#[derive(Clone, Copy, Debug)]
pub struct AdminSide(pub SocketAddr);

// === impl AdminSide ===

impl AdminSide {
    /// Requests one JSON answer. Connecting, sending and receiving take no longer than [`TIMEOUT`] together.
    ///
    /// # Errors
    /// It does not answer, or the answer is not that of an informerd.
    pub(super) async fn get<T: DeserializeOwned>(self, path: &str, headers: HeaderMap) -> Result<T, String> {
        let Self(admin) = self;
        let url = format!("http://{admin}{path}");
        let parse = |text: &str| text.parse::<Uri>().map_err(|error| format!("{url}: {error}"));
        let (base, target) = (parse(&format!("http://{admin}"))?, parse(&url)?);
        let answer = async {
            let daemon = Upstream::from_config(kube::Config::new(base)).await?;
            let mut request = Request::new(empty());
            (*request.uri_mut(), *request.headers_mut()) = (target, headers);
            // The default: the request is sent as it is, with its own User-Agent.
            ask_json(&daemon, request, &CallOptions::default(), MOST_BYTES).await
        };
        match timeout(TIMEOUT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(UpstreamError::Status(status))) => {
                Err(format!("{url}: status {}: this is not informerd", status.code))
            }
            Ok(Err(error @ UpstreamError::Decode(_))) => Err(format!("{url}: {error}")),
            Ok(Err(error)) => Err(format!("{url}: {error}: is informerd running?")),
            Err(_elapsed) => Err(format!("{url}: no answer within {TIMEOUT:?}")),
        }
    }
}

impl Admin for AdminSide {
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        Self::get(*self, path, HeaderMap::new()).await
    }
}

#[cfg(test)]
mod tests {
    use informerd_status::ask;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::lifecycle::spawn;

    #[tokio::test]
    async fn waits_for_an_answer_that_never_ends_no_longer_than_it_should() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, trickle) = tokio::sync::oneshot::channel();
        spawn("trickle", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await.unwrap();
            taken.send(()).unwrap();
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let asking = spawn("asking", async move { ask(&AdminSide(address)).await });
        trickle.await.unwrap();
        tokio::time::pause();
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.ends_with("no answer within 5s"), "{error}");
    }

    #[tokio::test]
    async fn tells_when_nobody_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = ask(&AdminSide(address)).await.unwrap_err();
        assert!(
            error.starts_with(&format!("http://{address}/status.json: ")) && error.ends_with("is informerd running?")
        );
    }
}
