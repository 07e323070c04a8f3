//! The outage: both simulated apiservers are cut off for a while, and what clients notice is told.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::load::grouped;
use super::tally::{Lists, Reads, Side};

/// The most announcements that wait to be shown. The outage waits for a place.
pub(super) const WAITING: usize = 8;
/// How often it is looked whether the watches of informerd are back.
const LOOK: Duration = Duration::from_millis(100);
/// The longest wait for them.
const LONGEST: Duration = Duration::from_secs(60);

/// When the apiserver is cut off, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// After all clients have started.
    pub after: Duration,
    pub length: Duration,
}

/// The state of the apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Apiserver {
    #[default]
    Answers,
    CutOffUntil(Instant),
}

/// What the clients of one side have noticed since the outage began.
#[derive(Clone, Copy, Debug)]
struct Noticed {
    /// The watches that were open before.
    open: u64,
    since: Reads,
}

/// Where the outage is told.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) lines: mpsc::Sender<String>,
    pub(super) apiserver: watch::Sender<Apiserver>,
}

impl Plan {
    /// Cuts both apiservers off once, and connects them again. A closed output is no reason not to.
    pub(super) async fn run(self, without: &Side, with: &Side, telling: &Telling) {
        tokio::time::sleep(self.after).await;
        let server = &with.apiserver.server;
        let upstream = server.counts().all_open_watches();
        let before = [without, with].map(|side| side.tally.reads());
        let noticed = || {
            let since =
                |side: &Side, before: Reads| Noticed { open: before.open, since: side.tally.reads().since(before) };
            [since(without, before[0]), since(with, before[1])]
        };
        telling.apiserver.send_replace(Apiserver::CutOffUntil(Instant::now() + self.length));
        telling.say(cut(self.length)).await;
        let (one, other) = tokio::join!(without.apiserver.cut_off(self.length), with.apiserver.cut_off(self.length));
        if let Err(error) = one.and(other) {
            telling.say(format!("The simulated apiserver could not listen again: {error}.")).await;
            return;
        }
        telling.apiserver.send_replace(Apiserver::Answers);
        telling.say(back(noticed())).await;
        let begin = Instant::now();
        while server.counts().all_open_watches() < upstream {
            if begin.elapsed() > LONGEST {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        telling.say(following(upstream, begin.elapsed())).await;
    }
}

// === impl Telling ===

impl Telling {
    async fn say(&self, text: String) {
        // If the screen is gone, nobody has to be told.
        self.lines.send(text).await.ok();
    }
}

fn cut(length: Duration) -> String {
    format!("The apiserver is cut off for {length:?}: every connection to it is closed or refused.")
}

fn back([without, with]: [Noticed; 2]) -> String {
    let of = |answered: u64, refused: u64| format!("{} of {}", grouped(answered), grouped(answered + refused));
    let watches = |side: Noticed| {
        let ended = side.since.ended.min(side.open);
        of(side.open - ended, ended)
    };
    let lists = |lists: Lists| of(lists.answered, lists.refused);
    let mut lines = vec![
        "The apiserver is back. While it was cut off,".to_owned(),
        format!("  {} watches stayed open (without informerd {}),", watches(with), watches(without)),
        format!(
            "  {} lists of any state (resourceVersion=0) were answered ({}),",
            lists(with.since.any),
            lists(without.since.any)
        ),
        format!(
            "  {} lists of the newest state were answered ({}).",
            lists(with.since.newest),
            lists(without.since.newest)
        ),
    ];
    if with.since.newest.refused > 0 {
        lines.push("  The newest state is unknown then; --while-away serve gives the last known one.".to_owned());
    }
    lines.join("\n")
}

fn following(watches: u64, after: Duration) -> String {
    format!("{} watches of informerd follow the apiserver again, {:.1} s later.", grouped(watches), after.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_fits_a_terminal() {
        let during = Reads {
            open: 51,
            ended: 0,
            any: Lists { answered: 20, refused: 0 },
            newest: Lists { answered: 3, refused: 12 },
        };
        let lost = Reads { open: 50, ended: 60, any: Lists { answered: 0, refused: 20 }, ..Reads::default() };
        let [during, lost] = [during, lost].map(|since| Noticed { open: 51, since });
        let text = back([lost, during]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[1..4],
            [
                "  51 of 51 watches stayed open (without informerd 0 of 51),",
                "  20 of 20 lists of any state (resourceVersion=0) were answered (0 of 20),",
                "  3 of 15 lists of the newest state were answered (0 of 0).",
            ]
        );
        assert!(lines[4].contains("--while-away serve"));
        let others = [cut(Duration::from_secs(10)), following(8, Duration::from_millis(1_250))];
        for line in lines.into_iter().chain(others.iter().map(String::as_str)) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(!back([during, lost]).contains("--while-away"));
    }
}
