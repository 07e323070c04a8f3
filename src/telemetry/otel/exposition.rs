//! The metrics for OTLP, read from the exposition that Prometheus gets: one registry, one set of names and values.
//!
//! The mapping is the one of OpenTelemetry's compatibility specification; counters keep their suffix `_total`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

type Labels = Vec<(String, String)>;

/// One line of the exposition.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: Labels,
    value: &'a str,
}

/// What its comments say of a family, and its lines.
#[derive(Debug, Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    samples: Vec<Sample<'a>>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// Upper bound and cumulative count, in order; the last one is infinite.
    counts: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

/// All metrics of an exposition that has at least one line.
pub(super) fn metrics(exposition: &str, started: SystemTime, now: SystemTime) -> Vec<Metric> {
    let times = (nanos(started), nanos(now));
    families(exposition).into_iter().filter(|family| !family.samples.is_empty()).map(|f| f.metric(times)).collect()
}

fn families(exposition: &str) -> Vec<Family<'_>> {
    let mut all: Vec<Family<'_>> = Vec::new();
    for line in exposition.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else { continue };
            if all.last().is_none_or(|family| family.name != name) {
                all.push(Family { name, ..Family::default() });
            }
            match (all.last_mut(), what) {
                (Some(family), "HELP") => family.help = rest.trim_end_matches('.'),
                (Some(family), "TYPE") => family.kind = rest,
                _ => {}
            }
        } else if let (Some(family), Some(sample)) = (all.last_mut(), Sample::parse(line)) {
            family.samples.push(sample);
        }
    }
    all
}

fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    let one = |(name, value): &(String, String)| KeyValue {
        key: name.clone(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.clone())) }),
        ..KeyValue::default()
    };
    labels.iter().map(one).collect()
}

// === impl Sample ===

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Labels::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while let Some((label, value)) = rest.split_once("=\"") {
                let (value, after) = unquoted(value)?;
                labels.push((label.trim_start_matches(',').to_owned(), value));
                rest = after;
                if rest.starts_with('}') {
                    break;
                }
            }
            rest = rest.strip_prefix('}')?;
        }
        Some(Self { name, labels, value: rest.trim_start().split(' ').next()? })
    }

    fn number(&self) -> f64 {
        match self.value {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            text => text.parse().unwrap_or(f64::NAN),
        }
    }
}

/// A label's value, and what comes after its closing quote.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

// === impl Family ===

