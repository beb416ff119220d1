//! Metrics: how long calls take at the door, how long requests to servers take, and how long sessions at both sides
//! last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Histogram, HistogramDataPoint, Metric};

use super::names;
use super::spans::{Done, nanos, network, text};
use crate::counts::{Buckets, Counts, DURATIONS};
use crate::lock::lock;
use crate::protocol::Method;
use crate::traced::Attempt;

/// The most series of one metric. Further ones are left out.
const SERIES: usize = 1000;

/// One series: method, server, and kind of failure.
type Key = (&'static str, Option<Arc<str>>, Option<String>);

#[derive(Debug, Default)]
struct Times {
    count: u64,
    sum: f64,
    buckets: [u64; DURATIONS.len() + 1],
}

/// Calls at the door, and requests to servers.
#[derive(Debug, Default)]
struct Operations {
    doors: BTreeMap<Key, Times>,
    servers: BTreeMap<Key, Times>,
}

/// All durations since the start.
#[derive(Debug)]
pub(super) struct Durations {
    since: SystemTime,
    operations: Mutex<Operations>,
    /// The counters of sessions, which are counted where the sessions end.
    counts: Counts,
}

impl Durations {
    pub(super) fn new(since: SystemTime, counts: Counts) -> Self {
        Self { since, operations: Mutex::default(), counts }
    }

    /// Adds a call and its attempts.
    pub(super) fn add(&self, done: &Done) {
        let mut operations = lock(&self.operations);
        match done {
            Done::Call(called, attempts, _) => {
                let method = word(&called.method);
                add(&mut operations.doors, (method, called.server.clone(), called.error.clone()), called.took);
                attempts.iter().for_each(|attempt| operations.attempted(method, attempt));
            }
            Done::Late(called, attempt) => operations.attempted(word(&called.method), attempt),
        }
    }

    /// Returns the metrics that have values.
    pub(super) fn metrics(&self, now: SystemTime) -> Vec<Metric> {
        let of_calls = |series: &BTreeMap<Key, Times>| {
            series.iter().map(|(key, times)| self.point(key, times, now)).collect::<Vec<_>>()
        };
        // Several doors have the same transport, and so share a series.
        let mut sessions: BTreeMap<(&str, &str), Buckets> = BTreeMap::new();
        for ((door, revision), lasted) in self.counts.sessions() {
            sessions.entry((network(door), revision)).or_default().join(lasted);
        }
        let clients = sessions.into_iter().map(|((network, revision), lasted)| {
            self.session(vec![text(names::REVISION, revision), text(names::NETWORK, network)], &lasted, now)
        });
        let servers = self.counts.servers().into_iter().filter_map(|(server, counts)| {
            Some(self.session(vec![text(names::SERVER, &server)], &counts.sessions()?, now))
        });
        let operations = lock(&self.operations);
        let all = [
            (names::SERVER_DURATION, "How long calls of clients take.", of_calls(&operations.doors)),
            (names::CLIENT_DURATION, "How long requests to servers take.", of_calls(&operations.servers)),
            (names::SERVER_SESSION, "How long sessions of clients lasted.", clients.collect()),
            (names::CLIENT_SESSION, "How long connections to servers lasted.", servers.collect()),
        ];
        let metric = |(name, description, data_points): (&str, &str, Vec<HistogramDataPoint>)| Metric {
            name: name.to_owned(),
            description: description.to_owned(),
            unit: "s".to_owned(),
            data: Some(Data::Histogram(Histogram {
                data_points,
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            })),
            ..Metric::default()
        };
        all.into_iter().filter(|(_, _, points)| !points.is_empty()).map(metric).collect()
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

    fn session(&self, attributes: Vec<KeyValue>, lasted: &Buckets, now: SystemTime) -> HistogramDataPoint {
        let bounds = lasted.counts.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
        HistogramDataPoint {
            attributes,
            start_time_unix_nano: nanos(self.since),
            time_unix_nano: nanos(now),
            count: lasted.count(),
            sum: Some(lasted.sum),
            bucket_counts: lasted.counts.iter().map(|(_, count)| *count).collect(),
            explicit_bounds: bounds.collect(),
            ..HistogramDataPoint::default()
        }
    }
}

impl Operations {
    fn attempted(&mut self, method: &'static str, attempt: &Attempt) {
        let key = (method, Some(attempt.sent.server.clone()), attempt.error.clone());
        add(&mut self.servers, key, attempt.took.unwrap_or_default());
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

/// Returns the name of a method. Clients could make up names of extensions, and each would become a series.
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
