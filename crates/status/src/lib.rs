//! `informerd status`: the content of the status page in a terminal; and `informerd explain`. What the daemon writes and these
//! commands read is defined here.

mod apiserver;
mod entries;
mod explanation;
mod layout;
mod live;
mod spared;
pub mod terminal;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use self::apiserver::Apiserver;
pub use self::entries::{Cache, Client, Forward, Lists, Queue};
pub use self::explanation::Explanation;
pub use self::layout::Style;
pub use self::live::watch;
pub use self::spared::{Grouped, InUnits, Spared, Traffic};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The most and the fewest columns of the plot.
const COLUMNS: usize = 60;
const FEWEST_COLUMNS: usize = 10;
/// Where the values of the first lines begin.
const INDENT: usize = 11;
/// Columns that are left out first where a table is too wide: lists, window, heard, events and memory of informers; user
/// and protocol of clients; user of forwarded reads.
const SPARE: [usize; 5] = [9, 6, 3, 8, 5];
const SPARE_OF_CLIENTS: [usize; 2] = [1, 3];
const SPARE_OF_FORWARDS: [usize; 1] = [3];
/// User, retries and delayed keys of queues.
const SPARE_OF_QUEUES: [usize; 3] = [1, 7, 6];
/// In a terminal of 40 columns: what the informer is of, requests of clients, and protocol of forwarded reads.
const LAST: [usize; 1] = [1];
const LAST_OF_CLIENTS: [usize; 1] = [5];
const LAST_OF_FORWARDS: [usize; 1] = [5];
/// Seconds between two points of the history that are compared. Further apart, nobody measured in between.
const LONGEST: u64 = 15;
/// Seconds of the history that a daemon keeps.
const HISTORY: u64 = 3600;

/// The displayed part of `/status.json`. A field that another version lacks is zero or empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub version: String,
    /// Seconds since 1970.
    pub now: u64,
    pub server: String,
    pub ready: bool,
    pub pending: Vec<String>,
    /// A daemon without this field has another version. It counts as one whose apiserver answers.
    pub upstream: Option<Apiserver>,
    pub served_age_seconds: u64,
    pub resident_bytes: u64,
    pub memory_limit_bytes: Option<u64>,
    pub spared: Spared,
    pub served: u64,
    pub own: u64,
    pub forwarded: u64,
    pub refused: u64,
    pub connections: u64,
    pub watches: u64,
    pub upstream_connections: u64,
    pub upstream_in_flight: u64,
    pub caches: Vec<Cache>,
    pub clients: Vec<Client>,
    pub forwards: Vec<Forward>,
    pub queues: Vec<Queue>,
    pub past: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Point {
    /// Seconds since 1970.
    pub at: u64,
    /// Requests.
    pub spared: i64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub sent_events: u64,
    pub received_events: u64,
    /// In seconds, of the deliveries since the point before.
    pub lag_p50: Option<f64>,
    pub lag_p99: Option<f64>,
}

/// The admin side of a running daemon.
pub trait Admin {
    /// The answer to a GET of this path, in JSON.
    ///
    /// # Errors
    /// It does not answer, or the answer is not that of an informerd.
    fn get<T: DeserializeOwned>(&self, path: &str) -> impl Future<Output = Result<T, String>> + Send;
}

/// The status of a daemon.
///
/// # Errors
/// As for [`Admin::get`].
pub async fn ask(admin: &impl Admin) -> Result<Status, String> {
    admin.get("/status.json").await
}

/// The same once more. Of the history, which is most of an answer, only what is new is asked for.
///
/// # Errors
/// As for [`Admin::get`].
pub async fn ask_again(admin: &impl Admin, before: &Status) -> Result<Status, String> {
    let since = before.past.last().map_or(0, |point| point.at);
    let status: Status = admin.get(&format!("/status.json?since={since}")).await?;
    Ok(status.following(&before.past))
}

