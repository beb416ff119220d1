//! One server's part of all catalogs: made once for each of its offers, kept, and shared by the catalogs.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use super::contribution::Contribution;
use super::entry::Origin;
use super::heads::{heads, is_alias, uri_head};
use super::offer::{Definition, List};
use super::piece::Piece;
use super::{Kind, Offer};
use crate::config::Prefix;
use crate::exposed::{Naming, exposed_name, exposed_uri, is_set_apart};
use crate::lock::lock;

/// One server's part of all catalogs.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) from: Contribution,
    pub(super) origin: Arc<Origin>,
    pub(super) naming: Arc<Naming>,
    /// Whether all its tools and prompts carry its alias, and no name of another server can carry it.
    is_apart: bool,
    /// The aliases of the servers behind it, if the server is itself an mcp-host.
    reserved: OnceLock<HashSet<Box<str>>>,
    sheets: [Sheet; 4],
}

/// The results for one of the server's lists.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// What the server shows if no other server interferes.
    pub(super) alone: OnceLock<Arc<Piece>>,
    /// What the server showed last while another server did interfere.
    pub(super) crowded: Mutex<Option<Arc<Piece>>>,
    /// The definitions by their names with a prefix.
    prefixed: OnceLock<HashMap<String, u32>>,
}

impl Part {
    pub(crate) fn new(from: Contribution, naming: &Arc<Naming>) -> Self {
        let prefix = from.settings.prefix;
        let mode = prefix.uris(naming.resources);
        Self {
            origin: Arc::new(Origin { server: from.server, alias: from.alias.clone(), mode }),
            reserved: OnceLock::new(),
            is_apart: prefix == Prefix::Always && is_set_apart(&from.alias, naming),
            naming: Arc::clone(naming),
            sheets: Default::default(),
            from,
        }
    }

    /// Returns the index that the caller uses for the server.
    pub(crate) fn server(&self) -> usize {
        self.from.server
    }

    /// Returns the hash of its offer.
    pub(crate) fn offer(&self) -> u128 {
        self.from.offer.hash()
    }

    /// Reports whether it has any resources.
    pub(super) fn is_capable(&self) -> bool {
        self.from.offer.has(Kind::Resources) || self.from.offer.has(Kind::ResourceTemplates)
    }

    /// Reports whether no other server can have a name that this one shows in a list.
    pub(super) fn is_apart(&self, kind: Kind) -> bool {
        self.is_apart && kind.has_names()
    }

    /// If the server is itself an mcp-host (`prefix: inner`), returns the aliases of its own servers, with which its
    /// names and URIs start. Other servers have none.
    pub(super) fn reserved(&self) -> &HashSet<Box<str>> {
        self.reserved.get_or_init(|| {
            if self.from.settings.prefix != Prefix::Inner {
                return HashSet::new();
            }
            let named = Kind::ALL.into_iter().flat_map(|kind| {
                let definitions = self.list(kind).definitions.iter();
                definitions.filter_map(move |definition| match kind.has_names() {
                    true => heads(&definition.name, &self.naming).next(),
                    false => uri_head(&definition.name),
                })
            });
            named.filter(|head| is_alias(head)).map(Into::into).collect()
        })
    }

    pub(super) fn list(&self, kind: Kind) -> &Arc<List> {
        self.from.offer.list(kind)
    }

    pub(super) fn sheet(&self, kind: Kind) -> &Sheet {
        &self.sheets[kind as usize]
    }

    /// Returns the definition that is shown under this name if all names are prefixed.
    pub(super) fn prefixed(&self, kind: Kind, name: &str) -> Option<&Definition> {
        let definitions = &self.list(kind).definitions;
        let shown = |definition: &Definition| {
            let (alias, raw) = (&self.from.alias, &*definition.name);
            match kind {
                Kind::Tools => Some(exposed_name(alias, self.from.settings.renamed(raw), &self.naming)),
                Kind::Prompts => Some(exposed_name(alias, raw, &self.naming)),
                Kind::Resources | Kind::ResourceTemplates => match exposed_uri(alias, raw, self.origin.mode) {
                    // A URI that gets no prefix is not in this table.
                    Cow::Borrowed(_) => None,
                    Cow::Owned(uri) => Some(uri),
                },
            }
        };
        let table = self.sheet(kind).prefixed.get_or_init(|| {
            (0..).zip(definitions).filter_map(|(at, definition)| Some((shown(definition)?, at))).collect()
        });
        definitions.get(*table.get(name)? as usize)
    }
}

/// The parts of one server that are in use, one for each of its offers.
#[derive(Debug, Default)]
pub(crate) struct Parts(Mutex<Vec<Arc<Part>>>);

impl Parts {
    /// Returns the part with this offer; makes it if there is none.
    pub(crate) fn of(&self, offer: &Offer, make: impl FnOnce() -> Part) -> Arc<Part> {
        let mut parts = lock(&self.0);
        if let Some(part) = parts.iter().find(|part| part.offer() == offer.hash()) {
            return Arc::clone(part);
        }
        // No catalog uses the other parts any more.
        parts.retain(|part| Arc::strong_count(part) > 1);
        let part = Arc::new(make());
        parts.push(Arc::clone(&part));
        part
    }
}
