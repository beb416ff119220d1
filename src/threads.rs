//! The threads on which connections of clients are served: their numbers, and how many a host has.
//!
//! Some things exist once per thread, such as the pools of an HTTP client; they are found by the thread's number.

use std::cell::Cell;
#[cfg(feature = "server")]
use std::thread::available_parallelism;

/// The most threads that a host uses for connections.
pub(crate) const MOST: usize = 32;
/// The most threads that a host uses by default.
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

/// Returns the default number of threads for connections: one on one or two cores, because clients and servers run
/// there, too, else one for each core, and at most 8.
#[cfg(feature = "server")]
pub(crate) fn usual() -> usize {
    match available_parallelism().map_or(1, usize::from) {
        0..=2 => 1,
        cores => cores.min(USUAL),
    }
}
