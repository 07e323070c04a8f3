//! Converts the metric families of the registry to OTLP, with the same names and values as for Prometheus.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Text;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as prometheus;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{LabelPair, MetricFamily, MetricType};

/// Converts all families that have at least one series. Times are in nanoseconds since 1970.
pub(super) fn metrics(families: Vec<MetricFamily>, started: u64, now: u64) -> Vec<Metric> {
    let some = families.into_iter().filter(|family| !family.metric.is_empty());
    some.map(|family| metric(family, started, now)).collect()
}

fn metric(family: MetricFamily, started: u64, now: u64) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let kind = family.r#type();
    let series = family.metric.into_iter();
    let data = match kind {
        MetricType::Counter => {
            let data_points = series.map(|one| number(one, started, now)).collect();
            Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
        }
        MetricType::Histogram => {
            let data_points = series.map(|one| distribution(one, started, now)).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality })
        }
        // A gauge has no start time.
        _ => Data::Gauge(Gauge { data_points: series.map(|one| number(one, 0, now)).collect() }),
    };
    let description = family.help.trim_end_matches('.').to_owned();
    Metric { name: family.name, description, data: Some(data), ..Metric::default() }
}

fn number(series: prometheus::Metric, start_time_unix_nano: u64, time_unix_nano: u64) -> NumberDataPoint {
    let value = series.counter.map(|counter| counter.value).or(series.gauge.map(|gauge| gauge.value));
    NumberDataPoint {
        attributes: attributes(series.label),
        start_time_unix_nano,
        time_unix_nano,
        value: value.map(Value::AsDouble),
        ..NumberDataPoint::default()
    }
}

/// Buckets are cumulative in Prometheus but not in OTLP. The last bucket has no bound.
fn distribution(series: prometheus::Metric, start_time_unix_nano: u64, time_unix_nano: u64) -> HistogramDataPoint {
    let histogram = series.histogram.unwrap_or_default();
    let cumulative = histogram.bucket.iter().map(|bucket| bucket.cumulative_count);
    let before = std::iter::once(0).chain(cumulative.clone());
    let bounds = histogram.bucket.iter().map(|bucket| bucket.upper_bound);
    HistogramDataPoint {
        attributes: attributes(series.label),
        start_time_unix_nano,
        time_unix_nano,
        count: histogram.sample_count,
        sum: Some(histogram.sample_sum),
        bucket_counts: cumulative.zip(before).map(|(count, before)| count.saturating_sub(before)).collect(),
        explicit_bounds: bounds.take(histogram.bucket.len().saturating_sub(1)).collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: Vec<LabelPair>) -> Vec<KeyValue> {
    let one = |label: LabelPair| KeyValue {
        key: label.name,
        value: Some(AnyValue { value: Some(Text::StringValue(label.value)) }),
        ..KeyValue::default()
    };
    labels.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_protobuf;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge as Level;
    use prometheus_client::metrics::histogram::Histogram as Observed;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Registry;

    use super::*;

    fn texts(attributes: &[KeyValue]) -> Vec<(&str, &str)> {
        let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Text::StringValue(text)) => text.clone().leak(),
            other => panic!("{other:?}"),
        };
        attributes.iter().map(|pair| (pair.key.as_str(), &*text(&pair.value))).collect()
    }

    #[test]
    fn every_kind_has_its_place() {
        let mut registry = Registry::default();
        registry.register("a_build", "Which", Info::new(vec![("v", "1")]));
        let requests = Family::<Vec<(&str, &str)>, Counter>::default();
        requests.get_or_create(&vec![("a", "x\"y\n{"), ("b", "")]).inc_by(42);
        registry.register("n", "Requests", requests);
        let level = Level::<i64>::default();
        level.set(-7);
        registry.register("g", "Now", level);
        registry.register("empty", "Nothing", Family::<Vec<(&str, &str)>, Counter>::default());
        let times = Observed::new([0.5, 1.0]);
        [0.25, 0.75, 1.0].into_iter().for_each(|time| times.observe(time));
        registry.register("h", "Time", times);
        let all = metrics(prometheus_protobuf::encode(&registry).unwrap(), 1, 2);
        let names: Vec<_> = all.iter().map(|metric| (metric.name.as_str(), metric.description.as_str())).collect();
        assert_eq!(names, [("a_build_info", "Which"), ("n_total", "Requests"), ("g", "Now"), ("h", "Time")]);
        let [info, counter, gauge, histogram] = &all[..] else { panic!("four") };
        let Some(Data::Gauge(info)) = &info.data else { panic!("a gauge") };
        assert_eq!(texts(&info.data_points[0].attributes), [("v", "1")]);
        assert_eq!(info.data_points[0].value, Some(Value::AsDouble(1.0)));
        let Some(Data::Sum(sum)) = &counter.data else { panic!("a sum") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!(texts(&point.attributes), [("a", "x\"y\n{"), ("b", "")]);
        let at = (point.start_time_unix_nano, point.time_unix_nano);
        assert_eq!((point.value, at), (Some(Value::AsDouble(42.0)), (1, 2)));
        let Some(Data::Gauge(gauge)) = &gauge.data else { panic!("a gauge") };
        let point = &gauge.data_points[0];
        assert_eq!((point.value, point.start_time_unix_nano), (Some(Value::AsDouble(-7.0)), 0));
        let Some(Data::Histogram(histogram)) = &histogram.data else { panic!("a histogram") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(2.0)));
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 2, 0][..], &[0.5, 1.0][..]));
    }
}
