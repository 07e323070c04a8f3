//! One request to another server than the apiserver, over HTTP/1.1 on a connection of its own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;

use super::connect::{Connector, Wanted};
use super::endpoint::Endpoint;
use super::request_body::ReqBody;
use super::settings::{AGENT, UpstreamConfig};
use crate::error::{Cause, UpstreamError};
use crate::kubeconfig::bare_client_config;

/// Sends a request, and reads the whole answer, of at most `most` bytes. Any HTTP status is an `Ok`. No credentials of
/// `server` are used, only its address, its CAs and its proxy. There is no limit of time: the caller has one.
///
/// # Errors
/// No connection, no whole answer, or one that is larger.
pub(crate) async fn exchange(
    server: kube::Config,
    mut request: Request<ReqBody>,
    most: usize,
) -> Result<Response<Bytes>, UpstreamError> {
    let endpoint = Endpoint::of(&server)?;
    let config = UpstreamConfig { connect_timeout: Duration::MAX, ..UpstreamConfig::default() };
    let tls = if endpoint.base.scheme() == Some(&Scheme::HTTPS) {
        // Reads the CAs of the system, or those of a file.
        let read = tokio::task::spawn_blocking(move || bare_client_config(&server)).await;
        let unusable = |error| UpstreamError::Config(Cause::new(error));
        Some(read.map_err(|error| UpstreamError::Config(Cause::new(error)))?.map_err(unusable)?)
    } else {
        None
    };
    let connector = Connector::new(&endpoint, tls, &config, &Arc::default())?;
    connector.address(&mut request);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let (io, _) = connector.connect(Wanted::Http1).await?;
    let broken = |error| UpstreamError::Request(Cause::new(error));
    let (mut sender, connection) = http1::handshake(io).await.map_err(broken)?;
    let mut answered = pin!(async move {
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(|error| UpstreamError::Body(Cause::new(error)))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    });
    tokio::select! {
        answer = &mut answered => answer,
        // The last of an answer may still have to be taken.
        _ = connection => answered.await,
    }
}
