//! Translates between revisions: results, errors, questions, definitions, `_meta`.
//!
//! A body as one side said it comes in, and what the other side's revision can take goes out. It is called where an
//! answer comes back (`Finish::adapted`), where a question goes out (`router/question.rs`), and where a list is shown
//! (`registry/listing.rs`). From an older revision to a newer one nearly nothing changes. The other way, what the
//! client does not know becomes something that says the same, is left out where it is said elsewhere, or is refused
//! (`docs/bridging.md` 10). An error keeps its code only where the code means the same on the other side.
//!
//! **Invariant:** pure, and as little as can be: what needs no change is given back as the bytes it came as, unknown
//! members stay, numbers keep their digits. Unknown members of objects may cross a gap of revisions; unknown kinds (of
//! content, of forms) may not. Start reading at [`outcome`]. Not here: names and URIs (`registry/rewrite.rs`), and when
//! something is asked or retried (the router).

mod content;
mod definition;
mod error;
mod form;
mod meta;
mod question;
mod result;
mod sampling;
pub(crate) mod task;
pub(crate) mod url;

pub(crate) use definition::tool;
pub(crate) use error::error;
pub(crate) use meta::{Trace, notice, request_meta};
pub(crate) use question::{Asked, Refusal, question};
pub(crate) use result::result;

use crate::protocol::{Method, Outcome, ProtocolVersion, Raw};

/// The extensions whose messages we can carry: MCP Apps, and tasks since 2026-07-28.
pub(crate) const CARRIED: [&str; 2] = ["io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks"];

/// Between whom an outcome crosses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap<'a> {
    /// The server's revision; for answers of our own [`OWN`].
    pub(crate) from: ProtocolVersion,
    /// The client's revision.
    pub(crate) to: ProtocolVersion,
    /// The server, as people call it.
    pub(crate) server: &'a str,
    /// Our own `serverInfo`.
    pub(crate) info: &'a Raw,
}

/// Answers that we make ourselves are written in this revision.
pub(crate) const OWN: ProtocolVersion = ProtocolVersion::LATEST_HANDSHAKE;

/// The outcome of a request as the client's revision has it; a result is an object. URIs in it are exposed already: some end
/// up in text.
pub(crate) fn outcome(outcome: Outcome, method: &Method, gap: &Gap<'_>) -> Outcome {
    let Gap { from, to, server, info } = *gap;
    match outcome {
        Ok(raw) => Ok(result(raw, method, from, to, info)),
        Err(object) => error(object, method, from, to, server).map(|raw| result(raw, method, OWN, to, info)),
    }
}

/// Whether content may be sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sound {
    Known,
    Unknown,
}

impl Sound {
    fn of(revision: ProtocolVersion) -> Self {
        if revision >= ProtocolVersion::V2025_03_26 { Self::Known } else { Self::Unknown }
    }
}

/// So long may a question become that is put in other words: what is said once must not be said a thousand times.
fn grown(length: usize) -> usize {
    length.saturating_mul(4).saturating_add(64 * 1024)
}

#[cfg(test)]
mod tests;