impl Family<'_> {
    fn metric(self, times: (u64, u64)) -> Metric {
        let cumulative = AggregationTemporality::Cumulative.into();
        let (name, data) = match self.kind {
            "counter" => {
                let data_points = self.points(times);
                let sum = Sum { data_points, aggregation_temporality: cumulative, is_monotonic: true };
                (format!("{}_total", self.name), Data::Sum(sum))
            }
            "info" => {
                let data_points = self.points(times);
                let sum = Sum { data_points, aggregation_temporality: cumulative, is_monotonic: false };
                (format!("{}_info", self.name), Data::Sum(sum))
            }
            "histogram" => {
                let data_points = self.histograms(times);
                let histogram = Histogram { data_points, aggregation_temporality: cumulative };
                (self.name.to_owned(), Data::Histogram(histogram))
            }
            _ => (self.name.to_owned(), Data::Gauge(Gauge { data_points: self.points((0, times.1)) })),
        };
        Metric { name, description: self.help.to_owned(), data: Some(data), ..Metric::default() }
    }

    fn points(&self, (start_time_unix_nano, time_unix_nano): (u64, u64)) -> Vec<NumberDataPoint> {
        let point = |sample: &Sample<'_>| NumberDataPoint {
            attributes: attributes(&sample.labels),
            start_time_unix_nano,
            time_unix_nano,
            value: Some(match sample.value.parse() {
                Ok(whole) => number_data_point::Value::AsInt(whole),
                Err(_) => number_data_point::Value::AsDouble(sample.number()),
            }),
            ..NumberDataPoint::default()
        };
        self.samples.iter().map(point).collect()
    }

    fn histograms(&self, (start_time_unix_nano, time_unix_nano): (u64, u64)) -> Vec<HistogramDataPoint> {
        let mut series: BTreeMap<Labels, Buckets> = BTreeMap::new();
        for sample in &self.samples {
            let (bounds, labels): (Labels, Labels) =
                sample.labels.iter().cloned().partition(|(label, _)| label == "le");
            let buckets = series.entry(labels).or_default();
            let count = || sample.value.parse().unwrap_or(0);
            match sample.name.strip_prefix(self.name) {
                Some("_sum") => buckets.sum = sample.number(),
                Some("_count") => buckets.count = count(),
                _ => {
                    let bound = bounds.first().map_or("", |(_, bound)| bound.as_str());
                    buckets.counts.push((bound.parse().unwrap_or(f64::INFINITY), count()));
                }
            }
        }
        let point = |(labels, buckets): (Labels, Buckets)| {
            let mut before = 0;
            let each = |(_, count): &(f64, u64)| {
                let own = count.saturating_sub(before);
                before = *count;
                own
            };
            let bucket_counts = buckets.counts.iter().map(each).collect();
            let finite = |(bound, _): &(f64, u64)| bound.is_finite().then_some(*bound);
            HistogramDataPoint {
                attributes: attributes(&labels),
                start_time_unix_nano,
                time_unix_nano,
                count: buckets.count,
                sum: Some(buckets.sum),
                bucket_counts,
                explicit_bounds: buckets.counts.iter().filter_map(finite).collect(),
                ..HistogramDataPoint::default()
            }
        };
        series.into_iter().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_build Which.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
        # HELP n Requests.\n# TYPE n counter\nn_total{a=\"x\\\"y\\\\z\\n{\",b=\"\"} 42\nn_total{a=\"\",b=\"2\"} 0.5\n\
        # HELP g Now.\n# TYPE g gauge\ng 7.0\n\
        # HELP empty Nothing.\n# TYPE empty gauge\n\
        # HELP h Time.\n# TYPE h histogram\nh_sum{q=\"w\"} 1.5\nh_count{q=\"w\"} 3\nh_bucket{le=\"0.1\",q=\"w\"} 1\n\
        h_bucket{le=\"1.0\",q=\"w\"} 3\nh_bucket{le=\"+Inf\",q=\"w\"} 3\n# EOF\n";

    fn texts(attributes: &[KeyValue]) -> Vec<(String, String)> {
        let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.clone()) {
            Some(Value::StringValue(text)) => text,
            other => panic!("{other:?}"),
        };
        attributes.iter().map(|pair| (pair.key.clone(), text(&pair.value))).collect()
    }

    #[test]
    fn every_kind_has_its_place() {
        let (start, now) = (UNIX_EPOCH + std::time::Duration::from_secs(1), UNIX_EPOCH);
        let all = metrics(TEXT, start, now);
        let names: Vec<_> = all.iter().map(|metric| (metric.name.as_str(), metric.description.as_str())).collect();
        assert_eq!(names, [("a_build_info", "Which"), ("n_total", "Requests"), ("g", "Now"), ("h", "Time")]);
        let [info, counter, gauge, histogram] = &all[..] else { panic!("four") };
        assert!(matches!(&info.data, Some(Data::Sum(sum)) if !sum.is_monotonic));
        let Some(Data::Sum(sum)) = &counter.data else { panic!("a sum") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let [first, second] = &sum.data_points[..] else { panic!("two points") };
        assert_eq!(texts(&first.attributes)[0].1, "x\"y\\z\n{");
        assert_eq!(first.value, Some(number_data_point::Value::AsInt(42)));
        assert_eq!(first.start_time_unix_nano, 1_000_000_000);
        assert_eq!(texts(&second.attributes), [("a".into(), String::new()), ("b".into(), "2".into())]);
        assert_eq!(second.value, Some(number_data_point::Value::AsDouble(0.5)));
        let Some(Data::Gauge(gauge)) = &gauge.data else { panic!("a gauge") };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(7.0)));
        let Some(Data::Histogram(histogram)) = &histogram.data else { panic!("a histogram") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(1.5)));
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 2, 0][..], &[0.1, 1.0][..]));
        assert_eq!(texts(&point.attributes), [("q".into(), "w".into())]);
    }

    #[test]
    fn lines_that_are_none_are_left_out() {
        for line in ["", "x", "x{a=\"b} 1", "x{a=\"b\" 1"] {
            assert_eq!(Sample::parse(line), None, "{line}");
        }
        let sample = Sample::parse("x{a=\"b,c}\"} 1 1700000000").unwrap();
        assert_eq!((sample.labels, sample.value), (vec![("a".to_owned(), "b,c}".to_owned())], "1"));
    }
}
