use super::super::source::MadeUp;
use super::*;

const CERTIFICATE: &str = "/ca.crt";

fn loaded(variables: &[(&str, &str)]) -> (OtelConfig, Vec<String>, Vec<String>) {
    let pem = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let mut world = MadeUp::default().file(CERTIFICATE, &pem.cert.pem()).file("/key", &pem.signing_key.serialize_pem());
    for (name, value) in variables {
        world = world.variable(name, value);
    }
    let mut mistakes = Vec::new();
    let (config, warnings) = read(&world.file("/empty", ""), &mut mistakes);
    (config, mistakes.iter().map(ToString::to_string).collect(), warnings)
}

fn good(variables: &[(&str, &str)]) -> OtelConfig {
    let (config, mistakes, warnings) = loaded(variables);
    assert_eq!((mistakes, warnings), (vec![], vec![]), "{variables:?}");
    config
}

#[test]
fn nothing_is_exported_unless_asked_for() {
    assert_eq!(good(&[]), OtelConfig::default());
    let silent = [
        ("OTEL_SERVICE_NAME", ""),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", " "),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_TRACES_SAMPLER", "whatever, since nothing is sampled"),
    ];
    assert_eq!(good(&silent), OtelConfig::default());
    let off = [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")];
    assert_eq!(good(&off), OtelConfig::default());
    let metrics = good(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"), ("OTEL_TRACES_EXPORTER", "none")]);
    assert!(metrics.spans.is_none() && metrics.metrics.is_some());
    let spans = good(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1")]);
    assert!(spans.spans.is_some() && spans.metrics.is_none());
}

#[test]
fn defaults_are_those_of_the_specification() {
    let config = good(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_METRICS_EXPORTER", "otlp,prometheus")]);
    let (spans, metrics) = (config.spans.unwrap(), config.metrics.unwrap());
    assert_eq!(spans.target.endpoint, "http://localhost:4318/v1/traces");
    assert_eq!(metrics.target.endpoint, "http://localhost:4318/v1/metrics");
    assert_eq!((spans.target.protocol, spans.target.gzip), (Protocol::Http, false));
    assert_eq!((spans.sampler, spans.queue, spans.batch), (TraceSampler::ParentOrAll, 2048, 512));
    let seconds = Duration::from_secs;
    assert_eq!((spans.delay, spans.timeout, spans.target.timeout), (seconds(5), seconds(30), seconds(10)));
    assert_eq!((metrics.interval, metrics.timeout), (seconds(60), seconds(30)));
    let grpc = good(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!(grpc.spans.unwrap().target.endpoint, "http://localhost:4317");
}

#[test]
fn a_signals_own_variable_wins() {
    let config = good(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://all:1/base/"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://spans:2/as/it/is"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a, x=1"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x=2"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", CERTIFICATE),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", CERTIFICATE),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,k8s.pod.name=p%2Cq"),
        ("OTEL_SERVICE_NAME", "mine"),
    ]);
    let (spans, metrics) = (config.spans.unwrap(), config.metrics.unwrap());
    assert_eq!(spans.target.endpoint, "http://spans:2/as/it/is");
    assert_eq!(metrics.target.endpoint, "https://all:1/base/");
    assert_eq!((spans.target.protocol, metrics.target.protocol), (Protocol::Http, Protocol::Grpc));
    assert_eq!(
        (&spans.target.headers["authorization"], &metrics.target.headers["x"]),
        (&"Bearer a".parse().unwrap(), &"2".parse().unwrap())
    );
    assert!(!format!("{spans:?}").contains("Bearer"), "headers are not shown");
    assert_eq!((spans.target.gzip, metrics.target.gzip), (true, false));
    assert_eq!(spans.target.timeout, Duration::from_millis(250));
    assert!(spans.target.ca.is_some() && spans.target.client.is_some());
    assert_eq!((spans.sampler, spans.queue, spans.batch), (TraceSampler::ParentOrRatio(0.25), 100, 100));
    let text = |(name, value): &(String, String)| format!("{name}={value}");
    let resource: Vec<_> = config.resource.iter().map(text).collect();
    assert_eq!(resource, ["service.name=other", "k8s.pod.name=p,q", "service.name=mine"]);
}

#[test]
fn every_mistake_is_told_once() {
    let all = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "want http://HOST:PORT or https://HOST:PORT"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "none of grpc, http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "want NAME=VALUE"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "want milliseconds"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "none of gzip, none"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/empty", "/empty: there is no certificate in it"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key", "needs its certificate beside it"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "none of always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", "from 0 to 1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10", ""),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "20", "more than the 10"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "want milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "-1", "want milliseconds"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x", "NAME=VALUE"),
        ("OTEL_LOGS_EXPORTER", "otlp", ""),
        ("OTEL_PROPAGATORS", "tracecontext,b3", ""),
    ];
    let (_, mistakes, warnings) = loaded(&all.map(|(name, value, _)| (name, value)));
    for (name, _, words) in all.into_iter().filter(|(.., words)| !words.is_empty()) {
        let told: Vec<_> = mistakes.iter().filter(|line| line.starts_with(&format!("{name}: "))).collect();
        assert!(told.len() == 1 && told[0].contains(words), "{name}: {told:?}");
    }
    assert_eq!(mistakes.len(), 13, "{mistakes:#?}");
    assert!(!mistakes.iter().any(|line| line.contains("secret")), "a header may be one");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let (_, mistakes, _) = loaded(&[("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_SDK_DISABLED", "yes")]);
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}

#[test]
fn an_endpoint_with_a_password_is_refused_without_telling_it() {
    for endpoint in ["http://u:s3cret@c:4318", "u:s3cret@c:4317", "http:/u:s3cret@c", "https://s3cret@c/v1/traces"] {
        for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
            let (config, mistakes, _) = loaded(&[(name, endpoint)]);
            assert!(mistakes.len() == 1 && mistakes[0].contains("OTEL_EXPORTER_OTLP_HEADERS"), "{mistakes:?}");
            assert!(!mistakes[0].contains("s3cret") && !format!("{config:?}").contains("s3cret"), "{mistakes:?}");
        }
    }
}
