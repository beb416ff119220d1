//! The threads on which connections of clients are served: their numbers, and how many a host has.
//!
//! Each thread has its own pool of an HTTP client, for example; the pools are found by the number of the thread.

use std::cell::Cell;
#[cfg(feature = "server")]
use std::thread::available_parallelism;

/// The most threads that a host has for connections.
pub(crate) const MOST: usize = 32;
/// The most threads that it has unless the config says a number.
#[cfg(feature = "server")]
const USUAL: usize = 8;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of the current thread, from 0 to `MOST - 1`: 0 unless [`set_number`] gave it another.
pub(crate) fn number() -> usize {
    NUMBER.get()
}

/// Sets the number of the current thread, below `MOST`.
#[cfg(feature = "server")]
pub(crate) fn set_number(number: usize) {
    NUMBER.set(number);
}

/// Returns how many threads a host has for connections unless the config says a number: one on one or two cores, where
/// clients and servers run, too, else one for each core, and 8 at most.
#[cfg(feature = "server")]
pub(crate) fn usual() -> usize {
    match available_parallelism().map_or(1, usize::from) {
        0..=2 => 1,
        cores => cores.min(USUAL),
    }
}
