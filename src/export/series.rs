//! The series of one family: each is a set of labels with a value.

use std::fmt;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::process::Process;
use super::scrape::Scrape;
use crate::counts::Buckets;

/// Everything that the families read.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) scrape: Scrape,
    pub(super) process: Process,
}

/// Writes the series of one family.
pub(super) struct Series<'a> {
    metric: MetricEncoder<'a>,
    kind: MetricType,
}

/// Labels with their values.
type Labels<'a> = &'a [(&'static str, &'a str)];

impl<'a> Series<'a> {
    /// Creates a writer for a family of this kind.
    pub(super) fn new(metric: MetricEncoder<'a>, kind: MetricType) -> Self {
        Self { metric, kind }
    }

    /// Writes a whole number.
    pub(super) fn count(&mut self, labels: Labels<'_>, value: u64) -> fmt::Result {
        let kind = self.kind;
        self.with(labels, |metric| match kind {
            MetricType::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
            _ => metric.encode_gauge(&value),
        })
    }

    /// Writes a number.
    pub(super) fn number(&mut self, labels: Labels<'_>, value: f64) -> fmt::Result {
        let kind = self.kind;
        self.with(labels, |metric| match kind {
            MetricType::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
            _ => metric.encode_gauge(&value),
        })
    }

    /// Writes a histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, of: &Buckets) -> fmt::Result {
        self.with(labels, |metric| metric.encode_histogram::<NoLabelSet>(of.sum, of.count(), &of.counts, None))
    }

    /// Writes a series whose labels are the information.
    pub(super) fn info(&mut self, labels: Labels<'_>) -> fmt::Result {
        self.metric.encode_info(&labels)
    }

    fn with(&mut self, labels: Labels<'_>, write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result) -> fmt::Result {
        if labels.is_empty() { write(&mut self.metric) } else { write(&mut self.metric.encode_family(&labels)?) }
    }
}