/// The same as the daemon sent it, in JSON.
///
/// # Errors
/// As for [`Admin::get`].
pub async fn ask_json_text(admin: &impl Admin) -> Result<String, String> {
    let raw: Box<RawValue> = admin.get("/status.json").await?;
    Ok(format!("{}\n", raw.get()))
}

// === impl Status ===

impl Status {
    /// With the part of the history that was known before.
    fn following(mut self, before: &[Point]) -> Self {
        // The clock of the daemon was set back, so the next answer is to have all of the history.
        if before.last().is_some_and(|point| point.at > self.now) {
            return Self { past: Vec::new(), ..self };
        }
        let kept = before.iter().filter(|point| point.at + HISTORY > self.now).copied();
        self.past = kept.chain(std::mem::take(&mut self.past)).collect();
        self
    }

    /// The lines for a terminal.
    pub fn render(&self, style: Style) -> String {
        let mut text = self.head(style);
        text.push_str(&self.flow(style));
        let counts = format!(
            "spared     {}\n\
             requests   {} reads from the caches, {} forwarded, {} refused; {} of its own\n\
             clients    {} connections, {} watches\n\
             upstream   {} connections, {} requests under way\n\
             memory     {}{}\n",
            self.spared,
            self.served,
            self.forwarded,
            self.refused,
            self.own,
            self.connections,
            self.watches,
            self.upstream_connections,
            self.upstream_in_flight,
            bytes(self.resident_bytes),
            self.memory_limit_bytes.map_or_else(String::new, |limit| format!(" of {}", bytes(limit))),
        );
        counts.lines().for_each(|line| text.push_str(&style.paragraph(line, INDENT)));
        text.push_str(&self.plot(style));
        text.push('\n');
        text.push_str(&style.table(&self.rows(), &SPARE, &LAST));
        text.push_str(&self.troubles(style));
        text.push_str(&further(style, &self.client_rows(), &SPARE_OF_CLIENTS, &LAST_OF_CLIENTS));
        text.push_str(&further(style, &self.forward_rows(), &SPARE_OF_FORWARDS, &LAST_OF_FORWARDS));
        text.push_str(&self.changes(style));
        text.push_str(&further(style, &self.queue_rows(), &SPARE_OF_QUEUES, &[]));
        text
    }

    /// The last errors of informers that do not follow the apiserver. In an outage most of them have the same one.
    fn troubles(&self, style: Style) -> String {
        let mut troubles: BTreeMap<&str, (Vec<&str>, Option<u64>)> = BTreeMap::new();
        for cache in self.caches.iter().filter(|cache| cache.is_in_trouble()) {
            let (resources, seconds) = troubles.entry(&cache.last_error).or_default();
            resources.push(&cache.resource);
            *seconds = [*seconds, cache.error_seconds].into_iter().flatten().min();
        }
        let line = |(error, (mut resources, seconds)): (&str, (Vec<&str>, Option<u64>))| {
            resources.dedup();
            let ago = seconds.map_or_else(String::new, |seconds| format!(" ({} ago)", duration(seconds)));
            style.red(&format!("{}: {error}{ago}", resources.join(", ")), 2)
        };
        troubles.into_iter().map(line).collect()
    }

    /// The version, the apiserver's address, whether the daemon is ready, and whether the apiserver answers.
    fn head(&self, style: Style) -> String {
        let state = if self.ready { "ready".to_owned() } else { format!("not ready: {}", self.pending.join(", ")) };
        let who = format!("informerd {} in front of {}: {state}", self.version, self.server);
        let Some(upstream) = self.upstream.as_ref().filter(|upstream| upstream.is_unreachable()) else {
            return format!("{}\n", style.paragraph(&who, 2));
        };
        let mut text = format!("{}\n", style.red(&format!("{who}, apiserver unreachable"), 2));
        let since = duration(upstream.since_seconds);
        text.push_str(&style.red(&format!("apiserver  unreachable for {since}: {}", upstream.last_error), INDENT));
        if self.caches.iter().any(|cache| cache.ready) {
            let age = duration(self.served_age_seconds);
            text.push_str(&style.red(&format!("{:INDENT$}what is served is up to {age} old", ""), INDENT));
        }
        text
    }

