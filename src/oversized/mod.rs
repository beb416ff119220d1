//! Results that are too large for a client's prompt (`host.results`): what a client gets of one at once, and how it reads
//! the rest.
//!
//! In: a result of a tool, and the limits of the config. Out: a head of it, and the whole in pages. `store.rs` holds the
//! wholes for a while. **Invariants:** structured content that was cut is still what the tool's output schema says
//! (`schema.rs`). The pages of a text, joined, are its bytes. Who did not get a result cannot read it.

mod cut;
mod pages;
mod schema;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use cut::{Tell, cut};
pub(crate) use pages::{Part, matching, pointed};
#[cfg(feature = "cluster")]
pub(crate) use store::home_of;
pub(crate) use store::{Held, Lost, Room, Store};

/// Begins the URI of a result that is kept.
pub(crate) const SCHEME: &str = "mcp-host+result://";
