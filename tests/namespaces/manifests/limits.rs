//! What the manifests ask for and are limited to, derived from what was measured: the table of docs/operations.md is computed
//! again from docs/performance.md and held to the manifests.

use super::pod::bytes;
use crate::support::read;

/// Of the whole process besides its objects, in bytes.
const PROCESS: f64 = 25.0 * MEBIBYTE;
const MEBIBYTE: f64 = 1_048_576.0;
/// How much more than the sum is asked for.
const HEADROOM: f64 = 1.5;
/// What the process lets its caches use of the limit, and what an object counts for besides its JSON.
const OF_CACHES: f64 = 0.6;
const OBJECT: f64 = 160.0;

/// What a unit of work takes, as measured.
struct Measured {
    /// The process's bytes for a byte of JSON.
    factor: f64,
    /// Bytes.
    watcher: f64,
    /// Deliveries in a second of a processor.
    deliveries: f64,
    /// Seconds of a processor for a megabyte of lists.
    lists: f64,
}

#[test]
fn requests_and_limits_follow_from_measurements() {
    let measured = measured(&read("docs/performance.md"));
    let page = read("docs/operations.md");
    let table = page.split_once("<!-- sizing: held").and_then(|(_, rest)| rest.split_once("<!-- end of sizing -->"));
    let rows: Vec<_> = table.expect("a table").0.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let names: Vec<_> = rows.iter().map(|row| cells(row)[0]).collect();
    assert_eq!(names, ["sidecar", "node-agent", "node-agent, all-pods", "tier"]);
    for row in rows {
        holds(row, &measured);
    }
}

fn holds(row: &str, measured: &Measured) {
    let row = cells(row);
    let [name, informers, objects, watchers, changes, lists, memory, limit, processor, request] = row[..] else {
        panic!("{row:?}");
    };
    let (informers, window) = informers.split_once(" × ").expect("N × SIZE");
    let (objects, size) = objects.split_once(" × ").expect("N × SIZE");
    let size = number(size.strip_suffix(" kB").expect("kB")) * 1000.0;
    let windows = number(informers) * bytes(window) as f64;
    let needed = PROCESS + windows + measured.factor * number(objects) * size + number(watchers) * measured.watcher;
    let needed = needed * HEADROOM / MEBIBYTE;
    let said = bytes(memory) as f64 / MEBIBYTE;
    assert!((needed - said).abs() <= 1.0, "{name}: {needed} MiB by what is measured, the page says {memory}");
    let limited = bytes(limit) as f64;
    assert!(needed * MEBIBYTE <= limited, "{name}: {needed} MiB do not fit into {limit}");
    let counted = windows + number(objects) * (size + OBJECT);
    assert!(counted <= limited * OF_CACHES, "{name}: {counted} bytes are more than caches may have of {limit}");
    let busy = number(watchers) * number(changes) / measured.deliveries + number(lists) * measured.lists;
    let (busy, said) = (busy * HEADROOM * 1000.0, number(processor.strip_suffix('m').expect("milli")));
    assert!((busy - said).abs() <= 1.0, "{name}: {busy}m by what is measured, the page says {processor}");
    assert!(busy <= number(request.strip_suffix('m').expect("milli")), "{name}: {busy}m are not in {request}");

    let (configuration, workload) = match name {
        "sidecar" => ("components/sidecar/informerd.yaml".to_owned(), "components/sidecar/patch.yaml".to_owned()),
        "node-agent, all-pods" => {
            ("components/all-pods/informerd.yaml".to_owned(), "components/all-pods/kustomization.yaml".to_owned())
        }
        name => (format!("overlays/{name}/informerd.yaml"), format!("overlays/{name}/workload.yaml")),
    };
    let (configuration, workload) =
        (read(&format!("manifests/{configuration}")), read(&format!("manifests/{workload}")));
    assert!(configuration.contains(&format!("window: {{maxBytes: {window}}}\n")), "{name}: {window}");
    assert_eq!(configuration.matches("pin: true").count() as f64, number(informers), "{name}");
    assert!(workload.contains(&format!("limits: {{memory: {limit}}}")), "{name}: {limit}");
    assert!(workload.contains(&format!("requests: {{cpu: {request}, memory: {limit}}}")), "{name}: {request}");
}

fn measured(page: &str) -> Measured {
    assert!(page.contains("about one and a half times the JSON of its plain objects, and 25 MiB besides"), "{page}");
    let row = |section: &str, row: &str| -> Vec<String> {
        let section = page.split_once(&format!("\n## {section}\n")).expect("a section").1;
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let mut lines = section.lines().filter(|line| line.starts_with('|'));
        let found = lines.find(|line| line.starts_with(&format!("| {row} |"))).unwrap_or_else(|| panic!("no {row}"));
        cells(found).into_iter().map(str::to_owned).collect()
    };
    let watches = row("Fan-out", "informerd, HTTP/1.1, TLS");
    let lists = row("Lists", "informerd, HTTP/2, TLS");
    let megabytes =
        page.split_once(" MB of JSON), `resourceVersion=0`, one after the other; the same bytes").expect("a size").0;
    let megabytes = number(megabytes.rsplit_once('(').expect("a size").1);
    Measured {
        factor: 1.5,
        watcher: number(watches[5].strip_suffix(" KiB").expect("KiB")) * 1024.0,
        deliveries: number(&watches[1]),
        lists: number(lists[2].strip_suffix(" ms").expect("ms")) / 1000.0 / megabytes,
    }
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text} is no number"))
}
