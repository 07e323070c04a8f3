//! The same metrics by OTLP and by Prometheus.

use super::*;

/// Every sample, by name and labels, of histograms the counts alone.
fn samples_of(exposition: &str) -> BTreeMap<String, f64> {
    let lines = exposition.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels: BTreeSet<_> = labels
            .trim_end_matches('}')
            .split("\",")
            .map(|pair| pair.trim_end_matches('"').replace("=\"", "="))
            .filter(|pair| !pair.is_empty())
            .collect();
        (format!("{name} {labels:?}"), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

fn samples_in(metrics: &[Metric]) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for metric in metrics {
        let labels = |pairs: &[opentelemetry_proto::tonic::common::v1::KeyValue]| {
            attributes(pairs).iter().map(|(key, value)| format!("{key}={value}")).collect::<BTreeSet<_>>()
        };
        let mut numbers = |points: &[NumberDataPoint]| {
            for point in points {
                let value = match point.value.unwrap() {
                    number_data_point::Value::AsInt(whole) => whole as f64,
                    number_data_point::Value::AsDouble(value) => value,
                };
                all.insert(format!("{} {:?}", metric.name, labels(&point.attributes)), value);
            }
        };
        match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => numbers(&gauge.data_points),
            Data::Sum(sum) => numbers(&sum.data_points),
            Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    let labels = labels(&point.attributes);
                    all.insert(format!("{}_count {labels:?}", metric.name), point.count as f64);
                    all.insert(format!("{}_sum {labels:?}", metric.name), point.sum.unwrap());
                }
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_the_same_by_otlp_and_by_prometheus() {
    let (server, collector) = (some().await, Collector::start().await);
    let env = [
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
    ];
    let daemon = daemon(&server, &env).await;
    for _ in 0..7 {
        assert_eq!(daemon.client().get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
    }
    let last = || {
        collector.look(|kept| {
            kept.metrics.last().map(|message| samples_in(&message.resource_metrics[0].scope_metrics[0].metrics))
        })
    };
    let served = "informerd_http_requests_served_total {}";
    eventually("a reading after the reads", || last().is_some_and(|all| all[served] == 7.0)).await;
    // Of what moves by itself names alone are compared.
    let moving = [
        "process_",
        "informerd_otel_",
        "informerd_cache_silent",
        "informerd_cache_window_seconds",
        "informerd_upstream_requests",
        "informerd_bookmarks",
        "informerd_cache_",
        "informerd_spared_",
    ];
    // The daemon goes on between two readings: one of them is the same.
    let mut theirs = last().unwrap();
    let mut differ = Vec::new();
    for _ in 0..300 {
        let ours = samples_of(&daemon.metrics().await);
        theirs = last().unwrap();
        assert!(ours.len() > 100, "{}", ours.len());
        let still = |(series, _): &(&String, &f64)| !moving.iter().any(|prefix| series.starts_with(prefix));
        differ = ours
            .iter()
            .filter(still)
            .filter(|(series, value)| theirs.get(*series) != Some(value))
            .map(|(series, _)| series.clone())
            .collect();
        if differ.is_empty() && ours.keys().eq(theirs.keys()) {
            break;
        }
        differ.push("the names, or these values".to_owned());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(differ.is_empty(), "{differ:?}");
    let (name, one) = ("informerd_cache_objects", 2.0);
    assert!(theirs.iter().any(|(series, value)| series.starts_with(name) && *value == one), "{theirs:?}");
    assert_eq!(collector.spans().len(), 0, "traces were not asked for");
    // The last reading is sent at the end.
    let before = collector.look(|kept| kept.metrics.len());
    assert!(daemon.stop().await.success());
    assert!(collector.look(|kept| kept.metrics.len()) > before);
}