    /// What flows from the apiserver to clients, between the last two points of the history, and how long events take.
    fn flow(&self, style: Style) -> String {
        let [.., before, last] = self.past.as_slice() else { return String::new() };
        let Some(time) = last.at.checked_sub(before.at).filter(|time| (1..=LONGEST).contains(time)) else {
            return String::new();
        };
        let of = |events: fn(&Point) -> u64, sizes: fn(&Point) -> u64| {
            let a_second = |count: fn(&Point) -> u64| count(last).saturating_sub(count(before)).div_ceil(time);
            format!("{} events/s, {}/s", a_second(events), bytes(a_second(sizes)))
        };
        let mut text = if self.upstream.as_ref().is_some_and(Apiserver::is_unreachable) {
            style.red("flow       apiserver → informerd: broken", INDENT)
        } else {
            let received = of(|point| point.received_events, |point| point.received_bytes);
            style.paragraph(&format!("flow       apiserver → informerd: {received}"), INDENT)
        };
        let sent = of(|point| point.sent_events, |point| point.sent_bytes);
        text.push_str(&style.paragraph(&format!("{:INDENT$}informerd → clients:   {sent}", ""), INDENT));
        if let (Some(p50), Some(p99)) = (last.lag_p50, last.lag_p99) {
            let millis = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
            let line = format!("lag        of deliveries: p50 {}, p99 {}", millis(p50), millis(p99));
            text.push_str(&style.paragraph(&line, INDENT));
        }
        text
    }

    /// Requests spared per second over the recorded time, the newest on the right.
    fn plot(&self, style: Style) -> String {
        let columns = style.width.saturating_sub(INDENT).clamp(FEWEST_COLUMNS, COLUMNS);
        let Some((bars, caption)) = self.bars(columns) else { return String::new() };
        let line = format!("plot       {bars}  {caption}");
        // Bars and words are never mixed in one line break.
        if line.chars().count() <= style.width {
            return format!("{line}\n");
        }
        format!("plot       {bars}\n{}", style.paragraph(&format!("{:INDENT$}{caption}", ""), INDENT))
    }

    /// The bars in so many columns, and what they tell.
    fn bars(&self, columns: usize) -> Option<(String, String)> {
        let (first, last) = (self.past.first()?, self.past.last()?);
        let span = last.at.checked_sub(first.at).filter(|span| *span > 0)?;
        let mut counts = vec![0_u64; columns];
        for pair in self.past.windows(2) {
            let at = (pair[1].at.saturating_sub(first.at)) as usize * columns / span as usize;
            // An interval in which informerd sent more requests than it answered has no bar.
            counts[at.min(columns - 1)] += u64::try_from(pair[1].spared - pair[0].spared).unwrap_or(0);
        }
        let most = counts.iter().copied().max().filter(|most| *most > 0)?;
        let bars: String =
            counts.iter().map(|count| BARS[(*count as usize * (BARS.len() - 1)).div_ceil(most as usize)]).collect();
        // The rate in the highest column, in requests per second.
        let rate = most as u128 * columns as u128 / u128::from(span);
        Some((bars, format!("requests spared in the last {}, at most {rate}/s", duration(span))))
    }

    fn forward_rows(&self) -> Vec<Vec<String>> {
        let head = ["FORWARDED", "REASON", "CLIENT", "USER", "PROGRAM", "PROTOCOL"];
        let row = |forward: &Forward| {
            let Forward { address, user, program, protocol, reason, count, .. } = forward;
            std::iter::once(count.to_string())
                .chain([reason, address, user, program, protocol].map(|text| or_none(text)))
                .collect()
        };
        std::iter::once(head.map(str::to_owned).to_vec()).chain(self.forwards.iter().map(row)).collect()
    }

