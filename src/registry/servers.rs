//! The servers of one catalog, in config order and by alias.

use std::collections::HashMap;
use std::sync::Arc;

use super::heads::heads;
use super::part::Part;
use crate::exposed::Naming;
use crate::name::ServerName;

/// The servers of one catalog.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    parts: Vec<Arc<Part>>,
    /// The position of each server in `parts`.
    aliases: HashMap<ServerName, usize>,
    /// For each alias of a server behind another mcp-host: the position of that mcp-host. If two have the alias, the
    /// first one gets it.
    reserved: HashMap<Box<str>, usize>,
    naming: Arc<Naming>,
}

impl Servers {
    pub(super) fn new(parts: &[Arc<Part>], naming: &Arc<Naming>) -> Self {
        let by_alias = |(position, part): (usize, &Arc<Part>)| (part.from.alias.clone(), position);
        let aliases = parts.iter().enumerate().map(by_alias).collect();
        let mut reserved = HashMap::new();
        for (position, part) in parts.iter().enumerate() {
            for alias in part.reserved() {
                reserved.entry(alias.clone()).or_insert(position);
            }
        }
        Self { parts: parts.to_vec(), aliases, reserved, naming: Arc::clone(naming) }
    }

    /// Returns all servers, in config order.
    pub(super) fn all(&self) -> &[Arc<Part>] {
        &self.parts
    }

    /// Returns the position of the server with this alias.
    pub(super) fn position(&self, alias: &str) -> Option<usize> {
        self.aliases.get(alias).copied()
    }

    /// Returns the server with this alias.
    pub(super) fn by_alias(&self, alias: &str) -> Option<&Arc<Part>> {
        self.parts.get(self.position(alias)?)
    }

    /// Returns the server whose alias a name starts with, whether or not the server has such a tool or prompt.
    pub(super) fn bearer(&self, name: &str) -> Option<&ServerName> {
        self.bearing(name).map(|part| &part.from.alias)
    }

    /// Returns the position of the server whose alias a name starts with.
    pub(super) fn bearing_at(&self, name: &str) -> Option<usize> {
        heads(name, &self.naming).find_map(|head| self.position(head))
    }

    /// Returns the server that is itself an mcp-host and has, among its own servers, the one whose alias a name starts
    /// with.
    pub(super) fn reserver(&self, name: &str) -> Option<&Arc<Part>> {
        if self.reserved.is_empty() {
            return None;
        }
        heads(name, &self.naming).find_map(|head| self.reserved_by(head))
    }

    /// Returns the server that is itself an mcp-host and has, among its own servers, one with this alias.
    pub(super) fn reserved_by(&self, alias: &str) -> Option<&Arc<Part>> {
        self.parts.get(*self.reserved.get(alias)?)
    }

    fn bearing(&self, name: &str) -> Option<&Arc<Part>> {
        self.parts.get(self.bearing_at(name)?)
    }
}
