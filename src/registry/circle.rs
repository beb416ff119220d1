//! Circles: a proxy that is a server in our config and also a client of our endpoint lists back what we gave it, one
//! prefix longer each time. Such definitions are left out, so that the list does not grow.
//!
//! A name is followed through the names that we show. If that leads back to a definition of the same server, with the
//! same description and arguments, it came through us. Hosts that identify themselves need no such guess
//! (`through.rs`).

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use super::Kind;
use super::catalog::Catalog;
use super::contribution::Contribution;
use super::offer::Definition;
use crate::exposed::{Naming, UriMode, exposed_name, exposed_uri};
use crate::protocol::Raw;

/// The definitions of one kind, by the names under which we show them.
pub(super) struct Circles<'a> {
    kind: Kind,
    naming: &'a Naming,
    servers: Vec<Shown<'a>>,
}

struct Shown<'a> {
    from: &'a Contribution,
    mode: UriMode,
    /// The server's definitions by the names under which we show them; built when a name first leads here, which is
    /// rare.
    names: OnceCell<HashMap<String, &'a Definition>>,
}

/// The most prefixes that are followed. Longer names do not fit anyway.
const PREFIXES: usize = 8;

impl<'a> Circles<'a> {
    pub(super) fn new(kind: Kind, naming: &'a Naming, catalog: &Catalog, contributions: &'a [Contribution]) -> Self {
        let shown = |(from, server): (&'a Contribution, &super::catalog::Server)| Shown {
            from,
            mode: server.mode,
            names: OnceCell::new(),
        };
        Self { kind, naming, servers: contributions.iter().zip(catalog.servers()).map(shown).collect() }
    }

    /// Reports whether a definition is another one of the same server that came back through us.
    pub(super) fn closes(&self, catalog: &Catalog, from: &Contribution, definition: &Definition) -> bool {
        let mut name: &str = &definition.name;
        for _ in 0..PREFIXES {
            let Some(server) = self.leads_to(catalog, name) else { return false };
            let Some(inner) = server.names(self.kind, self.naming).get(name) else { return false };
            if server.from.server == from.server {
                return is_same(self.kind, &definition.json, &inner.json);
            }
            name = &inner.name;
        }
        false
    }

    fn leads_to(&self, catalog: &Catalog, name: &str) -> Option<&Shown<'a>> {
        let alias = match self.kind {
            Kind::Tools | Kind::Prompts => catalog.bearer(name)?.as_str(),
            Kind::Resources | Kind::ResourceTemplates => name.split_once('+')?.0,
        };
        self.servers.iter().find(|server| server.from.alias.as_str() == alias)
    }
}

impl<'a> Shown<'a> {
    fn names(&self, kind: Kind, naming: &Naming) -> &HashMap<String, &'a Definition> {
        let Self { from, mode, names } = self;
        names.get_or_init(|| {
            let shown = |definition: &'a Definition| {
                let raw = &*definition.name;
                let name = match kind {
                    Kind::Tools => exposed_name(&from.alias, from.settings.renamed(raw), naming),
                    Kind::Prompts => exposed_name(&from.alias, raw, naming),
                    Kind::Resources | Kind::ResourceTemplates => match exposed_uri(&from.alias, raw, *mode) {
                        // Without a prefix the name does not grow.
                        Cow::Borrowed(_) => return None,
                        Cow::Owned(uri) => uri,
                    },
                };
                Some((name, definition))
            };
            from.offer.list(kind).definitions.iter().filter_map(shown).collect()
        })
    }
}

fn is_same(kind: Kind, one: &Raw, other: &Raw) -> bool {
    let rest = match kind {
        Kind::Tools => "inputSchema",
        Kind::Prompts => "arguments",
        Kind::Resources | Kind::ResourceTemplates => "mimeType",
    };
    one.members(["description", rest]) == other.members(["description", rest])
}
