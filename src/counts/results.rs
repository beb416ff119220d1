//! Counts the bytes of tools' results, by the view of the client that got them: the cost of results in prompts.
//!
//! **Invariant:** a result for a client that has chosen no view costs one addition. Results for scripts are in no
//! prompt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// Who gets the result of a call. Clients that have chosen no view have no reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A client with this view.
    View(Arc<str>),
    /// A script.
    Script,
}

/// The bytes of results.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// The bytes for clients that have chosen no view.
    of_default: AtomicU64,
    /// The bytes for other clients, by view. There are at most as many entries as views in the config.
    of_views: Mutex<BTreeMap<Arc<str>, u64>>,
}

impl Given {
    /// Counts a result; `None` as reader is a client that has chosen no view.
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

    /// Returns the bytes for clients with this view. `is_default` says whether this is the view of clients that choose
    /// none.
    pub(super) fn of(&self, view: &str, is_default: bool) -> u64 {
        let of_default = if is_default { self.of_default.load(Ordering::Relaxed) } else { 0 };
        of_default + lock(&self.of_views).get(view).copied().unwrap_or_default()
    }

    /// Returns the bytes for all clients.
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
