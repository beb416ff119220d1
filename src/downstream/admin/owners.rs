//! The request `owners`: whose the names and URIs are that clients of the daemon see. A one-shot command that has its lists
//! from the daemon tells by it which server each entry is of, and what the server itself calls it.

use serde::{Deserialize, Serialize};

use crate::registry::{Catalog, Kind};

/// A name or URI as clients see it, the alias of its server, and what the server calls it.
type Owned = (String, String, String);

/// What each list has, in no order.
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
            let entries = catalog.entries(kind).iter();
            let owned = entries.map(|entry| {
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

    /// The alias of the server of an entry, and what the server calls it.
    #[must_use]
    pub fn owner(&self, kind: Kind, name: &str) -> Option<(&str, &str)> {
        let list = match kind {
            Kind::Tools => &self.tools,
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::ResourceTemplates => &self.templates,
        };
        list.iter().find(|(shown, ..)| shown == name).map(|(_, alias, raw)| (alias.as_str(), raw.as_str()))
    }
}
