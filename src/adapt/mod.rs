//! Translates between revisions: results, errors, questions (requests from servers to clients), definitions, and
//! `_meta`.
//!
//! A body from one side comes in; a body that the other side's revision accepts goes out. Callers are the places where
//! an answer comes back (`Router::adapted`), a question goes out (`router/question.rs`), and a list is shown
//! (`registry/listing.rs`). From an older revision to a newer one nearly nothing changes. In the other direction,
//! anything that the client does not know is replaced by an equivalent, omitted if it is said elsewhere, or refused
//! (`docs/bridging.md` 10). An error keeps its code only if the code means the same on the other side.
//!
//! **Invariant:** pure, with minimal changes: a body that needs no change is returned as the same bytes, unknown
//! members stay, and numbers keep their digits. Unknown members of objects may cross between revisions; unknown kinds
//! (of content, of forms) may not. Start reading at [`outcome`]. Handled elsewhere: names and URIs
//! (`registry/rewrite.rs`), and when to ask or retry (the router).

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
pub(crate) use question::{AdaptedQuestion, Refusal, question};
pub(crate) use result::result;

use crate::protocol::{Method, Outcome, ProtocolVersion, Raw};

/// The extensions whose messages we can carry: MCP Apps, and tasks since 2026-07-28.
pub(crate) const CARRIED: [&str; 2] = ["io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks"];

/// The two sides that an outcome crosses between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap<'a> {
    /// The server's revision; [`OWN`] for our own answers.
    pub(crate) from: ProtocolVersion,
    /// The client's revision.
    pub(crate) to: ProtocolVersion,
    /// The server's name, as shown to people.
    pub(crate) server: &'a str,
    /// Our own `serverInfo`.
    pub(crate) info: &'a Raw,
}

/// The revision in which our own answers are written.
pub(crate) const OWN: ProtocolVersion = ProtocolVersion::LATEST_HANDSHAKE;

/// Translates the outcome of a request for the client's revision; a result must be an object. URIs in it must already
/// be exposed, because some end up in text.
pub(crate) fn outcome(outcome: Outcome, method: &Method, gap: &Gap<'_>) -> Outcome {
    let Gap { from, to, server, info } = *gap;
    match outcome {
        Ok(raw) => Ok(result(raw, method, from, to, info)),
        Err(object) => error(object, method, from, to, server).map(|raw| result(raw, method, OWN, to, info)),
    }
}

/// Whether a revision knows audio content.
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

/// Returns how long a question of this length may become by translation, in bytes: a text that occurs once must not be
/// repeated a thousand times.
fn grown(length: usize) -> usize {
    length.saturating_mul(4).saturating_add(64 * 1024)
}

#[cfg(test)]
mod tests;
