//! Forwarded bodies that stop reading ahead while their client is slow, and answers that are given up because their
//! client takes nothing.
//!
//! The HTTP library does not ask a body for more while the client accepts none, so no body notices that. What was handed
//! out of it tells: a part is dropped once the client has taken it.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::places::{Client, Held, Place, Places};
use super::{BoxError, ForwardBody};
use crate::memory::{Cut, Lack};

/// A body that keeps the place of its request for as long as it lives.
pub(super) struct Placed {
    inner: ForwardBody,
    _place: Place,
}

/// A body that pauses while at least `window` bytes of it are unsent. Without this, the HTTP library would read a
/// megabyte ahead.
struct Paced {
    window: usize,
    answer: Arc<PacedAnswer>,
}

/// An answer, until its client has taken all of it.
struct PacedAnswer {
    state: Mutex<PacedState>,
    taken: Mutex<TakenByClient>,
    cut: Cut,
    /// Its client, if that is known.
    client: Option<Client>,
    _held: Option<Arc<Held>>,
}

/// What the client has taken.
struct TakenByClient {
    /// When it last took something.
    last: Instant,
    /// For so long it has always left something, or since it was last looked at.
    since: Instant,
    /// The bytes that it took in that time.
    bytes: usize,
}

struct PacedState {
    /// `None` once all of it was read, or it was given up.
    rest: Option<ForwardBody>,
    /// What was read and not handed out.
    ahead: Bytes,
    /// The library has taken everything, and waits for more.
    is_asked: bool,
    given_up: bool,
}

/// Reserves what requests need, and keeps a list of the answers in flight.
pub(super) struct Pace {
    pub(super) places: Arc<Places>,
    /// The bytes that an answer may hold while its client reads it. `None`: answers have no reservation.
    window: Option<usize>,
    /// One entry per answer in flight.
    all: Mutex<Vec<Weak<PacedAnswer>>>,
}

/// The most bytes of a request's body that the HTTP library reads ahead.
const READ_AHEAD: usize = 1 << 20;
/// The most bytes that are handed out in one part: what an HTTP/2 frame holds by default.
const PART: usize = 16 << 10;

/// While there is no room for others, an answer is slow if its client takes less than these bytes in this time, although
/// there is always more.
const SLOW: usize = 256 << 10;
const SLOW_TIME: Duration = Duration::from_secs(10);

/// Bytes that report when they are freed.
struct Given {
    data: Bytes,
    answer: Arc<PacedAnswer>,
}

// === impl Placed ===

impl Placed {
    pub(super) fn new(inner: ForwardBody, place: Place) -> Self {
        Self { inner, _place: place }
    }
}

impl Body for Placed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl Paced ===

impl Body for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let answer = &self.answer;
        let mut state = answer.state.lock();
        if state.given_up {
            return Poll::Ready(Some(Err("given up: its client had stopped to take it".into())));
        }
        ready!(answer.cut.poll_room(cx, self.window));
        if state.ahead.is_empty()
            && let Some(rest) = &mut state.rest
        {
            let polled = Pin::new(rest).poll_frame(cx);
            if std::mem::replace(&mut state.is_asked, polled.is_pending()) && answer.cut.out() == 0 {
                answer.taken.lock().all();
            }
            match ready!(polled).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) if data.is_empty() => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Ok(data)) => state.ahead = data,
                last => {
                    (state.rest, state.is_asked) = (None, true);
                    return Poll::Ready(last.and_then(Result::err).map(Ok));
                }
            }
        }
        if state.ahead.is_empty() {
            return Poll::Ready(None);
        }
        let part = state.ahead.len().min(PART);
        let part = state.ahead.split_to(part);
        Poll::Ready(Some(Ok(Frame::data(answer.give(part)))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.answer.state.lock();
        let is_read = state.rest.as_ref().is_none_or(Body::is_end_stream);
        is_read && !state.given_up && state.ahead.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.answer.state.lock();
        let rest = state.rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        let ahead = state.ahead.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + ahead);
        }
        hint
    }
}

impl Drop for Paced {
    /// Nobody asks for the rest any more. Only what is out is still to be taken.
    fn drop(&mut self) {
        let mut state = self.answer.state.lock();
        state.is_asked = true;
        let rest = (state.rest.take(), std::mem::take(&mut state.ahead));
        drop(state);
        drop(rest);
    }
}

// === impl Pace ===

impl Pace {
    /// `window`: the bytes that an answer may hold while its client reads it.
    pub(super) fn new(places: Arc<Places>, window: Option<usize>) -> Self {
        Self { places, window, all: Mutex::default() }
    }

    /// Reserves memory for a request and for its answer. `length`: that of the request's body, if it is known.
    pub(super) fn hold(
        &self,
        client: &Client,
        is_watch: bool,
        is_long: bool,
        length: Option<u64>,
    ) -> Result<Option<Held>, Lack> {
        let Some(window) = self.window else { return Ok(None) };
        let sent = length.map_or(READ_AHEAD, |bytes| usize::try_from(bytes).unwrap_or(READ_AHEAD));
        // The HTTP client reads as much ahead as may wait for our client. Events of a watch come in small pieces; if
        // the clients of many watches stop reading, the memory check of the process notices that.
        let answer = if is_watch { window / 4 } else { 2 * window };
        self.places.hold(client, is_long, answer + sent.min(READ_AHEAD)).map(Some)
    }

