//! The figures as tables.

use super::agents::AgentsCost;
use super::apply::Applied;
use super::ingest::EventCost;
use super::kinds::KindCost;
use super::reads::ListCost;
use super::restart::RestartCost;
use super::start::StartCost;

/// Figures are printed when the last one is there, because the servers' log lines stand between them otherwise.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) json_bytes: usize,
    applied: Option<Applied>,
    kinds: Vec<(String, KindCost)>,
    starts: Vec<(String, StartCost)>,
    lists: Vec<(String, ListCost)>,
    events: Vec<(String, EventCost, usize)>,
    restarts: Vec<(String, RestartCost)>,
    agents: Vec<(String, AgentsCost)>,
}

const MB: f64 = 1e6;

/// Kinds with fewer objects share a row.
const ENOUGH: usize = 30;

// === impl Report ===

impl Report {
    pub(crate) fn applied(&mut self, applied: Applied) {
        eprintln!("{applied:?}");
        self.applied = Some(applied);
    }

    pub(crate) fn kind(&mut self, name: &str, cost: KindCost) {
        eprintln!("{name}: {cost:?}");
        self.kinds.push((name.to_owned(), cost));
    }

    pub(crate) fn start(&mut self, name: &str, cost: StartCost) {
        eprintln!("{name}: {cost:?}");
        self.starts.push((name.to_owned(), cost));
    }

    pub(crate) fn list(&mut self, name: &str, cost: ListCost) {
        eprintln!("{name}: {cost:?}");
        self.lists.push((name.to_owned(), cost));
    }

    pub(crate) fn events(&mut self, name: &str, cost: EventCost, count: usize) {
        eprintln!("{name}: {cost:?}");
        self.events.push((name.to_owned(), cost, count));
    }

    pub(crate) fn restart(&mut self, name: &str, cost: RestartCost) {
        eprintln!("{name}: {cost:?}");
        self.restarts.push((name.to_owned(), cost));
    }

    pub(crate) fn agents(&mut self, name: &str, cost: AgentsCost) {
        eprintln!("{name}: {cost:?}");
        self.agents.push((name.to_owned(), cost));
    }

    pub(crate) fn print(&self) {
        let objects: usize = self.kinds.iter().map(|(_, cost)| cost.objects).sum();
        println!("\n{}", std::env::args().skip(1).collect::<Vec<_>>().join(" "));
        println!("{objects} objects, {:.1} MB of JSON", self.json_bytes as f64 / MB);
        self.print_applied();
        self.print_kinds();
        self.print_starts();
        self.print_lists();
        self.print_events();
        self.print_restarts();
        self.print_agents();
    }

    fn print_applied(&self) {
        let Some(Applied { manifests, others, written, same, pods, refused, .. }) = &self.applied else { return };
        println!("\n{manifests} manifests, and {others} documents that are none; {same} are there twice");
        println!("{pods} pods were made of templates; {written} objects were written, not these:\n");
        println!("| why | objects |\n|---|---|");
        for (why, count) in refused {
            println!("| {why} | {count} |");
        }
    }

    fn print_agents(&self) {
        println!("\nA restart of all node agents, ten at a time; CPU of the kube-apiserver:\n");
        println!("| kept | agents | s until all are ready | CPU s | requests | states read |");
        println!("|---|---|---|---|---|---|");
        for (name, cost) in &self.agents {
            let AgentsCost { agents, seconds, apiserver_cpu_seconds, requests, states } = cost;
            println!("| {name} | {agents} | {seconds:.1} | {apiserver_cpu_seconds:.2} | {requests:.0} | {states:.0} |");
        }
    }

    fn print_restarts(&self) {
        println!("\nA restart after a crash, until it is ready:\n");
        println!(
            "| form | s until ready | CPU s | MB peak | CPU s of the kube-apiserver | states read | probes | MB on disk | µs of CPU for each change before |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for (name, cost) in &self.restarts {
            println!(
                "| {name} | {:.2} | {:.2} | {:.1} | {:.2} | {:.0} | {:.0} | {:.1} | {:.0} |",
                cost.ready_seconds,
                cost.cpu_seconds,
                cost.peak as f64 / MB,
                cost.apiserver_cpu_seconds,
                cost.states,
                cost.probes,
                cost.snapshot_bytes / MB,
                cost.change_micros,
            );
        }
    }

    fn print_kinds(&self) {
        println!("\nObjects that the dictionary was not trained on, without a server:\n");
        println!("{}", KindCost::HEAD);
        let (large, small): (Vec<_>, Vec<_>) = self.kinds.iter().partition(|(_, cost)| cost.objects >= ENOUGH);
        for (name, cost) in large {
            println!("{}", cost.row(name));
        }
        let mut others = KindCost::default();
        small.iter().for_each(|(_, cost)| others.add(cost));
        if !small.is_empty() {
            println!("{}", others.row(&format!("{} other kinds", small.len())));
        }
    }

    fn print_starts(&self) {
        println!("\nFrom the start until everything is packed:\n");
        println!(
            "| form | s until ready | CPU s until ready | CPU s after | MB resident | peak | resident ÷ JSON | objects packed | MB saved | settled |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        for (name, cost) in &self.starts {
            println!(
                "| {name} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.2} | {:.0} | {:.1} | {} |",
                cost.ready_seconds,
                cost.ready_cpu_seconds,
                cost.packing_cpu_seconds,
                cost.resident as f64 / MB,
                cost.peak as f64 / MB,
                cost.resident as f64 / self.json_bytes.max(1) as f64,
                cost.packed_objects,
                cost.saved_bytes / MB,
                if cost.is_settled { "yes" } else { "no" },
            );
        }
    }

    fn print_lists(&self) {
        println!(
            "\nLists of all pods, or of every kind of the manifests, CPU of the server; all have the items that the kube-apiserver has:\n"
        );
        println!("| form | MB | first, ms | those after it, ms | MB resident after |");
        println!("|---|---|---|---|---|");
        for (name, cost) in &self.lists {
            println!(
                "| {name} | {:.1} | {:.0} | {:.0} | {:.1} |",
                cost.bytes as f64 / MB,
                cost.first * 1e3,
                cost.next * 1e3,
                cost.resident as f64 / MB,
            );
        }
    }

    fn print_events(&self) {
        println!("\nPods that change, with one watcher; CPU of the server:\n");
        println!(
            "| form | events | events a s | µs an event | the same with the 5 s after | ms in 5 s before | MB resident after |"
        );
        println!("|---|---|---|---|---|---|---|");
        for (name, cost, count) in &self.events {
            let count = *count as f64;
            println!(
                "| {name} | {count:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} |",
                count / cost.wall_seconds,
                cost.cpu_seconds * 1e6 / count,
                (cost.cpu_seconds + cost.after_cpu_seconds) * 1e6 / count,
                cost.rest_cpu_seconds * 1e3,
                cost.resident as f64 / MB,
            );
        }
    }
}
