//! The request `owners`: maps the names and URIs that clients of the daemon see back to servers. A one-shot command
//! that gets its tool, prompt and resource lists from the daemon uses the reply to name each entry's server, and the
//! server's own name for the entry.

use serde::{Deserialize, Serialize};

use crate::registry::{Catalog, Kind};

/// A name or URI as clients see it, the alias of its server, and the server's own name for it.
type Owned = (String, String, String);

/// The owning servers of all tools, prompts, resources and resource templates, in no particular order.
///
/// ```
/// use mcp_host::admin::Owners;
/// use mcp_host::registry::Kind;
///
/// assert_eq!(Owners::default().owner(Kind::Tools, "files__read"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners {
    tools: Vec<Owned>,
    prompts: Vec<Owned>,
    resources: Vec<Owned>,
    templates: Vec<Owned>,
}

impl Owners {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let list = |kind| {
            let owned = catalog.each(kind).map(|entry| {
                (entry.name().to_owned(), entry.server().as_str().to_owned(), entry.raw_name().to_owned())
            });
            owned.collect()
        };
        Self {
            tools: list(Kind::Tools),
            prompts: list(Kind::Prompts),
            resources: list(Kind::Resources),
            templates: list(Kind::ResourceTemplates),
        }
    }

    /// Returns the alias of an entry's server, and the server's own name for the entry; `None` if there is no such
    /// entry.
    #[must_use]
    pub fn owner(&self, kind: Kind, name: &str) -> Option<(&str, &str)> {
        let found = self.list(kind).iter().find(|(shown, ..)| shown == name);
        found.map(|(_, alias, raw)| (alias.as_str(), raw.as_str()))
    }

    /// Returns the names or URIs of one kind, as clients see them.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.list(kind).iter().map(|(shown, ..)| shown.as_str())
    }

    fn list(&self, kind: Kind) -> &[Owned] {
        match kind {
            Kind::Tools => &self.tools,
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::ResourceTemplates => &self.templates,
        }
    }
}
