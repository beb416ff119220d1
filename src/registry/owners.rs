//! Who was first to show a name without a prefix.

use std::collections::HashMap;
use std::sync::Arc;

use super::Kind;
use crate::name::ServerName;

/// The owners of names that were shown bare, until the program ends: a newcomer never gets a name that clients know as
/// another server's, wherever it stands in the config. Kept by whoever builds catalogs, across all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    tools: HashMap<Arc<str>, ServerName>,
    prompts: HashMap<Arc<str>, ServerName>,
}

/// Names above this are not remembered: a server could list new ones for ever.
const REMEMBERED: usize = 1 << 16;

impl Owners {
    /// Who owns the bare name.
    pub(super) fn of(&self, kind: Kind, name: &str) -> Option<&ServerName> {
        self.table(kind).get(name)
    }

    /// Writes down who shows the bare name. The first one stays.
    pub(super) fn claim(&mut self, kind: Kind, name: &Arc<str>, owner: &ServerName) {
        let table = if kind == Kind::Prompts { &mut self.prompts } else { &mut self.tools };
        if table.len() < REMEMBERED && !table.contains_key(&**name) {
            table.insert(Arc::clone(name), owner.clone());
        }
    }

    /// How many names have an owner. The number only grows, so it tells states apart.
    pub(crate) fn count(&self) -> usize {
        self.tools.len() + self.prompts.len()
    }

    /// All of them.
    pub(super) fn table(&self, kind: Kind) -> &HashMap<Arc<str>, ServerName> {
        if kind == Kind::Prompts { &self.prompts } else { &self.tools }
    }
}