    /// Each reason once, with what to do about it.
    fn changes(&self, style: Style) -> String {
        let reasons: BTreeMap<_, _> = self.forwards.iter().map(|forward| (&forward.reason, forward)).collect();
        let line = |forward: &Forward| {
            let Forward { reason, cause, change, .. } = forward;
            style.paragraph(&format!("{reason}: {cause}; {change}"), 2)
        };
        reasons.into_values().map(line).collect()
    }

    fn client_rows(&self) -> Vec<Vec<String>> {
        let head = ["CLIENT", "USER", "PROGRAM", "PROTOCOL", "WATCHES", "REQUESTS", "BYTES"];
        let row = |client: &Client| {
            let texts = [&client.address, &client.user, &client.program, &client.protocol].map(|text| or_none(text));
            let counts = [client.watches.to_string(), client.requests.to_string(), bytes(client.bytes)];
            texts.into_iter().chain(counts).collect()
        };
        std::iter::once(head.map(str::to_owned).to_vec()).chain(self.clients.iter().map(row)).collect()
    }

    fn queue_rows(&self) -> Vec<Vec<String>> {
        let head = ["QUEUE", "USER", "WORKERS", "OBJECTS", "READY", "HELD", "DELAYED", "RETRIES"];
        let row = |queue: &Queue| {
            let Queue { name, user, workers, objects, depth, held, delayed, retries, .. } = queue;
            let counts = [workers, objects, depth, held, delayed, retries].map(u64::to_string);
            [or_none(name), or_none(user)].into_iter().chain(counts).collect()
        };
        std::iter::once(head.map(str::to_owned).to_vec()).chain(self.queues.iter().map(row)).collect()
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let head =
            ["RESOURCE", "OF", "STATE", "LAST HEARD", "OBJECTS", "MEMORY", "WINDOW", "WATCHERS", "EVENTS", "LISTS"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.caches.iter().map(|cache| {
            let namespace = if cache.namespace.is_empty() { "all" } else { &cache.namespace };
            let of: Vec<_> = [namespace, &cache.field_selector, &cache.label_selector]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            let resource = match cache.encoding.as_str() {
                "json" | "" => cache.resource.clone(),
                encoding => format!("{} ({encoding})", cache.resource),
            };
            vec![
                resource,
                of.join(","),
                if cache.ready { cache.doing() } else { format!("not ready: {}", cache.doing()) },
                duration(cache.silent_seconds.unwrap_or(cache.idle_seconds)),
                cache.objects.to_string(),
                bytes(cache.bytes),
                duration(cache.window_seconds),
                cache.watchers.to_string(),
                cache.events.to_string(),
                cache.relists.to_string(),
            ]
        }));
        rows
    }
}

// === impl Cache ===

impl Cache {
    /// The current step in words. An older daemon reports only the state.
    fn doing(&self) -> String {
        let step = if self.step.is_empty() { &self.state } else { &self.step };
        match self.retry_seconds {
            Some(seconds) => format!("{step} in {}", duration(seconds)),
            None => step.clone(),
        }
    }

    /// Whether it does not follow the apiserver because of its last error.
    fn is_in_trouble(&self) -> bool {
        (self.failing || !self.ready) && !self.last_error.is_empty()
    }
}

/// A table after an empty line, unless it has a head only.
fn further(style: Style, rows: &[Vec<String>], spare: &[usize], last: &[usize]) -> String {
    if rows.len() > 1 { format!("\n{}", style.table(rows, spare, last)) } else { String::new() }
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "–".to_owned() } else { text.to_owned() }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_048_576 => format!("{}Ki", count.div_ceil(1024)),
        1_048_576..10_737_418_240 => format!("{}Mi", count >> 20),
        _ => format!("{}Gi", count >> 30),
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests;
