//! That the answers that were compared came from the caches: who forwards everything is equal to the apiserver, too.

use std::collections::BTreeMap;

use super::args::{Mode, Phase};
use super::kinds::{GROUP, KINDS, Kind};
use super::wire::{Answer, Ask};

/// In each of its own answers the apiserver names the queue that a request stood in; an answer from a cache stood in none.
const QUEUE: &str = "x-kubernetes-pf-flowschema-uid";

/// The least of a phase's successful reads that have to come from the caches, in hundredths: with the defaults, which
/// forward gets and lists of the newest state, and with `probe`.
const SHARES: &[(Phase, [u64; 2])] = &[
    (Phase::Curated, [70, 70]),
    (Phase::Generated, [70, 75]),
    (Phase::Scripts, [80, 80]),
    (Phase::Watches, [85, 85]),
    // Few reads: one forwarded first page takes its others with it.
    (Phase::Pages, [75, 75]),
    (Phase::Shards, [85, 75]),
    (Phase::Users, [70, 70]),
    (Phase::Tables, [80, 80]),
    (Phase::Cuts, [70, 70]),
];

/// So many reads of each of these kinds in each of these encodings have to come from the caches, in the two modes.
struct Floor {
    phase: Phase,
    /// All without any, but for [`NEVER`].
    kinds: &'static [&'static str],
    encodings: &'static [&'static str],
    least: [u64; 2],
}

const METADATA: [&str; 2] = ["metadata", "metadata in protobuf"];

const FLOORS: &[Floor] = &[
    Floor { phase: Phase::Generated, kinds: &[], encodings: &["json"], least: [5, 5] },
    Floor { phase: Phase::Generated, kinds: &[], encodings: &["protobuf"], least: [4, 4] },
    Floor { phase: Phase::Generated, kinds: &[], encodings: &METADATA, least: [4, 4] },
    Floor { phase: Phase::Generated, kinds: &[], encodings: &["tables"], least: [3, 3] },
    Floor { phase: Phase::Tables, kinds: &[], encodings: &["tables"], least: [10, 10] },
    Floor { phase: Phase::Watches, kinds: &["configmaps", "pods"], encodings: &["json", "protobuf"], least: [2, 2] },
    Floor { phase: Phase::Watches, kinds: &["configmaps", "pods"], encodings: &METADATA, least: [1, 1] },
    Floor { phase: Phase::Watches, kinds: &["widgets-v1", "widgets-v2"], encodings: &["json"], least: [3, 3] },
    Floor { phase: Phase::Pages, kinds: &["configmaps", "widgets-v1", "events"], encodings: &["json"], least: [3, 3] },
    Floor {
        phase: Phase::Shards,
        kinds: &["configmaps", "nodes", "events"],
        encodings: &["json", "protobuf", "metadata", "metadata in protobuf"],
        least: [8, 8],
    },
    Floor { phase: Phase::Shards, kinds: &["widgets-v1"], encodings: &METADATA, least: [8, 8] },
    // It is small and quiet: once a list of it was forwarded, to forward the others costs less than to prove what is cached.
    Floor { phase: Phase::Shards, kinds: &["gadgets"], encodings: &METADATA, least: [0, 8] },
    Floor {
        phase: Phase::Users,
        kinds: &["configmaps", "pods", "events"],
        encodings: &["json", "protobuf"],
        least: [1, 1],
    },
    Floor { phase: Phase::Cuts, kinds: &["configmaps", "pods", "widgets-v1"], encodings: &["json"], least: [4, 4] },
    Floor { phase: Phase::Cuts, kinds: &["configmaps"], encodings: &["protobuf"], least: [1, 1] },
];

/// What is never cached.
const NEVER: &str = "secrets";

/// Successful reads by kind and encoding: those from the caches, and all. And all answers by their status.
#[derive(Default)]
pub(crate) struct Tally {
    cells: BTreeMap<(&'static str, &'static str), (u64, u64)>,
    pub statuses: BTreeMap<u16, u64>,
}

