//! What servers offer: checked, compact, and merged into the lists that clients see.
//!
//! Raw list pages come in (`OfferBuilder`). Out go an `Offer` per lease (one connection to a server), from each offer a
//! `Part` with all that a server adds to catalogs, and, from all parts in config order, one immutable [`Catalog`]: lists
//! as bytes, and tables that resolve a name or URI to its server. **Invariant:** snapshots: no I/O, no Tokio, no clock;
//! the same input gives the same bytes, and a merge does no work for a definition. Start reading at `offer.rs`, then
//! `part.rs`, `build.rs` and `catalog.rs`.

mod build;
mod canonical;
mod catalog;
mod change;
mod circle;
mod compact;
#[cfg(any(feature = "schemas", test))]
mod compiled;
mod contribution;
mod definition;
mod edit;
mod entry;
mod filter;
mod finding;
mod fit;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod header;
mod heads;
pub(crate) mod hints;
mod lens;
mod listing;
mod offer;
pub(crate) mod own;
mod owners;
mod part;
mod piece;
mod pin;
mod rewrite;
mod ruled;
mod schema;
pub(crate) mod search;
mod servers;
mod settle;
mod shingles;
mod text;
mod through;
pub(crate) mod tokens;
mod tree;
mod twins;

use std::fmt;

#[doc(hidden)]
pub use catalog::BadCursor;
pub use catalog::Catalog;
pub(crate) use catalog::{Resolution, Target};
pub use change::{Change as DefinitionChange, Class};
pub(crate) use change::{changes, is_mild};
#[cfg(any(feature = "validate", test))]
pub(crate) use compiled::SchemaOf;
pub(crate) use contribution::Contribution;
pub use entry::Entry;
#[doc(hidden)]
pub use filter::ServerNaming;
pub use finding::Finding;
pub(crate) use finding::{Neighbours, findings};
pub(crate) use fit::misfit;
pub(crate) use header::{ParamHeader, ParamHeaders};
pub(crate) use lens::Lens;
pub(crate) use offer::{Offer, OfferBuilder, PageError};
pub(crate) use owners::Owners;
pub(crate) use part::{Part, Parts};
pub use pin::{NoPin, Pin};
pub(crate) use rewrite::{expose_content, expose_target};
pub(crate) use ruled::Ruled;
pub use search::Ranker;
pub(crate) use shingles::Shingles;
pub(crate) use twins::{Twin, Twins};

/// The four kinds of lists.
///
/// ```
/// # fn show(host: &mcp_host::Host) {
/// use mcp_host::registry::Kind;
///
/// for kind in Kind::ALL {
///     println!("{kind}: {}", host.catalog().entries(kind).len());
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
}

impl Kind {
    /// All four lists.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::ResourceTemplates];

    /// Returns the name of the member of a result that holds the list.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// Returns the name of the member that identifies a definition.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    /// Reports whether the list identifies its definitions by names, not URIs.
    const fn has_names(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::ResourceTemplates => "resource template",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.member())
    }
}

/// The limits on one server's lists, and how they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    /// The most tools of one server; the rest is left out.
    pub(crate) tools: usize,
    /// The most bytes of all definitions of one server; the rest is left out.
    pub(crate) definitions: usize,
    /// The most bytes of one definition.
    pub(crate) definition: usize,
    /// The greatest nesting depth of one definition.
    pub(crate) depth: usize,
    /// The most pages of one list; a longer list counts as failed.
    pub(crate) pages: usize,
    /// Whether valid `x-mcp-header` annotations are shown to clients.
    pub(crate) annotations: Annotations,
}

/// Whether clients see the annotations that name arguments for HTTP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Annotations {
    /// No: they are between us and the server.
    #[default]
    Strip,
    /// Yes, and modern clients send us these headers.
    Keep,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            tools: 1000,
            definitions: 8 << 20,
            definition: 256 << 10,
            depth: 64,
            pages: 100,
            annotations: Annotations::Strip,
        }
    }
}

/// Problems of one list, for the status. A server may cause a thousand; only the first few are kept as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Problems {
    texts: Vec<String>,
    more: usize,
}

impl Problems {
    const SHOWN: usize = 20;

    fn add(&mut self, text: impl FnOnce() -> String) {
        if self.texts.len() < Self::SHOWN {
            self.texts.push(text());
        } else {
            self.more += 1;
        }
    }

    fn add_all(&mut self, others: &Self) {
        others.texts.iter().for_each(|text| self.add(|| text.clone()));
        self.more += others.more;
    }

    fn into_texts(mut self) -> Vec<String> {
        if self.more > 0 {
            self.texts.push(format!("and {} more like these", self.more));
        }
        self.texts
    }
}

/// Formats a server's text for our own messages: quoted, escaped, and shortened.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 64;
    let short: String = text.chars().take(SHOWN).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{dots}")
}

#[cfg(test)]
mod tests;
