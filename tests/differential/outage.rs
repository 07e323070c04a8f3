//! The network between the daemon and its apiserver is cut in the midst of a phase. Until it is back, an answer is the
//! apiserver's, or it says that the apiserver does not answer; then the same request is sent again.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::args::Mode;
use super::compare::{contains, is_panic};
use super::served::is_forwarded;
use super::support::relay::{Loss, Relay};
use super::wire::{Answer, Ask, End};
use super::world::{BOUND, World};

/// The outages of each mode, by their numbers: one in each of two phases, and those of the phase `cuts`.
pub(crate) const GENERATED: usize = 0;
pub(crate) const PAGES: usize = 1;
pub(crate) const CUTS: usize = 2;

/// Connections stay open, and bytes are lost. The daemon gives up such a connection after nine seconds.
const SILENT: [Loss; 4] = [Loss::Up, Loss::Late, Loss::Down, Loss::Both];

/// The network is back after this time if a request still waits. No verdict depends on it: such a request waits until the daemon gives up
/// its connection, whenever the network is back.
const AWAY: Duration = Duration::from_secs(4);

/// Time between two attempts of one request.
const AGAIN: Duration = Duration::from_millis(200);

/// What the `n`th outage of a mode loses. Every other one closes the connections; the four silent ones of both modes are of all
/// four kinds. The seed decides which comes where.
pub(crate) fn loss(seed: u64, mode: Mode, n: usize) -> Loss {
    let (seed, mode) = (usize::try_from(seed % 8).unwrap_or(0), usize::from(mode == Mode::Probe));
    let is_silent = (seed + mode + n).is_multiple_of(2);
    if is_silent { SILENT[(seed / 2 + 2 * mode + n / 2) % SILENT.len()] } else { Loss::Closed }
}

/// What comes of this while the network is cut, and is back after [`AWAY`].
pub(crate) async fn during<T>(relay: &Relay, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = timeout(AWAY, &mut work).await {
        return done;
    }
    relay.lose(Loss::None);
    work.await
}

/// Both answers. The request is sent again as long as the daemon says that the apiserver does not answer.
pub(crate) async fn ask(world: &World, asks: &[Ask; 2], http2: bool) -> [io::Result<Answer>; 2] {
    let bound = Instant::now() + BOUND;
    loop {
        let said = if http2 { world.ask_http2(asks, BOUND).await } else { world.ask(asks, BOUND).await };
        if !says_so(&asks[0], &said) || Instant::now() > bound {
            return said;
        }
        sleep(AGAIN).await;
    }
}

/// Whether the daemon says that the apiserver does not answer: with the status and the text of docs/troubleshooting.md, and with
/// `Retry-After` where nothing was sent; or the connection has broken within the apiserver's answer.
pub(crate) fn says_so(ask: &Ask, said: &[io::Result<Answer>; 2]) -> bool {
    let [direct, Ok(through)] = said else { return false };
    if is_panic(direct, &said[1]) || direct.as_ref().is_ok_and(|direct| direct.status == through.status) {
        return is_forwarded(through) && through.end == End::Cut;
    }
    let retries = through.header("retry-after").is_some();
    let says = |text: &str| ask.method == "HEAD" || contains(&through.body, text.as_bytes());
    match through.status {
        429 => retries,
        503 if retries => says("informerd cannot reach the kube-apiserver"),
        503 => says("informerd lost the connection to the kube-apiserver"),
        504 => says("informerd had no answer in time from the kube-apiserver"),
        _ => is_forwarded(through) && through.end == End::Cut,
    }
}