    /// Paces the body by its client. One frame is always read, however large. What was reserved for it is kept until the
    /// client has taken all of it.
    pub(super) fn answer(&self, mut response: Response<ForwardBody>, client: Option<&Client>) -> Response<ForwardBody> {
        let held = response.extensions_mut().remove::<Arc<Held>>();
        if response.body().is_end_stream() {
            return response;
        }
        let cut = Cut::default();
        response.extensions_mut().insert(cut.clone());
        response.map(|rest| self.paced(rest, cut, client.cloned(), held).boxed_unsync())
    }

    fn paced(&self, rest: ForwardBody, cut: Cut, client: Option<Client>, held: Option<Arc<Held>>) -> Paced {
        let rest = Some(rest);
        let state = PacedState { rest, ahead: Bytes::new(), is_asked: false, given_up: false };
        let now = Instant::now();
        let (state, taken) = (Mutex::new(state), Mutex::new(TakenByClient { last: now, since: now, bytes: 0 }));
        let answer = Arc::new(PacedAnswer { state, taken, cut, client, _held: held });
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|answer| answer.strong_count() > 0);
        }
        all.push(Arc::downgrade(&answer));
        Paced { window: self.window.unwrap_or(usize::MAX), answer }
    }

    /// Ends the answers of which nothing was taken for this long. Returns their number.
    pub(super) fn give_up(&self, patience: Duration) -> u64 {
        let now = Instant::now();
        self.end(|answer| answer.is_stalled(now, patience))
    }

    /// Ends those of these clients, and those that are slow. For use while others wait for their room.
    pub(super) fn hurry(&self, patience: Duration, is_theirs: &dyn Fn(Option<&Client>) -> bool) -> u64 {
        let now = Instant::now();
        self.end(|answer| {
            is_theirs(answer.client.as_ref()) && (answer.is_stalled(now, patience) || answer.is_slow(now))
        })
    }

    fn end(&self, is_over: impl Fn(&PacedAnswer) -> bool) -> u64 {
        let mut stalled = Vec::new();
        self.all.lock().retain(|answer| {
            let Some(answer) = answer.upgrade() else { return false };
            let stands = is_over(&answer);
            stalled.push((answer, stands));
            !stands
        });
        // Whatever is dropped is dropped outside of the lock.
        stalled.iter().filter(|(answer, stands)| *stands && answer.give_up()).count() as u64
    }
}

// === impl PacedAnswer ===

impl PacedAnswer {
    fn give(self: &Arc<Self>, data: Bytes) -> Bytes {
        if self.cut.give(data.len()) == 0 {
            self.taken.lock().last = Instant::now();
        }
        Bytes::from_owner(Given { data, answer: Arc::clone(self) })
    }

    /// Whether the client could take something, and has not for this long. An answer that waits for the apiserver, and of
    /// which nothing is out, does not wait for its client. The library may copy what it is given, and then not ask for more.
    fn is_stalled(&self, now: Instant, patience: Duration) -> bool {
        self.waits_for_client() && now.saturating_duration_since(self.taken.lock().last) >= patience
    }

    /// Whether the client could take more, and has not for a while, although it does take something.
    fn is_slow(&self, now: Instant) -> bool {
        self.waits_for_client() && self.taken.lock().is_little(now)
    }

    fn waits_for_client(&self) -> bool {
        self.cut.out() > 0 || !self.state.lock().is_asked
    }

    /// Returns false if it was given up before.
    fn give_up(&self) -> bool {
        let mut state = self.state.lock();
        let is_first = !std::mem::replace(&mut state.given_up, true);
        let rest = (state.rest.take(), std::mem::take(&mut state.ahead));
        drop(state);
        drop(rest);
        self.cut.cut();
        is_first
    }
}

// === impl TakenByClient ===

impl TakenByClient {
    fn more(&mut self, bytes: usize) {
        self.last = Instant::now();
        self.bytes += bytes;
    }

    /// The client had taken all that there was until now.
    fn all(&mut self) {
        (self.since, self.bytes) = (Instant::now(), 0);
    }

    /// Looks at what was taken since it was last looked at, once that is long ago.
    fn is_little(&mut self, now: Instant) -> bool {
        let time = now.saturating_duration_since(self.since);
        if time < SLOW_TIME {
            return false;
        }
        let is_little = (self.bytes as f64) < SLOW as f64 * time.div_duration_f64(SLOW_TIME);
        (self.since, self.bytes) = (now, 0);
        is_little
    }
}

// === impl Given ===

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.answer.taken.lock().more(self.data.len());
        self.answer.cut.taken(self.data.len());
    }
}

#[cfg(test)]
#[path = "paced_tests.rs"]
mod tests;
