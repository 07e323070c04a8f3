//! The curated table, row by row, while the world stands still; then the rows that take several requests.

use std::sync::Arc;

use super::axes;
use super::compare::Difference;
use super::report::{Report, at_once};
use super::rows::{self, Row};
use super::scripts::{compared_to, other_than};
use super::wire::{Answer, Ask, Endpoint};
use super::world::{BOUND, World};

/// Requests at once; some wait for seconds.
const AT_ONCE: usize = 24;

const LABEL_VECTORS: &str = include_str!("../data/selectors.txt");
const OPTION_VECTORS: &[u8] = include_bytes!("../data/list-options.txt");

/// What is accepted, beside what is generated.
const FORMS: &[&str] = &[
    "",
    "application/yaml;q=0.1,*/*",
    "text/html,application/xhtml+xml,*/*;q=0.8",
    "application/json;pretty=0",
    "application/json; stream=watch",
    "application/json;v=v1;g=meta.k8s.io;as=PartialObjectMetadataList;q=0.9,application/json;q=0.8",
    "application/json;v=v1;g=meta.k8s.io;as=PartialObjectMetadata;q=0.7,application/json;q=0.8",
    "application/json,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

/// Every row that is one request.
pub(crate) async fn run(world: &Arc<World>, filter: Option<&str>, report: &Arc<Report>) {
    let mut lines: Vec<Row> = rows::all().collect();
    lines.extend(selector_vectors());
    lines.extend(option_vectors());
    lines.extend(form_vectors());
    let lines = lines.into_iter().filter(|line| filter.is_none_or(|filter| line.id == filter)).map(|line| {
        let (world, report) = (Arc::clone(world), Arc::clone(report));
        async move { one(&world, &line, &report).await }
    });
    at_once("curated", AT_ONCE, lines, report).await;
    for (row, why, tests) in rows::LEFT_OUT {
        report.leave_out(row, &format!("{why}; {}", tests.join(", ")));
    }
}

async fn one(world: &World, line: &Row, report: &Report) {
    let what = format!("curated --filter {} ({})", line.id, line.request);
    let mut asks = Vec::new();
    for side in &world.pair {
        let token = if line.request.contains("{token}") { first_token(side).await } else { String::new() };
        asks.push(line.ask(world, side, &token));
    }
    let Ok(asks) = <[Ask; 2]>::try_from(asks) else { return };
    let said = world.ask(&asks, BOUND).await;
    // Where both agree the row may still know better.
    let known = |direct: &Answer| line.unexpected(world, direct).filter(|_| world.pristine);
    compared_to(world, &what, &asks, said, known, report);
}

async fn first_token(side: &Endpoint) -> String {
    let page = side.ask(&Ask::get("/api/v1/namespaces/diff-a/configmaps?limit=1"), BOUND).await;
    let token = page.ok().and_then(|page| page.json()["metadata"]["continue"].as_str().map(str::to_owned));
    token.unwrap_or_default()
}

// === impl Row ===

impl Row {
    fn ask(&self, world: &World, side: &Endpoint, token: &str) -> Ask {
        let mut parts = self.request.split(" | ");
        let first = parts.next().unwrap_or_default();
        let (method, target) = match first.split_once(' ') {
            Some((method, target)) if method.bytes().all(|byte| byte.is_ascii_uppercase()) => (method, target),
            _ => ("GET", first),
        };
        let mut ask = Ask::method(method, world.target(&whole(target), 0, side, token));
        for header in parts {
            let (name, value) = header.split_once(": ").unwrap_or((header, ""));
            ask = ask.header(name, &value.replace("{authority}", side.authority()));
        }
        if method == "POST" {
            ask.body = Some("nonsense".to_owned());
        }
        ask
    }

    /// What is wrong with an answer that both sides give.
    fn unexpected(&self, world: &World, said: &Answer) -> Option<Difference> {
        let status = self.status.and_then(|status| other_than(status, said));
        let text = said.text();
        let missing = self.holds.iter().find(|holds| {
            let (wanted, holds) = holds.strip_prefix('!').map_or((true, holds.as_str()), |holds| (false, holds));
            text.contains(&world.told(holds, 0)) != wanted
        });
        status.or_else(|| missing.map(|holds| Difference::Unexpected(format!("in the body, {holds:?}"))))
    }
}

/// Without what is short for something in requests.
fn whole(text: &str) -> String {
    text.replace("{exact}", "resourceVersion={now}&resourceVersionMatch=Exact")
        .replace("{second}", "timeoutSeconds=1")
        .replace("{w}", "/apis/differential.example.com/v1")
        .replace("{g}", "/apis/differential.example.com/v1")
}

pub(super) fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A message as it stands in a JSON body.
fn in_json(message: &str) -> String {
    let text = serde_json::to_string(message).unwrap_or_default();
    text.trim_matches('"').replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// H1 to H60: `L "selector" OK…` and `F "selector" ERR message`.
fn selector_vectors() -> Vec<Row> {
    let mut lines = Vec::new();
    for vector in LABEL_VECTORS.lines() {
        let Some((kind, rest)) = vector.split_once(' ') else { continue };
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(selector)) = stream.next() else { continue };
        let outcome = rest[stream.byte_offset()..].trim();
        // Which fields there are is another question than what a field selector is: only refused ones are asked.
        let (parameter, refused) = match (kind, outcome.strip_prefix("ERR ")) {
            ("L", refused) => ("labelSelector", refused),
            ("F", Some(refused)) => ("fieldSelector", Some(refused)),
            _ => continue,
        };
        let request = format!("/api/v1/configmaps?{{exact}}&{parameter}={}", escaped(&selector));
        let (status, holds) = match refused {
            Some(message) => (Some(400), vec![in_json(message)]),
            None => (Some(200), Vec::new()),
        };
        lines.push(Row { id: "H1-H60".to_owned(), request, status, holds });
    }
    lines
}

/// B: combinations of options with the message that refuses them.
fn option_vectors() -> Vec<Row> {
    let mut lines = Vec::new();
    let text = String::from_utf8_lossy(OPTION_VECTORS);
    let mut vectors = text.lines().peekable();
    while let Some(vector) = vectors.next() {
        if !vector.starts_with("watch=") {
            continue;
        }
        let mut query = vec!["timeoutSeconds=1".to_owned()];
        for (ours, name) in [
            ("watch", "watch"),
            ("rv", "resourceVersion"),
            ("rvm", "resourceVersionMatch"),
            ("continue", "continue"),
            ("sendInitialEvents", "sendInitialEvents"),
        ] {
            let value = vector.split(' ').find_map(|part| part.strip_prefix(ours)?.strip_prefix('='));
            let value = value.unwrap_or_default().trim_matches('"');
            if !value.is_empty() {
                query.push(format!("{name}={value}"));
            }
        }
        let message = vectors.peek().and_then(|line| line.trim().strip_prefix("MSG: "));
        // What is valid by itself may still be refused for its token or its revision.
        let Some(message) = message else { continue };
        let request = format!("/api/v1/configmaps?{}", query.join("&"));
        lines.push(Row { id: "B".to_owned(), request, status: Some(422), holds: vec![in_json(message)] });
    }
    lines
}

/// I: every way to ask for a form, by each kind of read.
fn form_vectors() -> Vec<Row> {
    let line = |request: String| Row { id: "I".to_owned(), request, status: None, holds: Vec::new() };
    let one = "/api/v1/namespaces/diff-a/pods/one?resourceVersion=0";
    let none = "/api/v1/namespaces/diff-a/pods/none?resourceVersion=0";
    let mut lines = vec![line(format!("{one} | Accept: application/yaml | Accept: application/json"))];
    let json =
        axes::ACCEPTS.iter().map(|(_, accept)| *accept).filter(|accept| *accept != "-" && !accept.contains("/vnd"));
    for accept in json.chain(FORMS.iter().copied()) {
        for path in [
            "/api/v1/pods?{exact}",
            "/api/v1/namespaces/none/pods?{exact}",
            one,
            none,
            "/api/v1/pods?watch=1&resourceVersion=0&{second}",
            "{w}/widgets?{exact}",
            "{w}/namespaces/diff-a/widgets/one?resourceVersion=0",
            "{w}/namespaces/diff-a/widgets/none?resourceVersion=0",
        ] {
            lines.push(line(format!("{path} | Accept: {accept}")));
        }
    }
    for agent in ["curl/8", "Wget/1", "Mozilla/5.0 x", "Mozilla/4.0", "kubectl/v1"] {
        for query in ["", "&pretty=0", "&pretty=true", "&pretty=", "&pretty=x"] {
            lines.extend([one, none].map(|path| line(format!("{path}{query} | User-Agent: {agent}"))));
        }
    }
    lines
}
