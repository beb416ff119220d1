//! Limits the log records that a server can cause: a flood is counted, not written (`docs/hazards.md` H98).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::output::Output;

/// How many records per second may name one server.
const OF_A_SERVER: u32 = 100;
/// How many records per second may name no server.
const OF_NOBODY: u32 = 1000;
/// How many servers are counted separately; their names come from the config.
const SERVERS: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// Passes a limited number of records per second for each server.
pub(super) struct Shares {
    output: Output,
    seconds: Mutex<HashMap<Box<str>, Share>>,
}

/// The records of one server in the current second.
#[derive(Clone, Copy, Debug)]
struct Share {
    since: Instant,
    seen: u32,
    dropped: u64,
}

impl Shares {
    pub(super) fn new(output: Output) -> Self {
        Self { output, seconds: Mutex::default() }
    }
}

impl<S: Subscriber> Layer<S> for Shares {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let mut named = Named::default();
        event.record(&mut named);
        let (passes, dropped) = {
            let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
            let full = seconds.len() >= SERVERS;
            let name = named.0.filter(|name| !full || seconds.contains_key(&**name)).unwrap_or_default();
            let limit = if name.is_empty() { OF_NOBODY } else { OF_A_SERVER };
            let now = Instant::now();
            let share = seconds.entry(name.into()).or_insert(Share { since: now, seen: 0, dropped: 0 });
            share.take(now, limit)
        };
        if dropped > 0 {
            self.output.talk(&format!("log: {dropped} records like the next one were dropped: too many in a second"));
        }
        passes
    }
}

impl Share {
    /// Returns whether a record may pass, and how many were dropped in the second before.
    fn take(&mut self, now: Instant, limit: u32) -> (bool, u64) {
        let mut dropped = 0;
        if now.saturating_duration_since(self.since) >= SECOND {
            dropped = self.dropped;
            *self = Self { since: now, seen: 0, dropped: 0 };
        }
        self.seen = self.seen.saturating_add(1);
        let passes = self.seen <= limit;
        self.dropped += u64::from(!passes);
        (passes, dropped)
    }
}

/// The server that a record names.
#[derive(Debug, Default)]
struct Named(Option<String>);

impl Visit for Named {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "server" {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "server" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h98_a_flood_is_counted_and_not_written() {
        let now = Instant::now();
        let mut share = Share { since: now, seen: 0, dropped: 0 };
        let passed = (0..250).filter(|_| share.take(now, OF_A_SERVER).0).count();
        assert_eq!(passed, 100);
        assert_eq!(share.take(now + SECOND, OF_A_SERVER), (true, 150));
        assert_eq!(share.take(now + SECOND, OF_A_SERVER), (true, 0));
    }
}
