//! The feed of a world: each event is valid under the schema of feeds, and the numbers have no gap.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use jsonschema::Validator;
use serde_json::Value;

use super::tale::Tale;
use crate::record::{Arguments, At, Read, Wanted, Watcher};
use crate::router::Router;

/// How many events all worlds had so far.
static TOLD: AtomicUsize = AtomicUsize::new(0);

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("../../../record/feed.schema.json")).unwrap();
    jsonschema::validator_for(&schema).unwrap()
});

/// The feed of a world.
pub(super) struct Feed(Watcher);

/// Returns how many events all worlds had so far.
pub(super) fn so_far() -> usize {
    TOLD.load(Ordering::Relaxed)
}

impl Feed {
    /// Begins to watch a world that has just begun.
    pub(super) fn open(router: &Router) -> Self {
        let record = router.manager().record();
        record.open();
        let watcher = record.watch(At::Socket, Arguments::Shape).unwrap();
        // Calls are kept from now on.
        watcher.settle(SystemTime::now());
        router.observer().tell(vec![std::sync::Arc::new(record.clone())]);
        Self(watcher)
    }

    /// Checks all events that are still kept.
    pub(super) fn check(&self, tale: &Tale) {
        let wanted = Wanted { arguments: Arguments::Shape, ..Wanted::default() };
        let mut seq = self.0.dropped();
        while let Read::Events(events) = self.0.after(seq, usize::MAX, u64::MAX) {
            if events.is_empty() {
                return;
            }
            for event in events {
                seq += 1;
                if event.seq != seq {
                    tale.fault(format!("event {} of the feed comes after {}", event.seq, seq - 1));
                }
                let mut line = Vec::new();
                event.write(&mut line, &wanted, str::to_owned);
                let shown: Value = serde_json::from_slice(&line).unwrap_or_default();
                if let Some(wrong) = SCHEMA.iter_errors(&shown).next() {
                    tale.fault(format!("{shown} is no event of a feed: {wrong}"));
                }
                TOLD.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
