//! Results that are too large for a client's prompt (`host.results`): what a client gets at once, and how it reads the
//! rest.
//!
//! In: a result of a tool, and the limits of the config. Out: its beginning, and the whole in pages. `store.rs` stores
//! the whole results for a while. **Invariants:** shortened structured content still fits the tool's output schema
//! (`schema.rs`). The pages of a text, joined, are its bytes. Only the client that got a result can read the rest.

mod cut;
mod pages;
mod schema;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use cut::{Tell, cut};
pub(crate) use pages::{Part, matching, pointed};
pub(crate) use store::{Held, Lost, Room, Store};

/// The start of the URI of a stored result.
pub(crate) const SCHEME: &str = "mcp-host+result://";
