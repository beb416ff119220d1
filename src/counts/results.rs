//! Counts the bytes of tools' results that clients got, by the view that they use: what results cost in prompts.
//!
//! **Invariant:** a result for a client that has chosen no view costs one addition. What a script got is in no prompt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// Who gets the result of a call, unless it is a client that has chosen no view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A client with this view.
    View(Arc<str>),
    /// A script.
    Script,
}

/// Bytes of results.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Of clients that have chosen no view.
    of_default: AtomicU64,
    /// Of the others, by view. There are as many as the config has views.
    of_views: Mutex<BTreeMap<Arc<str>, u64>>,
}

impl Given {
    /// Counts a result; without a reader, of a client that has chosen no view.
    pub(super) fn add(&self, reader: Option<&Reader>, bytes: usize) {
        let bytes = bytes as u64;
        match reader {
            None => {
                self.of_default.fetch_add(bytes, Ordering::Relaxed);
            }
            Some(Reader::View(view)) => *lock(&self.of_views).entry(view.clone()).or_default() += bytes,
            Some(Reader::Script) => {}
        }
    }

    /// Returns what clients with this view got. `is_default` says whether clients that have chosen none have it.
    pub(super) fn of(&self, view: &str, is_default: bool) -> u64 {
        let of_default = if is_default { self.of_default.load(Ordering::Relaxed) } else { 0 };
        of_default + lock(&self.of_views).get(view).copied().unwrap_or_default()
    }

    /// Returns what all clients got.
    pub(super) fn all(&self) -> u64 {
        self.of_default.load(Ordering::Relaxed) + lock(&self.of_views).values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_count_for_the_view_of_their_client_and_not_for_scripts() {
        let given = Given::default();
        let view = |name: &str| Reader::View(name.into());
        given.add(None, 5);
        given.add(Some(&view("a")), 20);
        given.add(Some(&view("b")), 100);
        given.add(Some(&Reader::Script), 1000);
        assert_eq!((given.of("a", false), given.of("a", true), given.of("none", false), given.all()), (20, 25, 0, 125));
    }
}
