//! Counts durations in fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets for whole calls, in nanoseconds: 1, 2.5 and 5 ms, and those of the semantic
/// conventions for MCP, from 10 ms to 300 s.
pub(crate) const DURATIONS: [u64; 17] = [
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
];

/// The upper bounds of the buckets for the time that a call spends in the host, in nanoseconds: 25 us to 100 ms.
pub(crate) const OVERHEADS: [u64; 9] =
    [25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000, 100_000_000];

/// How many durations fell into each bucket. Counting one takes two additions.
#[derive(Debug)]
pub(crate) struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    buckets: [AtomicU64; N],
    /// The number of durations above the last bound.
    above: AtomicU64,
    /// The sum of all durations, in nanoseconds.
    sum: AtomicU64,
}

/// A snapshot of a histogram: the count of each bucket, by its upper bound in seconds; the last bound is infinite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Buckets {
    pub(crate) counts: Vec<(f64, u64)>,
    pub(crate) sum: f64,
}

impl Buckets {
    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Adds the counts of another histogram with the same bounds.
    #[cfg(feature = "otel")]
    pub(crate) fn join(&mut self, other: Self) {
        self.sum += other.sum;
        match self.counts.is_empty() {
            true => self.counts = other.counts,
            false => self.counts.iter_mut().zip(other.counts).for_each(|((_, count), (_, more))| *count += more),
        }
    }
}

impl<const N: usize> Histogram<N> {
    pub(crate) fn new(bounds: &'static [u64; N]) -> Self {
        Self { bounds, buckets: [const { AtomicU64::new(0) }; N], above: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Counts a duration.
    pub(crate) fn add(&self, time: Duration) {
        let nanos = nanos(time);
        // Most durations are in one of the first buckets.
        let at = self.bounds.iter().position(|bound| nanos <= *bound);
        at.map_or(&self.above, |at| &self.buckets[at]).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Reports whether no duration was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.iter().chain([&self.above]).all(|bucket| bucket.load(Ordering::Relaxed) == 0)
    }

    /// Returns a snapshot. A duration that is added meanwhile may be in the sum but in no bucket.
    pub(crate) fn read(&self) -> Buckets {
        let bounds = self.bounds.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let counts = self.buckets.iter().chain([&self.above]).map(|bucket| bucket.load(Ordering::Relaxed));
        Buckets { counts: bounds.zip(counts).collect(), sum: seconds(self.sum.load(Ordering::Relaxed)) }
    }
}

/// Converts a duration to nanoseconds, at most 584 years.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "104 days have nanoseconds that a float holds exactly, and all bounds are whole"
)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_is_no_smaller() {
        let histogram = Histogram::new(&OVERHEADS);
        assert!(histogram.is_empty());
        for micros in [0, 25, 26, 100_000, 100_001, 5_000_000] {
            histogram.add(Duration::from_micros(micros));
        }
        let read = histogram.read();
        let counts: Vec<u64> = read.counts.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!((read.count(), read.sum), (6, 5.200_052));
        assert_eq!((read.counts[0].0, read.counts[8].0, read.counts[9].0), (25e-6, 0.1, f64::INFINITY));
    }

    #[test]
    fn bounds_rise() {
        assert!(DURATIONS.is_sorted() && OVERHEADS.is_sorted());
    }
}
