//! `informerd watch`: resumes where it was when the connection or the daemon comes back.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use informerd_api::v1;
use informerd_api::v1::watch_response::Frame;
use informerd_lifecycle::backoff::Backoff;
use informerd_status::terminal::escaped;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::ask::{Ask, begin, in_time, selection};
use super::connection::Connection;
use super::failure::Failure;
use super::print::{Change, Printer};
use super::readers::Readers;
use super::resolve::Named;
use super::seen::Seen;

const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

struct Watch<'a> {
    printer: Printer<'a>,
    seen: Seen,
    token: Bytes,
    /// Reset once a frame arrives.
    backoff: Backoff,
    /// Whether the loss of the connection was said and no frame has arrived since.
    is_lost: bool,
}

/// How a stream ended, if the watch has to go on.
enum Again {
    /// It ended in order, with a time to wait.
    After(Duration),
    Lost(String),
}

pub(super) async fn run(
    ask: &Ask,
    readers: Readers,
    out: &mut (dyn Write + Send),
    err: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let target = ask.server.target(readers).await.map_err(Failure::Said)?;
    let (mut connection, named) = in_time(ask, &target, begin(ask, &target, readers)).await?;
    let printer = Printer::new(ask.output, &named, out);
    let backoff = Backoff::between(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut watch = Watch { printer, seen: Seen::default(), token: Bytes::new(), backoff, is_lost: false };
    loop {
        match watch.follow(&connection, ask, &named).await? {
            Again::After(pause) => tokio::time::sleep(pause).await,
            Again::Lost(why) => {
                if !std::mem::replace(&mut watch.is_lost, true) {
                    // Standard error may be closed too. Only the lines on standard output matter.
                    writeln!(err, "informerd: connection lost ({}), trying again", escaped(&why)).ok();
                }
                tokio::time::sleep(watch.backoff.next(None)).await;
            }
        }
        match Connection::open(&target).await {
            Ok(opened) => connection = opened,
            // The next call on the old connection reports the error again.
            Err(error) => tracing::debug!(%error, "not connected"),
        }
    }
}

// === impl Watch ===

impl Watch<'_> {
    /// Runs one call.
    async fn follow(&mut self, connection: &Connection, ask: &Ask, named: &Named) -> Result<Again, Failure> {
        let start = (!self.token.is_empty()).then(|| v1::watch_request::Start::ResumeToken(self.token.clone()));
        let request = v1::WatchRequest { selection: Some(selection(ask, named)), start, ..Default::default() };
        let mut client = connection.objects();
        let mut frames = match timeout(ask.timeout, client.watch(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return self.failed(&status),
            Err(_elapsed) => return Ok(Again::Lost(format!("no answer within {:?}", ask.timeout))),
        };
        loop {
            match frames.message().await {
                Ok(None) => return Ok(Again::Lost("it ended".to_owned())),
                Ok(Some(frame)) => {
                    self.backoff.reset();
                    self.is_lost = false;
                    if let Some(again) = self.frame(frame)? {
                        return Ok(again);
                    }
                }
                Err(status) => return self.failed(&status),
            }
        }
    }

    fn frame(&mut self, response: v1::WatchResponse) -> Result<Option<Again>, Failure> {
        match response.frame {
            Some(Frame::Started(started)) if !started.resumed => self.seen.begin(),
            Some(Frame::Reset(_)) => self.seen.begin(),
            Some(Frame::Events(events)) => events.events.iter().try_for_each(|event| self.event(event))?,
            Some(Frame::SnapshotEnd(_)) => {
                for key in self.seen.end() {
                    self.printer.change(Change::Deleted, &key, b"")?;
                }
            }
            Some(Frame::Goodbye(goodbye)) => {
                let pause = goodbye.retry_after.and_then(|wait| Duration::try_from(wait).ok()).unwrap_or_default();
                self.token = response.resume_token;
                return Ok(Some(Again::After(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE))));
            }
            Some(Frame::Started(_) | Frame::Bookmark(_)) | None => {}
        }
        self.printer.flush()?;
        // Only after its events are printed.
        self.token = response.resume_token;
        Ok(None)
    }

    fn event(&mut self, event: &v1::Event) -> Result<(), Failure> {
        let Some(key) = &event.key else { return Ok(()) };
        if event.r#type == v1::event::Type::Deleted as i32 {
            // An event that came twice because of a reconnect is printed once.
            return if self.seen.remove(key) {
                self.printer.change(Change::Deleted, key, &event.object)
            } else {
                Ok(())
            };
        }
        for (change, of) in self.seen.put(key) {
            let object = if change == Change::Deleted { &[][..] } else { &event.object };
            self.printer.change(change, &of, object)?;
        }
        Ok(())
    }

    /// Whether the call should be tried again.
    fn failed(&mut self, status: &Status) -> Result<Again, Failure> {
        let why = status.message().replace('\n', " ");
        match status.code() {
            Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::Internal
            | Code::DeadlineExceeded
            | Code::ResourceExhausted => Ok(Again::Lost(why)),
            // Another cluster is behind the address now.
            Code::InvalidArgument | Code::OutOfRange if !self.token.is_empty() => {
                self.token = Bytes::new();
                Ok(Again::Lost(why))
            }
            // The proxy before a daemon may answer for it while it restarts.
            Code::Unimplemented if !self.token.is_empty() => Ok(Again::Lost(why)),
            _ => Err(Failure::of(status)),
        }
    }
}
