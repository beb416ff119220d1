//! Builds a catalog: decides which definition is shown under which name.

use std::borrow::Cow;
use std::sync::Arc;

use super::catalog::{Catalog, Server};
use super::circle::Circles;
use super::contribution::Contribution;
use super::listing::{Listing, Writer};
use super::{Kind, Owners, Problems, quoted};
use crate::config::Prefix;
use crate::exposed::{Naming, bare_name, exposed_name, exposed_uri};
use crate::name::ServerName;

/// Why a definition that came through us is not shown.
const CIRCLE: &str = "it comes from this host";

/// How many bytes of definitions one page holds. Many clients never ask for a second page, so nearly every list should
/// have only one.
const PAGE: usize = 4 << 20;

impl Catalog {
    /// Merges the servers' lists. `contributions` are in config order and contain **every** server of the config, with
    /// an empty offer if need be: that way, no server can take a name that starts with another's alias.
    #[must_use]
    pub(crate) fn build(contributions: &[Contribution], naming: &Naming, owners: &mut Owners) -> Self {
        Self::build_paged(contributions, naming, owners, PAGE)
    }

    pub(super) fn build_paged(
        contributions: &[Contribution],
        naming: &Naming,
        owners: &mut Owners,
        page: usize,
    ) -> Self {
        let servers = contributions.iter().map(|from| Server::new(from, naming)).collect();
        let mut catalog = Self::empty(servers, naming.clone());
        let mut problems = vec![Problems::default(); contributions.len()];
        for kind in Kind::ALL {
            let build = Build { catalog: &catalog, contributions, naming, kind };
            let listing = match kind {
                Kind::Tools | Kind::Prompts => build.names(owners, &mut problems, page),
                Kind::Resources | Kind::ResourceTemplates => build.uris(&mut problems, page),
            };
            catalog.put(kind, listing);
        }
        catalog.add_problems(problems);
        catalog
    }
}

struct Build<'a> {
    catalog: &'a Catalog,
    contributions: &'a [Contribution],
    naming: &'a Naming,
    kind: Kind,
}

impl Build<'_> {
    fn names(&self, owners: &mut Owners, problems: &mut [Problems], page: usize) -> Listing {
        let Self { catalog, contributions, kind, .. } = *self;
        let mut writer = self.writer(page);
        let circles = Circles::new(kind, self.naming, catalog, contributions);
        for ((from, server), problems) in contributions.iter().zip(catalog.servers()).zip(&mut *problems) {
            for definition in &from.offer.list(kind).definitions {
                let raw = &definition.name;
                if kind == Kind::Tools && !from.settings.admits(raw) {
                    continue;
                }
                if circles.closes(catalog, from, definition) {
                    problems.add(|| format!("{} {} left out: {CIRCLE}", kind.word(), quoted(raw)));
                    continue;
                }
                let exposed = match self.exposed(from, raw, &writer, owners) {
                    Ok(exposed) => exposed,
                    Err(reason) => {
                        problems.add(|| format!("{} {} left out: {reason}", kind.word(), quoted(raw)));
                        continue;
                    }
                };
                writer.add(from.server, &from.alias, &exposed, definition, server.mode);
                // MCP Apps pages call tools by raw name; such a name must never lead to another server.
                let is_free = |owner: Option<&ServerName>| owner.is_none_or(|owner| *owner == from.alias);
                if is_free(catalog.bearer(raw)) && is_free(owners.of(kind, raw)) {
                    writer.admit_raw();
                }
            }
        }
        for (name, owner) in owners.table(kind) {
            writer.reserve(name, owner);
        }
        let listing = writer.finish();
        for (later, first) in listing.twins() {
            let from = contributions.iter().position(|from| from.server == later.server);
            if let Some(problems) = from.and_then(|position| problems.get_mut(position)) {
                problems
                    .add(|| format!("{} {} differs from {} only in case", kind.word(), later.exposed, first.exposed));
            }
        }
        listing
    }

    /// Returns the exposed name, or why there is none.
    fn exposed(
        &self,
        from: &Contribution,
        raw: &str,
        writer: &Writer,
        owners: &mut Owners,
    ) -> Result<Arc<str>, String> {
        let part = if self.kind == Kind::Tools { from.settings.renamed(raw) } else { raw };
        if from.settings.prefix != Prefix::Always {
            let bare: Arc<str> = bare_name(&from.alias, part, self.naming).into();
            // A name that starts with a server's alias is that server's, whether or not it has such a tool.
            let bearer = self.catalog.bearer(&bare).or_else(|| owners.of(self.kind, &bare));
            let other = bearer.filter(|owner| **owner != from.alias);
            let shown = || writer.has(&bare).map(|entry| &entry.alias);
            match (other.or_else(shown), from.settings.prefix) {
                (None, _) => {
                    owners.claim(self.kind, &bare, &from.alias);
                    return Ok(bare);
                }
                (Some(owner), Prefix::Never) => return Err(format!("the name {bare} belongs to {owner}")),
                (Some(_), _) => {}
            }
        }
        let full: Arc<str> = exposed_name(&from.alias, part, self.naming).into();
        match writer.has(&full) {
            Some(entry) => Err(format!("{} of {} has the name {full}", quoted(&entry.raw), entry.alias)),
            None => Ok(full),
        }
    }

    fn uris(&self, problems: &mut [Problems], page: usize) -> Listing {
        let Self { catalog, contributions, kind, .. } = *self;
        let mut writer = self.writer(page);
        let circles = Circles::new(kind, self.naming, catalog, contributions);
        for ((from, server), problems) in contributions.iter().zip(catalog.servers()).zip(problems) {
            for definition in &from.offer.list(kind).definitions {
                if circles.closes(catalog, from, definition) {
                    problems.add(|| format!("{} {} left out: {CIRCLE}", kind.word(), quoted(&definition.name)));
                    continue;
                }
                let exposed: Arc<str> = match exposed_uri(&from.alias, &definition.name, server.mode) {
                    Cow::Borrowed(_) => Arc::clone(&definition.name),
                    Cow::Owned(exposed) => exposed.into(),
                };
                if let Some(entry) = writer.has(&exposed) {
                    let owner = &entry.alias;
                    problems.add(|| format!("{} {} left out: {owner} lists it, too", kind.word(), quoted(&exposed)));
                    continue;
                }
                writer.add(from.server, &from.alias, &exposed, definition, server.mode);
                writer.admit_raw();
            }
        }
        writer.finish()
    }

    fn writer(&self, page: usize) -> Writer {
        let lists = || self.contributions.iter().map(|from| &from.offer.list(self.kind).definitions);
        let count = lists().map(Vec::len).sum();
        // The 28 bytes per definition for longer names are a guess, to avoid moving the text while it is written.
        let bytes = lists().flatten().map(|definition| definition.json.as_bytes().len() + 28).sum();
        Writer::new(self.kind, page, count, bytes)
    }
}