// === impl Tally ===

impl Tally {
    /// Counts the answers to one request.
    pub(crate) fn add(&mut self, ask: &Ask, [direct, through]: &[Answer; 2]) {
        *self.statuses.entry(through.status).or_default() += 1;
        if !matches!(direct.status, 200 | 101) || !is_forwarded(direct) || ask.method != "GET" {
            return;
        }
        let (served, all) = self.cells.entry((kind_of(&ask.target), encoding_of(ask, direct))).or_default();
        *served += u64::from(through.status == direct.status && !is_forwarded(through));
        *all += 1;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (cell, (served, all)) in other.cells {
            let sum = self.cells.entry(cell).or_default();
            *sum = (sum.0 + served, sum.1 + all);
        }
    }

    /// How many hundredths of the successful reads came from the caches.
    pub(crate) fn share(&self) -> u64 {
        let sum = |of: fn(&(u64, u64)) -> u64| self.cells.values().map(of).sum::<u64>();
        sum(|cell| cell.0) * 100 / sum(|cell| cell.1).max(1)
    }

    /// The floors that a whole phase is below.
    pub(crate) fn below(&self, phase: Phase, mode: Mode) -> Vec<String> {
        let column = usize::from(mode == Mode::Probe);
        let mut below = Vec::new();
        let least = SHARES.iter().find(|(of, _)| *of == phase).map_or(0, |(_, least)| least[column]);
        if self.share() < least {
            below.push(format!("only {} % of the reads came from the caches, and not {least} %", self.share()));
        }
        for Floor { kinds, encodings, least, .. } in FLOORS.iter().filter(|floor| floor.phase == phase) {
            // Custom resources have no protobuf but that of their metadata.
            let has = |kind: &&Kind| kind.row != NEVER && (*encodings != ["protobuf"] || !kind.root.contains(GROUP));
            let every = KINDS.iter().filter(has).map(|kind| kind.row);
            let kinds: Vec<&str> = if kinds.is_empty() { every.collect() } else { kinds.to_vec() };
            for cell in kinds.iter().flat_map(|kind| encodings.iter().map(|encoding| (*kind, *encoding))) {
                let (served, all) = self.cells.get(&cell).copied().unwrap_or_default();
                if served < least[column] {
                    below.push(format!("{} in {}: {served} of {all}, and not {}", cell.0, cell.1, least[column]));
                }
            }
        }
        below
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for ((kind, encoding), (served, all)) in &self.cells {
            writeln!(f, "    {kind} in {encoding}: {served} of {all}")?;
        }
        Ok(())
    }
}

pub(crate) fn is_forwarded(answer: &Answer) -> bool {
    answer.header(QUEUE).is_some()
}

fn kind_of(target: &str) -> &'static str {
    let path = target.split('?').next().unwrap_or_default().replacen("/watch/", "/", 1);
    let is_of = |root: &str, plural: &str| {
        let parts: Vec<&str> = path.strip_prefix(root).unwrap_or("none").split('/').collect();
        match parts[..] {
            ["", "namespaces", _, of, ..] | ["", of, ..] => of == plural,
            _ => false,
        }
    };
    KINDS.iter().find(|kind| is_of(kind.root, kind.plural)).map_or("others", |kind| kind.row)
}

fn encoding_of(ask: &Ask, answer: &Answer) -> &'static str {
    let asked = |form: &str| ask.headers.iter().any(|(name, value)| name == "Accept" && value.contains(form));
    let content = answer.header("content-type").unwrap_or_default();
    match (asked("as=Table"), asked("as=Partial"), content.contains("protobuf"), content.contains("json")) {
        (true, ..) => "tables",
        (_, true, true, _) => "metadata in protobuf",
        (_, true, _, true) => "metadata",
        (_, _, true, _) => "protobuf",
        (.., true) => "json",
        _ => "others",
    }
}
