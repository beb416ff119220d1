//! Remembers which server first showed a name without a prefix.

use std::collections::HashMap;
use std::sync::Arc;

use super::Kind;
use crate::name::ServerName;

/// The owners of names that were shown without a prefix, kept across all catalogs until the program ends. A new server
/// never gets a name that clients know as another server's, wherever it stands in the config.
///
/// A clone is a snapshot, and costs nothing until a name is claimed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    tools: Arc<Table>,
    prompts: Arc<Table>,
}

type Table = HashMap<Arc<str>, ServerName>;

/// The most names that are remembered: a server could list new ones forever.
const REMEMBERED: usize = 1 << 16;

impl Owners {
    /// Returns the server that owns a name without a prefix.
    pub(super) fn of(&self, kind: Kind, name: &str) -> Option<&ServerName> {
        self.table(kind).get(name)
    }

    /// Records the owner of a name without a prefix. The first owner stays.
    pub(super) fn claim(&mut self, kind: Kind, name: &Arc<str>, owner: &ServerName) {
        let table = if kind == Kind::Prompts { &mut self.prompts } else { &mut self.tools };
        if table.len() < REMEMBERED && !table.contains_key(&**name) {
            Arc::make_mut(table).insert(Arc::clone(name), owner.clone());
        }
    }

    /// Returns how many names have an owner. The number only grows, so it identifies a state of this table.
    pub(crate) fn count(&self) -> usize {
        self.tools.len() + self.prompts.len()
    }

    fn table(&self, kind: Kind) -> &Table {
        if kind == Kind::Prompts { &self.prompts } else { &self.tools }
    }
}
