//! What the fuzzers of `fuzz/` run: each function takes bytes from anywhere and panics where something does not hold.
//!
//! Hidden, and only there with the feature `fuzzing`. What is checked are properties, against a simpler reader where there
//! is one; the functions themselves are part of no interface.

mod bytes;
mod config;
mod door;
mod text;

pub use bytes::{envelope, lines, raw, sse};
pub use config::config;
pub use door::http;
pub use text::{challenge, headers, redact, sealed};

/// The bytes in pieces, cut at places that the first of them tell; those first ones, and the pieces.
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
