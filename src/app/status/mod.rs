//! `informerd status`: the content of the status page in a terminal.

mod layout;
mod live;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, Request, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::timeout;

pub use self::layout::Style;
pub(super) use self::live::watch;
use crate::admin::{Apiserver, Spared};
use crate::upstream::client::empty;
use crate::upstream::reader::ask_json;
use crate::upstream::{CallOptions, Upstream, UpstreamError};

/// The daemon is on this machine, so it answers at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer: enough for thousands of informers.
const MOST_BYTES: usize = 16 << 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of the plot.
const COLUMNS: usize = 60;
/// Where the values of the first lines begin.
const INDENT: usize = 11;
/// Columns that are left out first where a table is too wide: lists, window, heard, events and memory of informers; user
/// and protocol of clients; user of forwarded reads.
const SPARE: [usize; 5] = [9, 6, 3, 8, 5];
const SPARE_OF_CLIENTS: [usize; 2] = [1, 3];
const SPARE_OF_FORWARDS: [usize; 1] = [3];

/// The displayed part of `/status.json`. A field that another version lacks is zero or empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub version: String,
    pub server: String,
    pub ready: bool,
    pub pending: Vec<String>,
    /// A daemon without this field has another version. It counts as one whose apiserver answers.
    pub upstream: Option<Apiserver>,
    pub served_age_seconds: u64,
    pub resident_bytes: u64,
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
    pub past: Vec<Point>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cache {
    pub resource: String,
    pub namespace: String,
    pub field_selector: String,
    pub label_selector: String,
    pub encoding: String,
    pub ready: bool,
    pub state: String,
    pub step: String,
    pub retry_seconds: Option<u64>,
    pub failing: bool,
    pub last_error: String,
    pub error_seconds: Option<u64>,
    pub objects: u64,
    pub bytes: u64,
    pub window_seconds: u64,
    pub watchers: u64,
    pub events: u64,
    pub relists: u64,
    pub idle_seconds: u64,
    pub silent_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Client {
    pub address: String,
    pub user: String,
    pub program: String,
    pub protocol: String,
    pub requests: u64,
    pub watches: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Forward {
    pub address: String,
    pub user: String,
    pub program: String,
    pub reason: String,
    pub count: u64,
    pub cause: String,
    pub change: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Point {
    /// Seconds since 1970.
    pub at: u64,
    /// Requests.
    pub spared: i64,
}

/// Asks the daemon whose admin side listens on this address.
///
/// # Errors
/// It does not answer, or the answer is not that of an informerd.
pub async fn ask(admin: SocketAddr) -> Result<Status, String> {
    get(admin, "/status.json", HeaderMap::new()).await
}

/// The same as the daemon sent it, in JSON.
///
/// # Errors
/// As for [`ask`].
pub(super) async fn ask_json_text(admin: SocketAddr) -> Result<String, String> {
    let raw: Box<RawValue> = get(admin, "/status.json", HeaderMap::new()).await?;
    Ok(format!("{}\n", raw.get()))
}

/// Requests one JSON answer. Connecting, sending and receiving take no longer than [`TIMEOUT`] together.
pub(super) async fn get<T: DeserializeOwned>(admin: SocketAddr, path: &str, headers: HeaderMap) -> Result<T, String> {
    let url = format!("http://{admin}{path}");
    let parse = |text: &str| text.parse::<Uri>().map_err(|error| format!("{url}: {error}"));
    let (base, target) = (parse(&format!("http://{admin}"))?, parse(&url)?);
    let answer = async {
        let daemon = Upstream::from_config(kube::Config::new(base)).await?;
        let mut request = Request::new(empty());
        (*request.uri_mut(), *request.headers_mut()) = (target, headers);
        // The default: the request is sent as it is, with its own User-Agent.
        ask_json(&daemon, request, &CallOptions::default(), MOST_BYTES).await
    };
    match timeout(TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(UpstreamError::Status(status))) => Err(format!("{url}: {} is no answer of informerd", status.code)),
        Ok(Err(error @ UpstreamError::Decode(_))) => Err(format!("{url}: {error}")),
        Ok(Err(error)) => Err(format!("{url}: {error}: does informerd run?")),
        Err(_elapsed) => Err(format!("{url}: no answer within {TIMEOUT:?}")),
    }
}

// === impl Status ===

impl Status {
    pub fn render(&self, style: Style) -> String {
        let mut text = self.head(style);
        let counts = format!(
            "spared     {}\n\
             requests   {} reads from the caches, {} forwarded, {} refused; {} of its own\n\
             clients    {} connections, {} watches\n\
             upstream   {} connections, {} requests under way\n\
             memory     {}\n",
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
        );
        counts.lines().for_each(|line| text.push_str(&style.paragraph(line, INDENT)));
        text.push_str(&self.plot(style));
        text.push('\n');
        text.push_str(&style.table(&self.rows(), &SPARE));
        text.push_str(&self.troubles(style));
        if !self.clients.is_empty() {
            text.push('\n');
            text.push_str(&style.table(&self.client_rows(), &SPARE_OF_CLIENTS));
        }
        if !self.forwards.is_empty() {
            text.push('\n');
            text.push_str(&style.table(&self.forward_rows(), &SPARE_OF_FORWARDS));
            text.push_str(&self.changes(style));
        }
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
        let who = format!("informerd {} before {}: {state}", self.version, self.server);
        let Some(upstream) = self.upstream.as_ref().filter(|upstream| upstream.is_unreachable()) else {
            return format!("{}\n", style.paragraph(&who, 2));
        };
        let mut text = format!("{}\n", style.red(&format!("{who}, apiserver unreachable"), 2));
        let since = duration(upstream.since_seconds);
        let mut lines = vec![format!("apiserver  unreachable for {since}: {}", upstream.last_error)];
        if self.caches.iter().any(|cache| cache.ready) {
            lines.push(format!("           what is served is up to {} old", duration(self.served_age_seconds)));
        }
        for line in lines {
            text.push_str(&style.red(&line, INDENT));
        }
        text
    }

    /// Requests spared per second over the recorded time, the newest on the right.
    fn plot(&self, style: Style) -> String {
        let Some((bars, caption)) = self.bars() else { return String::new() };
        let line = format!("plot       {bars}  {caption}");
        // Bars and words are never mixed in one line break.
        if line.chars().count() <= style.width {
            return format!("{line}\n");
        }
        format!("plot       {bars}\n{}", style.paragraph(&format!("{:INDENT$}{caption}", ""), INDENT))
    }

    /// The bars, and what they tell.
    fn bars(&self) -> Option<(String, String)> {
        let (first, last) = (self.past.first()?, self.past.last()?);
        let span = last.at.checked_sub(first.at).filter(|span| *span > 0)?;
        let mut columns = vec![0_u64; COLUMNS];
        for pair in self.past.windows(2) {
            let at = (pair[1].at.saturating_sub(first.at)) as usize * COLUMNS / span as usize;
            // An interval in which informerd sent more requests than it answered has no bar.
            columns[at.min(COLUMNS - 1)] += u64::try_from(pair[1].spared - pair[0].spared).unwrap_or(0);
        }
        let most = columns.iter().copied().max().filter(|most| *most > 0)?;
        let bars: String =
            columns.iter().map(|count| BARS[(*count as usize * (BARS.len() - 1)).div_ceil(most as usize)]).collect();
        // The rate in the highest column, in requests per second.
        let rate = most as u128 * COLUMNS as u128 / u128::from(span);
        Some((bars, format!("requests spared in the last {}, at most {rate}/s", duration(span))))
    }

    fn forward_rows(&self) -> Vec<Vec<String>> {
        let head = ["FORWARDED", "REASON", "CLIENT", "USER", "PROGRAM"];
        let row = |forward: &Forward| {
            let Forward { address, user, program, reason, count, .. } = forward;
            std::iter::once(count.to_string())
                .chain([reason, address, user, program].map(|text| or_none(text)))
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

    fn rows(&self) -> Vec<Vec<String>> {
        let head = ["RESOURCE", "OF", "STATE", "HEARD", "OBJECTS", "MEMORY", "WINDOW", "WATCHERS", "EVENTS", "LISTS"];
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
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::lifecycle::spawn;

    const RED: Style = Style { colors: true, width: usize::MAX };

    #[test]
    fn fits_a_terminal() {
        let json = r#"{"version":"1.2.3","server":"https://kubernetes.default.svc.cluster.local","ready":true,"served":123456789,
            "own":1234567,"forwarded":345678,"refused":12345,
            "spared":{"requests":123456789,"bytes":123456789012,"events":1234567890,"deliveriesPerEvent":123.4},
            "upstream":{"reachable":false,"sinceSeconds":80,"lastError":"cannot connect: connection refused by the peer"},
            "past":[{"at":0,"spared":0},{"at":3600,"spared":90000}],
            "caches":[{"resource":"customresourcedefinitions.apiextensions.k8s.io","namespace":"a-long-namespace",
            "labelSelector":"app.kubernetes.io/name=web","encoding":"protobuf","ready":true,"failing":true,
            "step":"waiting to retry","retrySeconds":30,"lastError":"an error whose text is longer than any line of a terminal",
            "objects":12345,"bytes":123456789,"watchers":1234,"events":12345678}],
            "clients":[{"address":"fd00:1234:5678:9abc:def0:1234:5678:9abc","user":"system:serviceaccount:a:b",
            "program":"kube-controller-manager/v1.36.0 (linux/amd64) kubernetes/abc","protocol":"HTTP/2","requests":123456}],
            "forwards":[{"address":"10.0.0.7","program":"kubectl/v1.36.0 (linux/amd64) kubernetes/abc","reason":"outside_window",
            "count":12,"cause":"it asks for a revision that the window does not hold, or no longer","change":"raise it"}]}"#;
        let status: Status = serde_json::from_str(json).unwrap();
        let text = status.render(Style { colors: false, width: 80 });
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\nin\n{text}");
        }
        for part in ["RESOURCE", "WATCHERS", "CLIENT", "BYTES", "an error whose text", "raise it", "█\n", "at most "]
        {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn shows_what_the_page_shows() {
        let json = r#"{"version":"1.2.3","server":"https://a","ready":false,"pending":["informer pods"],"served":100,"own":10,"forwarded":3,"refused":1,
            "spared":{"requests":90,"bytes":-2048,"events":1200,"deliveriesPerEvent":49.96},
            "residentBytes":33554432,"unknown":1,
            "past":[{"at":0,"spared":0},{"at":30,"spared":30},{"at":40,"spared":20},{"at":60,"spared":80}],
            "caches":[{"resource":"pods","namespace":"a","fieldSelector":"spec.nodeName=n","encoding":"json","state":"listing",
            "lastError":"no route","objects":7,"bytes":2048,"idleSeconds":7,"silentSeconds":3},
            {"resource":"nodes","encoding":"protobuf","ready":true,"state":"watching","idleSeconds":150}],
            "clients":[{"address":"10.0.0.7","program":"kubectl/v1","protocol":"HTTP/2","watches":2,"requests":12,"bytes":4096}],
            "forwards":[{"address":"10.0.0.7","program":"kubectl/v1","reason":"encoding","count":12,"cause":"no","change":"do"},
            {"address":"","program":"others","reason":"encoding","count":1,"cause":"no","change":"do"}]}"#;
        let status: Status = serde_json::from_str(json).unwrap();
        let text = status.render(Style::PLAIN);
        for line in [
            "informerd 1.2.3 before https://a: not ready: informer pods",
            "spared     90 requests, -2.0 KiB, 1,200 events (50.0 deliveries per event received)",
            "requests   100 reads from the caches, 3 forwarded, 1 refused; 10 of its own",
            "memory     32Mi",
            "pods              a,spec.nodeName=n  not ready: listing  3s     7        2Ki     0s      0         0       0",
            "nodes (protobuf)  all                watching            2m     0        0Ki     0s      0         0       0",
            "pods: no route",
            "10.0.0.7  –     kubectl/v1  HTTP/2    2        12        4Ki",
            "12         encoding  10.0.0.7  –     kubectl/v1",
            "1          encoding  –         –     others",
            "encoding: no; do",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
        assert!(!text.contains("unreachable"), "a daemon that does not tell: {text}");
        let plot = text.lines().find(|line| line.starts_with("plot")).unwrap();
        assert!(
            plot.contains('▅') && plot.contains('█') && plot.ends_with("requests spared in the last 60s, at most 60/s"),
            "{plot}"
        );
    }

    #[test]
    fn an_apiserver_that_does_not_answer_stands_out() {
        let json = r#"{"version":"1","server":"https://a","ready":true,"servedAgeSeconds":85,
            "upstream":{"reachable":false,"sinceSeconds":80,"lastError":"cannot connect","silentSeconds":84},
            "caches":[{"resource":"pods","ready":true,"state":"wait","step":"waiting to retry","retrySeconds":3,
            "failing":true,"lastError":"broke off","errorSeconds":4,"silentSeconds":85},
            {"resource":"nodes","ready":true,"state":"follow","step":"watching","lastError":"long ago"},
            {"resource":"services","failing":true,"lastError":"broke off","errorSeconds":9},
            {"resource":"events","lastError":"forbidden","errorSeconds":2}]}"#;
        let mut status: Status = serde_json::from_str(json).unwrap();
        let text = status.render(Style::PLAIN);
        for line in [
            "informerd 1 before https://a: ready, apiserver unreachable",
            "apiserver  unreachable for 80s: cannot connect",
            "           what is served is up to 85s old",
            "pods, services: broke off (4s ago)",
            "events: forbidden (2s ago)",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
            let painted = status.render(RED);
            assert!(painted.contains(&format!("\x1b[31m{line}\x1b[0m\n")), "{line}\nin\n{painted}");
        }
        assert!(text.contains("waiting to retry in 3s  85s ") && !text.contains("long ago"), "{text}");
        status.upstream = Some(Apiserver { reachable: true, ..Apiserver::default() });
        assert!(status.render(RED).starts_with("informerd 1 before https://a: ready\n\n"));
    }

    #[tokio::test]
    async fn waits_for_an_answer_that_never_ends_no_longer_than_it_should() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, trickle) = tokio::sync::oneshot::channel();
        spawn("trickle", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await.unwrap();
            taken.send(()).unwrap();
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let asking = spawn("asking", ask(address));
        trickle.await.unwrap();
        tokio::time::pause();
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.ends_with("no answer within 5s"), "{error}");
    }

    #[tokio::test]
    async fn tells_when_nobody_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = ask(address).await.unwrap_err();
        assert!(
            error.starts_with(&format!("http://{address}/status.json: ")) && error.ends_with("does informerd run?")
        );
    }
}
