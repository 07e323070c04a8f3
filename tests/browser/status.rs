//! The status page in a real browser, and the same in a terminal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod browser;
mod operated;

use informerd::app::admin_side::AdminSide;
use informerd::reads::ForwardReason;
use informerd_sim as sim;
use informerd_status as status;
use serde_json::json;

use crate::support::Through;
use crate::support::client::Client;
use browser::Browser;

const CONFIG: &str = "resources:\n- {resource: pods, pin: true}\n- {resource: nodes, pin: true}\n";
/// Would run, were it ever taken for HTML.
const EVIL: &str = "<img src=x onerror=document.title='run'>";

/// A daemon that has something to show: objects, watchers, reads of the cache, and forwarded ones.
async fn daemon() -> (sim::Server, Through) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "one"}});
    let server = sim::Server::builder().object(pod).start().await.unwrap();
    let through = Through::before(&server, CONFIG).await;
    through.ready().await;
    (server, through)
}

async fn read_much(through: &Through, times: usize) {
    let client = Client::new(&through.url);
    for _ in 0..times {
        assert_eq!(client.get("/api/v1/pods?resourceVersion=0").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_it_live() {
    let (_server, through) = daemon().await;
    let watch = Client::new(&through.url).watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    read_much(&through, 30).await;
    let mut page = Browser::open(&format!("http://{}/status", through.daemon.admin)).await;

    page.until("document.getElementById('state').textContent === 'ready'").await;
    page.until("[...document.querySelectorAll('#caches tr')].map(r => r.cells[0].textContent).join() === 'nodes,pods'")
        .await;
    let cell = |row: usize, column: usize| {
        format!("document.querySelectorAll('#caches tr')[{row}].cells[{column}].textContent")
    };
    page.until(&format!("{} === '1'", cell(1, 7))).await;
    let tile = |name: &str| {
        format!(
            "Number([...document.querySelectorAll('#tiles div')].find(d => d.firstChild.textContent === '{name}').lastChild.textContent.replaceAll(',', ''))"
        )
    };
    page.until(&format!("{} >= 30", tile("reads from the caches"))).await;
    page.until(&format!("{} > 0", tile("requests spared"))).await;
    page.until(&format!("{} === 1", tile("client watches"))).await;
    // The plots have lines once two samples were taken, and tables that tell the same.
    page.until(MEASURED).await;
    page.until("/^From informerd to clients: .+ events\\/s, .+\\/s, .+ requests\\/s\\. From the apiserver to informerd: /.test(document.getElementById('picture').getAttribute('aria-label'))").await;

    // The program that asked, without a name of its own, and what it has open.
    let client = |column: usize| format!("document.querySelectorAll('#clients tr')[0].cells[{column}].textContent");
    page.until(&format!("{} === '127.0.0.1' && {} === 'HTTP/1.1' && {} === '1'", client(2), client(3), client(4)))
        .await;
    page.until(&format!("Number({}) > 30", client(5))).await;
    // Why reads were forwarded, for whom, and what to do about it.
    let yaml = [("accept", "application/yaml"), ("user-agent", "a-program/1")];
    for _ in 0..3 {
        Client::new(&through.url).request(http::Method::GET, "/api/v1/pods", &yaml, "").await;
    }
    page.until(
        "[...document.querySelectorAll('#forwards tr')].map(r => [1, 0, 4].map(c => r.cells[c].textContent).join()).join() === '3,encoding,a-program/1'",
    )
    .await;
    // It goes on without being loaded again.
    drop(watch);
    read_much(&through, 70).await;
    page.until(&format!("{} >= 100", tile("reads from the caches"))).await;
    page.until(&format!("{} === 0", tile("client watches"))).await;
    assert_eq!(page.evaluate("performance.getEntriesByType('navigation').length").await, 1);

    // It needs nothing from anywhere else, and says nothing on its console.
    let origins = "[...new Set(performance.getEntriesByType('resource').map(e => new URL(e.name).origin))].join()";
    assert_eq!(page.evaluate(origins).await, format!("http://{}", through.daemon.admin));
    assert_eq!(page.complaints(), Vec::<String>::new());

    // Whatever a thing is called stays a text, in the details, too.
    let evil = format!(
        "import('/status.js').then((page) => {{ page.show({{...({EMPTY}), server: {EVIL:?}, version: {EVIL:?}, \
         caches: [{{...({CACHE}), resource: {EVIL:?}, namespace: {EVIL:?}, lastError: {EVIL:?}}}], \
         queues: [{{...({QUEUE}), name: {EVIL:?}, user: {EVIL:?}}}], \
         forwards: [{{reason: {EVIL:?}, program: {EVIL:?}, user: {EVIL:?}, count: 1, cause: {EVIL:?}, change: {EVIL:?}}}], \
         clients: [{{...({CLIENT}), program: {EVIL:?}, user: {EVIL:?}}}]}}); \
         document.querySelectorAll('td button').forEach((button) => button.click()); \
         return [document.querySelectorAll('img').length, document.body.textContent.split({EVIL:?}).length > 15]; }})"
    );
    assert_eq!(page.evaluate(&evil).await, json!([0, true]));
    assert_ne!(page.evaluate("document.title").await, "run");

    through.context.readiness.withdraw("draining");
    page.until("document.getElementById('state').textContent === 'not ready: draining'").await;
}

const CLIENT: &str = "{address: '', protocol: '', watches: 0, requests: 0, bytes: 0, forwarded: 1}";
const QUEUE: &str = "{workers: 0, objects: 0, depth: 0, held: 0, delayed: 0, deletions: 0, adds: 0, retries: 0, returned: 0, longestSeconds: 0}";
const CACHE: &str = "{apiVersion: 'v1', fieldSelector: '', labelSelector: '', encoding: 'json', ready: false, step: '', retrySeconds: null, failing: true, \
                     errorSeconds: null, refuses: [], pinned: false, resourceVersion: '', objects: 0, bytes: 0, windowEvents: 0, windowBytes: 0, windowOldest: '', \
                     windowSeconds: 0, watchers: 0, groups: 0, events: 0, relists: 0, idleSeconds: 0, silentSeconds: 0}";
/// True once a plot has a value.
const MEASURED: &str = "/^[\\d.]+$/.test(document.querySelector('#plots tbody td').textContent)";

const EMPTY: &str = "{version: '', ready: true, upstream: {reachable: true, lastError: ''}, servedAgeSeconds: 0, pending: [], residentBytes: 0, served: 0, own: 0, forwarded: 0, refused: 0, spared: {requests: 0, bytes: 0, events: 0, deliveriesPerEvent: 0}, \
                     connections: 0, watches: 0, upstreamConnections: 0, upstreamInFlight: 0, memoryLimitBytes: null, \
                     traffic: {answered: 0, asked: 0, sentBytes: 0, receivedBytes: 0, sentEvents: 0, receivedEvents: 0}, now: 0, past: [], outages: []}";

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_the_same() {
    let (_server, through) = daemon().await;
    read_much(&through, 5).await;
    let yaml = [("accept", "application/yaml"), ("user-agent", "a-program/1")];
    Client::new(&through.url).request(http::Method::GET, "/api/v1/pods", &yaml, "").await;
    let admin = AdminSide(through.daemon.admin);
    let text = status::ask(&admin).await.unwrap().render(status::Style::PLAIN);
    assert!(text.starts_with(&format!("informerd {} in front of ", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains(": ready\n") && text.contains("requests   5 reads from the caches, "), "{text}");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("pods ") || line.starts_with("nodes ")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(text.lines().any(|line| line == "1          encoding  127.0.0.1  –     a-program/1  HTTP/1.1"), "{text}");
    assert!(text.contains(ForwardReason::Encoding.change()), "{text}");
    let client = text.lines().find(|line| line.starts_with("127.0.0.1 ")).expect("a client");
    assert!(client.contains("HTTP/1.1") && client.contains("  5  "), "{text}");
    let before = loop {
        let status = status::ask(&admin).await.unwrap();
        if !status.past.is_empty() {
            break status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    // It does not ask for what it has: the same points come from the first answer.
    let again = status::ask_again(&admin, &before).await.unwrap();
    assert_eq!(again.past[..before.past.len()], before.past[..]);
}

/// What the page says while the apiserver answers, does not, and answers again.
#[tokio::test(flavor = "multi_thread")]
async fn an_apiserver_that_is_gone_is_told_at_once() {
    let (server, through) = daemon().await;
    let address = server.address();
    let admin = through.daemon.admin;
    let mut page = Browser::open(&format!("http://{admin}/status")).await;
    page.until("document.getElementById('state').textContent === 'ready'").await;
    page.until(
        "[...document.querySelectorAll('#caches tr')].map(r => r.cells[2].textContent).join() === 'watching,watching'",
    )
    .await;
    assert_eq!(page.evaluate("document.getElementById('trouble').offsetHeight").await, 0);
    assert!(readyz(admin).await.contains("[+]apiserver-reachable ok\nreadyz check passed\n"));
    let revision = server.revision();
    drop(server);

    page.until("document.getElementById('state').textContent === 'ready, apiserver unreachable'").await;
    let bad = "getComputedStyle(document.getElementById('state')).color === getComputedStyle(document.getElementById('trouble')).color \
               && document.getElementById('state').className === 'bad'";
    page.until(bad).await;
    page.until("/^The apiserver has been unreachable for \\d+ s, since .+: .*cannot connect to .+ What is served is up to \\d+ s old\\.$/.test(document.getElementById('trouble').textContent)").await;
    // Each informer tells what it does about it, and why.
    page.until("/^(waiting to retry in|checking the revision)/.test(document.querySelectorAll('#caches tr')[0].cells[2].textContent) \
                && document.querySelectorAll('#caches tr')[0].cells[2].className === 'bad'").await;
    page.until("document.querySelectorAll('#caches td.error').length === 2").await;
    // The time is shaded in the plots, and told below their heading.
    page.until("/^Shaded: the apiserver was unreachable, from \\d\\d:\\d\\d:\\d\\d for \\d+ s so far\\.$/.test(document.getElementById('outages').textContent)").await;
    page.until(SHADED).await;
    // The picture is broken where the apiserver is, and only there.
    let broken = "document.querySelectorAll('#picture line.bad').length === 2 \
                  && [...document.querySelectorAll('#picture line.bad, #picture rect.bad')].every((part) => getComputedStyle(part).stroke === getComputedStyle(document.getElementById('trouble')).color) \
                  && document.querySelectorAll('#picture rect.bad').length === 1 \
                  && document.getElementById('picture').getAttribute('aria-label').startsWith('Broken: the apiserver is unreachable for ')";
    page.until(broken).await;
    if let Some(directory) = std::env::var_os("STATUS_PAGE_PNGS") {
        page.screenshot(&std::path::Path::new(&directory).join("status-unreachable.png")).await;
    }
    let text = status::ask(&AdminSide(admin)).await.unwrap().render(status::Style::PLAIN);
    assert!(text.contains(": ready, apiserver unreachable\n\napiserver  unreachable for "), "{text}");
    assert!(text.contains("\n           what is served is up to "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("nodes, pods: cannot connect to ")), "{text}");
    // It stays ready: it still serves what it has.
    assert!(readyz(admin).await.ends_with("[-]apiserver-reachable failed: reason withheld\nreadyz check passed\n"));

    let _server = sim::Server::builder().port(address.port()).revision(revision + 10).start().await.unwrap();
    page.until("document.getElementById('state').textContent === 'ready'").await;
    page.until(
        "document.getElementById('trouble').hidden && document.querySelectorAll('#caches td.error').length === 0 \
         && document.querySelectorAll('#picture .bad').length === 0",
    )
    .await;
    page.until("/^Shaded: .+ for \\d+ s\\.$/.test(document.getElementById('outages').textContent)").await;
    assert_eq!(page.complaints(), Vec::<String>::new());
    // An informerd that is gone is no reason to show its last numbers.
    page.evaluate("window.fetch = () => Promise.reject(new Error('gone'))").await;
    page.until("document.getElementById('state').textContent === 'informerd does not answer (gone)'").await;
    page.until("document.querySelectorAll('#picture line.bad').length === 4 && document.querySelectorAll('#picture text.value').length === 4").await;
}

/// True if a plot has a point of the color of the shade, which is red and not opaque.
const SHADED: &str = "(() => {
    const canvas = document.querySelector('#plots canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) {
        if (data[i] > 150 && data[i + 1] < 80 && data[i + 3] > 40 && data[i + 3] < 70) return true;
    }
    return false;
})()";

/// The body of the verbose page.
async fn readyz(admin: std::net::SocketAddr) -> String {
    let answer = Client::new(&format!("http://{admin}")).get("/readyz?verbose").await;
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// For people to look at, into the directory `STATUS_PAGE_PNGS`; what a machine can see of it is asserted: at every width nothing
/// is wider than the page, and every text stands out from what is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_readable_wide_and_narrow_light_and_dark() {
    let (server, through) = daemon().await;
    for count in 0..30 {
        let name = format!("a-pod-with-a-long-name-{count}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": name}});
        server.create(pod).unwrap();
    }
    // One that is not ready, and says why.
    server.faults().add(sim::Fault::status(403).on("configmaps"));
    let mut open = Vec::new();
    for (program, http2) in [
        ("kubectl/v1.36.3 (linux/amd64) kubernetes/abc", false),
        ("kube-state-metrics/v2.17.0", true),
        ("a-program-with-a-very-long-name-that-nobody-would-choose/v1.2.3-rc.1+build", true),
    ] {
        let client = if http2 { Client::http2(&through.url) } else { Client::new(&through.url) };
        let agent = [("user-agent", program)];
        open.push(client.watch_as("/api/v1/pods?watch=1&resourceVersion=0", &agent).await);
        client.request(http::Method::GET, "/api/v1/configmaps?resourceVersion=0", &agent, "").await;
    }
    let yaml = [("accept", "application/yaml"), ("user-agent", "a-program-with-a-long-name/1")];
    Client::new(&through.url).request(http::Method::GET, "/api/v1/pods", &yaml, "").await;
    read_much(&through, 200).await;
    let directory = std::env::var_os("STATUS_PAGE_PNGS").map(std::path::PathBuf::from);
    let mut page = Browser::open(&format!("http://{}/status", through.daemon.admin)).await;
    page.until("document.querySelectorAll('#clients tr').length >= 4").await;
    page.until(MEASURED).await;
    page.until("document.querySelectorAll('#forwards td').length > 1").await;
    page.evaluate("document.querySelectorAll('#caches td button').forEach((button) => button.click())").await;
    for (width, dark) in [(1600, false), (1600, true), (1280, false), (1280, true), (400, false), (400, true)] {
        page.window(width, dark).await;
        // The picture and the plots are drawn anew, in the size they are shown in.
        page.until(
            "document.getElementById('picture').viewBox.baseVal.width === document.getElementById('picture').clientWidth \
             && [...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.u-wrap').offsetWidth === plot.clientWidth)",
        )
        .await;
        // Nothing is off the edge: neither of the page, nor of a table, which could be scrolled.
        let scrolls = "[...document.querySelectorAll('.wide')].filter((w) => w.scrollWidth > w.clientWidth).map((w) => w.textContent)";
        assert_eq!(page.evaluate(scrolls).await, json!([]), "{width}");
        assert_eq!(page.evaluate("[innerWidth, document.documentElement.scrollWidth]").await, json!([width, width]));
        assert_eq!(page.evaluate(CONTRAST).await, json!([]), "{width}, dark: {dark}");
        if let Some(directory) = &directory {
            let name = format!("status-{width}-{}.png", if dark { "dark" } else { "light" });
            page.screenshot(&directory.join(name)).await;
        }
    }
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// Texts whose contrast to what is behind them is below 4.5, as WCAG 2.2 wants it at least.
const CONTRAST: &str = r#"(() => {
    const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
    const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const c = rgb(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] > 0) return c;
        }
        return [255, 255, 255];
    };
    const dim = [];
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== '');
        if (!own) continue;
        const style = getComputedStyle(e);
        const [a, b] = [light(rgb(e instanceof SVGElement ? style.fill : style.color)), light(behind(e))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) dim.push(e.textContent);
    }
    return dim;
})()"#;
