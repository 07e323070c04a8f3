//! The page as it is used: with the keyboard, over a longer time, and while nobody looks.

use super::*;

const SORTED: &str = "[...document.querySelectorAll('#caches td:first-child button')].map((b) => b.textContent).join()";

/// Points of an hour: 10 requests a second, and 100 in the first half.
const HOUR: &str = "fetch('status.json').then((answer) => answer.json()).then((status) => import('/status.js').then((page) => {
    let answered = 1e9;
    const past = [];
    for (let at = status.now - 3500; at < status.now - 10; at += 10) {
        answered += at < status.now - 1800 ? 1000 : 100;
        const none = {asked: 0, sentBytes: 0, receivedBytes: 0, sentEvents: 0, receivedEvents: 0};
        past.push({at, answered, ...none, plans: {serve: 0, wait: 0, old: 0, forward: 0, refuse: 0}, lagP50: null, lagP99: null, residentBytes: 1});
    }
    page.show({...status, now: 1, past: []});
    page.show({...status, past});
}))";

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_is_enough() {
    let (_server, through) = daemon().await;
    let mut page = Browser::open(&format!("http://{}/status", through.daemon.admin)).await;
    page.until(&format!("{SORTED} === 'nodes,pods'")).await;

    // A table is sorted by what its head says, which says how.
    let sorting = "document.querySelector('#caches').parentElement.querySelector('th').getAttribute('aria-sort')";
    assert_eq!(page.evaluate(sorting).await, "ascending");
    page.evaluate("document.querySelector('#caches').parentElement.querySelector('th button').focus()").await;
    page.press("Enter").await;
    assert_eq!(page.evaluate(&format!("[{SORTED}, {sorting}]")).await, json!(["pods,nodes", "descending"]));
    page.press("Tab").await;
    page.press("Enter").await;
    let heads = "[...document.querySelector('#caches').parentElement.querySelectorAll('th')].map((th) => th.getAttribute('aria-sort') ?? '-').slice(0, 3).join()";
    assert_eq!(page.evaluate(heads).await, "-,ascending,-");
    // Numbers begin with the greatest: there is one pod, and no node.
    page.evaluate("[...document.querySelectorAll('th button')].find((b) => b.textContent === 'objects').focus()").await;
    page.press("Enter").await;
    assert_eq!(page.evaluate(SORTED).await, "pods,nodes");

    // A row opens, and stays open and in focus while the page goes on.
    let row = "document.querySelector('#caches button')";
    page.evaluate(&format!("{row}.focus()")).await;
    page.press("Enter").await;
    let details = "Object.fromEntries([...document.querySelectorAll('#caches tr.details dl div')].map((d) => [d.firstChild.textContent, d.lastChild.textContent]))";
    let open = format!(
        "{row}.getAttribute('aria-expanded') === 'true' && document.activeElement === {row} \
         && /^\\d+$/.test({details}['revision']) && {details}['last error'] === 'none'"
    );
    page.until(&open).await;
    let watch = Client::new(&through.url).watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    page.until(&format!("{details}['watchers, in groups of the same selection'] === '1 in 1' && {open}")).await;
    drop(watch);
    page.press("Enter").await;
    page.until(&format!(
        "{row}.getAttribute('aria-expanded') === 'false' && document.querySelector('tr.details') === null"
    ))
    .await;

    // The plots tell a point in time.
    page.until(MEASURED).await;
    page.evaluate("document.querySelector('.plot').focus()").await;
    page.press("ArrowLeft").await;
    let told = "[document.querySelector('#plots th').textContent, document.querySelector('.plot').getAttribute('aria-valuetext')]";
    page.until(&format!(
        "/^\\d\\d:\\d\\d:\\d\\d$/.test({told}[0]) && /^\\d\\d:\\d\\d:\\d\\d: answered /.test({told}[1])"
    ))
    .await;
    page.press("Escape").await;
    page.until(&format!("{told}[0] === 'now' && {told}[1].startsWith('now: answered ')")).await;
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_is_chosen_and_nobody_is_asked_while_nobody_looks() {
    let (_server, through) = daemon().await;
    let mut page = Browser::open(&format!("http://{}/status", through.daemon.admin)).await;
    page.until("document.getElementById('state').textContent === 'ready'").await;
    page.evaluate(HOUR).await;
    let most = "[...document.querySelectorAll('#plots tbody tr')][0].cells[3].textContent";
    page.until(&format!("{most} === '10'")).await;
    page.evaluate("document.querySelector('#span input:checked').focus()").await;
    page.press("ArrowRight").await;
    page.until(&format!("document.querySelector('#span input:checked').value === '3600' && {most} === '100'")).await;
    page.press("ArrowLeft").await;
    page.press("ArrowLeft").await;
    page.until(&format!("document.querySelector('#span input:checked').value === '300' && {most} === '10'")).await;

    // It is kept when the page is loaded again.
    assert_eq!(page.evaluate("location.hash").await, "#span=300");
    page.reload().await;
    page.until("performance.getEntriesByType('navigation')[0].type === 'reload' && document.getElementById('state').textContent === 'ready'").await;
    page.until("document.querySelector('#span input:checked').value === '300'").await;

    let pulse = "getComputedStyle(document.querySelector('#picture line.pulse')).animationName";
    for (reduce, name) in [(true, "none"), (false, "run")] {
        page.reduce_motion(reduce).await;
        page.until(&format!("{pulse} === '{name}'")).await;
    }

    // What is asked for is only what is new.
    let count = "window.asked = []; window.real = window.fetch; window.fetch = (url, more) => { window.asked.push(url); return window.real(url, more); }; 0";
    page.evaluate(count).await;
    page.until("/^status.json\\?since=\\d{10}$/.test(window.asked.at(-1))").await;
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{configurable: true, value: {hidden}}}); \
             document.dispatchEvent(new Event('visibilitychange')); window.asked.length"
        )
    };
    let asked = page.evaluate(&hide(true)).await;
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(page.evaluate("window.asked.length").await, asked);
    page.evaluate(&hide(false)).await;
    page.until(&format!("window.asked.length > {asked} + 1")).await;
    assert_eq!(page.complaints(), Vec::<String>::new());
}
