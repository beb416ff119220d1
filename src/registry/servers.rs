//! The servers of one catalog, in config order and by alias.

use std::collections::HashMap;
use std::sync::Arc;

use super::part::Part;
use crate::exposed::Naming;
use crate::name::{ALIAS, ServerName};

/// The servers of one catalog.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    parts: Vec<Arc<Part>>,
    /// Positions in `parts`.
    aliases: HashMap<ServerName, usize>,
    naming: Arc<Naming>,
}

impl Servers {
    pub(super) fn new(parts: &[Arc<Part>], naming: &Arc<Naming>) -> Self {
        let by_alias = |(position, part): (usize, &Arc<Part>)| (part.from.alias.clone(), position);
        let aliases = parts.iter().enumerate().map(by_alias).collect();
        Self { parts: parts.to_vec(), aliases, naming: Arc::clone(naming) }
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

    /// Returns the position of that server.
    pub(super) fn bearing_at(&self, name: &str) -> Option<usize> {
        heads(name, &self.naming).find_map(|head| self.position(head))
    }

    fn bearing(&self, name: &str) -> Option<&Arc<Part>> {
        self.parts.get(self.bearing_at(name)?)
    }
}

/// Returns what stands in front of the separators in a name, as far as it may be an alias.
pub(super) fn heads<'a>(name: &'a str, naming: &Naming) -> impl Iterator<Item = &'a str> {
    let (bytes, separator) = (name.as_bytes(), naming.separator.as_bytes());
    let mut from = 0;
    // Each call looks for one. Preparing a search, as `str::match_indices` does, would cost more than the search.
    let mut next = move || {
        loop {
            let at = from + memchr::memchr(*separator.first()?, bytes.get(from..)?)?;
            let is_separator = bytes[at..].starts_with(separator);
            from = at + if is_separator { separator.len() } else { 1 };
            if is_separator {
                return name.get(..at);
            }
        }
    };
    // A name may be megabytes of separators.
    std::iter::from_fn(move || next().filter(|head| head.len() <= ALIAS))
}
