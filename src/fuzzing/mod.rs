//! The targets of the fuzzers in `fuzz/`: each function takes arbitrary bytes and panics if a property does not hold.
//!
//! This module is hidden, and only present with the feature `fuzzing`. Where a simpler parser exists, results are
//! compared with its results. The functions are not part of the public interface.

mod bytes;
mod config;
mod door;
mod page;
mod text;

pub use bytes::{envelope, lines, raw, sse};
pub use config::{cases, config, lock};
pub use door::http;
pub use page::console;
pub use text::{challenge, definition, expression, headers, pages, redact, sealed, search, session};

/// Splits the bytes at positions that their first four define. Returns those four and the pieces of the rest.
fn pieces(data: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let (cuts, mut rest) = data.split_at(data.len().min(4));
    let mut pieces = Vec::new();
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(rest.len().min(1 + usize::from(*cut)));
        pieces.push(piece);
        rest = after;
    }
    (cuts, pieces)
}
