//! The figures, and what they are as ratios to the first server.

use super::Options;
use super::baseline::Units;
use super::fanout::FanoutCost;
use super::latency::Latency;
use super::lists::ListCost;
use super::reads::ReadCost;

#[derive(Default)]
pub(crate) struct Report {
    lists: Vec<(String, ListCost)>,
    fanouts: Vec<(String, FanoutCost)>,
    latencies: Vec<(String, Latency)>,
    reads: Vec<(String, ReadCost)>,
}

impl Report {
    pub(crate) fn list(&mut self, name: String, cost: ListCost) {
        eprintln!("{name}: {cost:?}");
        self.lists.push((name, cost));
    }

    pub(crate) fn fanout(&mut self, name: String, cost: FanoutCost) {
        eprintln!("{name}: {cost:?}");
        match self.fanouts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, best)) if best.cpu_seconds <= cost.cpu_seconds => {}
            Some((_, best)) => *best = cost,
            None => self.fanouts.push((name, cost)),
        }
    }

    pub(crate) fn latency(&mut self, name: String, latency: Latency) {
        eprintln!("{name}: {latency:?}");
        self.latencies.push((name, latency));
    }

    pub(crate) fn reads(&mut self, name: String, cost: ReadCost) {
        eprintln!("{name}: {cost:?}");
        self.reads.push((name, cost));
    }

    /// Lists and deliveries, with the first server of each as 1.
    pub(crate) fn units(&self) -> Units {
        let lists = self.lists.iter().map(|(name, cost)| ("list", name, cost.cpu_seconds));
        let fanouts =
            self.fanouts.iter().map(|(name, cost)| ("delivery", name, cost.cpu_seconds / cost.deliveries as f64));
        let (list, delivery) = (lists.clone().next(), fanouts.clone().next());
        let ratio = |(work, name, seconds): (&str, &String, f64), first: Option<(&str, &String, f64)>| {
            let (_, _, first) = first?;
            Some((format!("{work}, {name}"), seconds / first.max(1e-9)))
        };
        lists.filter_map(|row| ratio(row, list)).chain(fanouts.filter_map(|row| ratio(row, delivery))).collect()
    }

    pub(crate) fn print(&self, options: &Options) {
        if !self.reads.is_empty() {
            println!(
                "\nLists of the newest state, {} each; requests are those to the kube-apiserver:\n",
                options.reads
            );
            println!("| server | resource | readers | lists per 1,000 | watches per 1,000 | p50 ms | p99 ms |");
            println!("|---|---|---|---|---|---|---|");
            for (name, cost) in &self.reads {
                let ReadCost { lists, watches, p50_ms, p99_ms } = cost;
                println!("| {name} | {lists:.0} | {watches:.0} | {p50_ms:.1} | {p99_ms:.1} |");
            }
        }
        if let Some((_, first)) = self.lists.first() {
            println!("\nList of {} pods, mean of {}:\n", options.pods, options.lists);
            println!(
                "| server | MB | MB sent | wall ms | CPU ms | CPU, first to this | generator's CPU ms | MiB held, synced | after |"
            );
            println!("|---|---|---|---|---|---|---|---|---|");
            for (name, cost) in &self.lists {
                println!(
                    "| {name} | {:.1} | {:.1} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} |",
                    cost.bytes as f64 / 1e6,
                    cost.wire_bytes as f64 / 1e6,
                    cost.wall_seconds * 1e3,
                    cost.cpu_seconds * 1e3,
                    first.cpu_seconds / cost.cpu_seconds.max(1e-9),
                    cost.client_cpu_seconds * 1e3,
                    cost.held_mib,
                    cost.held_after_mib,
                );
            }
        }
        let rate = |cost: &FanoutCost| cost.deliveries as f64 / cost.cpu_seconds.max(1e-9);
        if let Some((_, first)) = self.fanouts.first() {
            println!("\n{} watchers, {} events each:\n", options.watchers, options.updates);
            println!(
                "| server | wall s | CPU s | deliveries per CPU s | this to first | CPU s unwatched | generator's CPU s | p50 ms | p99 ms | max ms | KiB a watcher |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|---|");
            for (name, cost) in &self.fanouts {
                println!(
                    "| {name} | {:.2} | {:.2} | {:.0} | {:.1} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.1} |",
                    cost.wall_seconds,
                    cost.cpu_seconds,
                    rate(cost),
                    rate(cost) / rate(first),
                    cost.unwatched_cpu_seconds,
                    cost.client_cpu_seconds,
                    cost.p50_ms,
                    cost.p99_ms,
                    cost.max_ms,
                    cost.watcher_kib,
                );
            }
        }
        if !self.latencies.is_empty() {
            println!(
                "\nHow much later an event comes than over a watch at the kube-apiserver, one watcher, {} events:\n",
                options.latency
            );
            println!("| server | p50 ms | p90 ms | p99 ms | max ms | CPU µs an event |");
            println!("|---|---|---|---|---|---|");
            for (name, latency) in &self.latencies {
                let Latency { p50_ms, p90_ms, p99_ms, max_ms, cpu_micros } = latency;
                println!("| {name} | {p50_ms:.2} | {p90_ms:.2} | {p99_ms:.2} | {max_ms:.2} | {cpu_micros:.0} |");
            }
        }
    }
}
