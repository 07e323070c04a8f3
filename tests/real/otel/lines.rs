//! Lines of the log in their text form.

use crate::otel::collector::Collector;
use crate::otel::{SOON, hex, some};
use crate::support::binary::informerd;
use crate::support::lines::Lines;
use crate::support::{eventually, file};

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_text_name_their_trace() {
    let (server, collector) = (some().await, Collector::start().await);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = file(directory.path(), "kubeconfig", informerd_sim::kubeconfig("sim", &server.url()));
    let mut child = informerd("run --listen http://127.0.0.1:0 --admin 127.0.0.1:0 --log-level debug")
        .arg("--resources=[{resource: configmaps, pin: true}]")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--state-dir={}", directory.path().display()))
        .envs([
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            SOON,
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Lines::of(&mut child.stderr);
    // The last words of the line, after what it says.
    let line = lines.until("took a whole state").await;
    let plain = lines.text.lines().filter(|line| !line.contains("trace_id=")).count();
    let words: Vec<_> = line.split(' ').collect();
    let [.., trace, span] = words.as_slice() else { panic!("{line}") };
    let (trace, span) = (trace.strip_prefix("trace_id=").unwrap(), span.strip_prefix("span_id=").unwrap());
    let sent = || collector.spans().into_iter().find(|sent| hex(&sent.span_id) == span);
    eventually("its span", || sent().is_some()).await;
    let name = "reflector watchList configmaps";
    assert_eq!((hex(&sent().unwrap().trace_id).as_str(), sent().unwrap().name.as_str()), (trace, name));
    assert!(plain > 2, "lines outside of spans name none");
}
