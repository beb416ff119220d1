//! Metrics: how long calls take at the door, and how long requests to servers take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Histogram, HistogramDataPoint, Metric};

use super::names;
use super::spans::{Done, nanos, text};
use crate::counts::DURATIONS;
use crate::protocol::Method;

/// The most series of one metric. What comes later is left out.
const SERIES: usize = 1000;

/// One series: method, server, and kind of failure.
type Key = (&'static str, Option<Arc<str>>, Option<String>);

#[derive(Debug, Default)]
struct Times {
    count: u64,
    sum: f64,
    buckets: [u64; DURATIONS.len() + 1],
}

/// All durations since the start.
#[derive(Debug)]
pub(super) struct Durations {
    since: SystemTime,
    doors: BTreeMap<Key, Times>,
    servers: BTreeMap<Key, Times>,
}

impl Durations {
    pub(super) fn new(since: SystemTime) -> Self {
        Self { since, doors: BTreeMap::new(), servers: BTreeMap::new() }
    }

    /// Adds a call and its attempts.
    pub(super) fn add(&mut self, done: &Done) {
        let method = word(&done.method);
        add(&mut self.doors, (method, done.server.clone(), done.error.clone()), done.took);
        for attempt in &done.attempts {
            let key = (method, Some(attempt.server.clone()), attempt.error.clone());
            add(&mut self.servers, key, attempt.took.unwrap_or_default());
        }
    }

    /// Returns the metrics that have values.
    pub(super) fn metrics(&self, now: SystemTime) -> Vec<Metric> {
        let all = [
            (names::SERVER_DURATION, "How long calls of clients take.", &self.doors),
            (names::CLIENT_DURATION, "How long requests to servers take.", &self.servers),
        ];
        let metric = |(name, description, series): (&str, &str, &BTreeMap<Key, Times>)| Metric {
            name: name.to_owned(),
            description: description.to_owned(),
            unit: "s".to_owned(),
            data: Some(Data::Histogram(Histogram {
                data_points: series.iter().map(|(key, times)| self.point(key, times, now)).collect(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            })),
            ..Metric::default()
        };
        all.into_iter().filter(|(_, _, series)| !series.is_empty()).map(metric).collect()
    }

    fn point(&self, (method, server, error): &Key, times: &Times, now: SystemTime) -> HistogramDataPoint {
        let mut attributes = vec![text(names::METHOD, method)];
        attributes.extend(server.as_ref().map(|server| text(names::SERVER, server)));
        attributes.extend(error.as_ref().map(|error| text(names::ERROR, error)));
        let seconds = |bound: u64| Duration::from_nanos(bound).as_secs_f64();
        HistogramDataPoint {
            attributes,
            start_time_unix_nano: nanos(self.since),
            time_unix_nano: nanos(now),
            count: times.count,
            sum: Some(times.sum),
            bucket_counts: times.buckets.to_vec(),
            explicit_bounds: DURATIONS.into_iter().map(seconds).collect(),
            ..HistogramDataPoint::default()
        }
    }
}

fn add(series: &mut BTreeMap<Key, Times>, key: Key, took: Duration) {
    if series.len() >= SERIES && !series.contains_key(&key) {
        return;
    }
    let times = series.entry(key).or_default();
    times.count += 1;
    times.sum += took.as_secs_f64();
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let at = DURATIONS.iter().position(|bound| nanos <= *bound).unwrap_or(DURATIONS.len());
    times.buckets[at] += 1;
}

/// Returns the name of a method. That of an extension is a client's text, and would be a series of its own.
fn word(method: &Method) -> &'static str {
    match method {
        Method::ToolsCall => "tools/call",
        Method::PromptsGet => "prompts/get",
        Method::ResourcesRead => "resources/read",
        Method::ResourcesSubscribe => "resources/subscribe",
        Method::Complete => "completion/complete",
        Method::TasksResult => "tasks/result",
        Method::TasksCancel => "tasks/cancel",
        Method::TasksUpdate => "tasks/update",
        _ => "_OTHER",
    }
}
