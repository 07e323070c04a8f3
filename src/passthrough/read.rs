//! Forwarded requests without a body: shared with equal ones, and sent once more where that is asked for.

use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};

use super::ForwardBody;
use super::error::ForwardError;
use super::forward::{Asking, Forward};
use super::observe::AsksForMore;
use super::shared::{Buffered, ReadKey, SharedRead, collect};
use crate::apiserver::client::empty;

/// In the extensions of a read without a body: where to send it next if the answer has one of these codes.
#[derive(Clone, Debug)]
pub(crate) struct Otherwise {
    pub(crate) target: PathAndQuery,
    pub(crate) codes: &'static [u16],
}

// === impl Forward ===

impl Forward {
    /// Forwards a request without a body, and once more if its [`Otherwise`] says so.
    pub(super) async fn read(
        &self,
        mut head: Parts,
        asking: Asking<'_>,
    ) -> Result<Response<ForwardBody>, ForwardError> {
        let next = head.extensions.remove::<Otherwise>().and_then(|otherwise| {
            let mut next = head.clone();
            next.uri = Uri::builder().path_and_query(otherwise.target).build().ok()?;
            Some((next, otherwise.codes))
        });
        if next.is_some() {
            head.extensions.insert(AsksForMore);
        }
        let response = self.read_once(head, asking).await?;
        let status = response.status();
        match next {
            Some((next, codes)) if codes.contains(&status.as_u16()) => {
                // The next request needs its place, and its memory.
                drop(response);
                if status == StatusCode::GATEWAY_TIMEOUT {
                    self.inner.observer.unreached(asking.info);
                }
                self.read_once(next, asking).await
            }
            _ => Ok(response),
        }
    }

    async fn read_once(&self, head: Parts, asking: Asking<'_>) -> Result<Response<ForwardBody>, ForwardError> {
        self.inner.reaches()?;
        match ReadKey::of(&head, asking.info, asking.identity) {
            Some(key) => self.shared(key, head, asking).await,
            None => self.inner.fetch(head, empty(), asking).await,
        }
    }

    async fn shared(
        &self,
        mut key: ReadKey,
        head: Parts,
        asking: Asking<'_>,
    ) -> Result<Response<ForwardBody>, ForwardError> {
        let mut read = self.joined(&key, &head, asking).await?;
        if matches!(read, SharedRead::Apart) {
            key.client = Some(asking.sender.client.clone());
            read = self.joined(&key, &head, asking).await?;
        }
        // The first client takes the response. The others read for themselves, so their reads start after they arrived.
        let first = match read {
            SharedRead::Whole(whole) => Some(whole.response()),
            SharedRead::Alone(response) => response.lock().take(),
            SharedRead::Apart => None,
        };
        match first {
            Some(response) => Ok(response),
            None => self.inner.fetch(head, empty(), asking).await,
        }
    }

    /// Reads together with equal reads.
    async fn joined(&self, key: &ReadKey, head: &Parts, asking: Asking<'_>) -> Result<SharedRead, ForwardError> {
        let inner = Arc::clone(&self.inner);
        // The reads of one client wait for its place together, and others do not wait for that.
        let gives_way = key.client.is_none();
        let (first, identity) = (head.clone(), asking.identity);
        let (info, sender) = (asking.info.clone(), asking.sender.clone());
        let read = self.inner.reads.read(key.clone(), move |turn| async move {
            let admitted = match inner.admission.admit(&sender.client, &info, Some(0), gives_way).await {
                Ok(admitted) => admitted,
                Err(refused) if gives_way && refused.is_its_own() => return Ok(SharedRead::Apart),
                Err(refused) => return Err(inner.refused(refused)),
            };
            let asking = Asking { identity, info: &info, sender: &sender };
            let response = inner.send(admitted, first, empty(), asking).await?;
            if turn.members() == 1 {
                // The turn ends here, so that a slow client does not delay the others.
                return Ok(SharedRead::alone(response));
            }
            inner.metrics.shared_reads.inc();
            let followers = u64::try_from(turn.members() - 1).unwrap_or_default();
            inner.metrics.shared_followers.inc_by(followers);
            match collect(response, inner.config.share_limit, &inner.config.ledger).await {
                Ok(Buffered::Whole(whole)) => Ok(SharedRead::Whole(Arc::new(whole))),
                Ok(Buffered::TooLarge(response)) => {
                    inner.metrics.shared_too_large.inc();
                    Ok(SharedRead::alone(response))
                }
                Err(error) => Err(inner.broken(&error)),
            }
        });
        read.await
    }
}
