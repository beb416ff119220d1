//! All offers combined: the lists that clients see, and which server each name or URI leads to.
//!
//! A catalog is merged in `build.rs` from parts that it shares with other catalogs, and never changed afterwards.

use std::sync::{Arc, OnceLock};

use super::entry::Entry;
use super::heads::uri_head;
use super::lens::Lens;
use super::listing::{Listing, read_cursor};
use super::part::Part;
use super::piece::Piece;
use super::ruled::Ruled;
use super::search::{Index, Reader};
use super::servers::Servers;
use super::{Kind, Owners, Problems};
use crate::config::{Action, Prefix};
use crate::exposed::{SCHEME_HEADS, UriMode, exposed_uri, raw_uri};
use crate::name::ServerName;
use crate::policy::Subject;
use crate::protocol::{ProtocolVersion, Raw};

/// An immutable snapshot of everything that all servers offer.
///
/// ```
/// # fn show(catalog: &mcp_host::Catalog) {
/// for tool in catalog.tools() {
///     println!("{}: {}", tool.name(), tool.definition().text("description").unwrap_or_default());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Catalog {
    lists: [Listing; 4],
    servers: Servers,
    /// The owners of names without a prefix, as known when the catalog was made.
    owners: Owners,
    /// The view through which it is seen.
    lens: Option<Arc<Lens>>,
    /// The tools, ready to be searched, once somebody has searched.
    index: OnceLock<Arc<Index>>,
}

/// The server that a name or URI leads to, and what the server calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The index that the server has in its [`Contribution`].
    pub(crate) server: usize,
    /// Its alias.
    pub(crate) alias: ServerName,
    /// The server's own name or URI for it.
    pub(crate) name: Arc<str>,
    /// How to show the URIs in the server's answer.
    pub(crate) uris: UriMode,
}

/// The result of resolving a name or URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// It belongs to one server.
    Found(Target),
    /// It could belong to several servers; lists the names that distinguish them, if there are any.
    Ambiguous(Vec<Arc<str>>),
    /// It belongs to no server.
    Unknown,
}

impl Resolution {
    /// Returns the target, if there is one.
    #[must_use]
    pub(crate) fn found(self) -> Option<Target> {
        match self {
            Self::Found(target) => Some(target),
            Self::Ambiguous(_) | Self::Unknown => None,
        }
    }
}

/// Why a cursor leads to no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCursor {
    /// It belongs to another version of the list; an older catalog may still have the page.
    #[error("the list has changed since that cursor was given; list again from the start")]
    Stale,
    /// It is not a cursor of ours.
    #[error("not a cursor of this list")]
    Foreign,
}

impl Part {
    fn target(&self, name: Arc<str>) -> Target {
        let (server, alias) = (self.server(), self.from.alias.clone());
        Target { server, alias, name, uris: self.origin.mode }
    }
}

impl Catalog {
    /// Returns the result of a list request from a client of this revision: the first page, or the page at `cursor`.
    /// The first call for a list writes its pages; later ones copy nothing.
    ///
    /// # Errors
    /// When `cursor` does not belong to this catalog.
    #[doc(hidden)]
    pub fn page(&self, kind: Kind, cursor: Option<&str>, revision: ProtocolVersion) -> Result<Raw, BadCursor> {
        let list = self.list(kind);
        let page = match cursor {
            None => 0,
            Some(cursor) => match read_cursor(kind, cursor).ok_or(BadCursor::Foreign)? {
                (generation, page) if generation == list.hash => page,
                _ => return Err(BadCursor::Stale),
            },
        };
        list.pages(revision).get(page).cloned().ok_or(BadCursor::Foreign)
    }

    /// Reports whether the list has more than one page.
    #[must_use]
    pub(crate) fn is_paged(&self, kind: Kind) -> bool {
        self.list(kind).is_paged()
    }

    /// Returns a hash of a list that changes exactly when clients would see a different list.
    #[must_use]
    pub(crate) fn hash(&self, kind: Kind) -> u128 {
        self.list(kind).hash
    }

    /// Returns all entries of a list, in order.
    #[must_use]
    pub fn entries(&self, kind: Kind) -> &[Entry] {
        self.list(kind).flat()
    }

    /// Returns all entries of a list, in order, without putting them into one slice.
    pub(crate) fn each(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.list(kind).entries()
    }

    /// Returns the number of entries of a list that come from the server with this alias.
    #[must_use]
    pub(crate) fn count(&self, kind: Kind, alias: &ServerName) -> usize {
        let piece = self.servers.position(alias.as_str()).and_then(|position| self.list(kind).piece(position));
        piece.map_or(0, |piece| piece.entries.len())
    }

    /// Returns the entry that the server with this alias calls by this name.
    #[must_use]
    pub(crate) fn entry_of(&self, kind: Kind, alias: &ServerName, raw: &str) -> Option<&Entry> {
        let piece = self.list(kind).piece(self.servers.position(alias.as_str())?)?;
        piece.raw(raw).or_else(|| piece.exposed(raw).filter(|entry| entry.raw_name() == raw))
    }

    /// Returns the tools, in order.
    #[must_use]
    pub fn tools(&self) -> &[Entry] {
        self.entries(Kind::Tools)
    }

    /// Returns the prompts, in order.
    #[must_use]
    pub fn prompts(&self) -> &[Entry] {
        self.entries(Kind::Prompts)
    }

    /// Returns the resources, in order.
    #[must_use]
    pub fn resources(&self) -> &[Entry] {
        self.entries(Kind::Resources)
    }

    /// Returns the resource templates, in order.
    #[must_use]
    pub fn resource_templates(&self) -> &[Entry] {
        self.entries(Kind::ResourceTemplates)
    }

    /// Returns the entry that clients know by this name, URI, or URI template.
    #[must_use]
    pub fn entry(&self, kind: Kind, exposed: &str) -> Option<&Entry> {
        self.list(kind).exposed(&self.servers, exposed)
    }

    /// Returns problems of the lists of the server with this alias, to show to a person: definitions that were
    /// repaired, left out, or in conflict.
    #[must_use]
    pub(crate) fn problems(&self, alias: &ServerName) -> Vec<String> {
        let Some(position) = self.servers.position(alias.as_str()) else { return Vec::new() };
        let mut problems = Problems::default();
        self.lists.iter().for_each(|list| list.problems(position, &mut problems));
        let offer = self.servers.all().get(position).map(|part| &part.from.offer);
        let own = offer.into_iter().flat_map(|offer| offer.problems()).map(str::to_owned);
        own.chain(problems.into_texts()).collect()
    }

    /// Returns the index of the server with this alias.
    #[cfg(test)]
    pub(crate) fn server(&self, alias: &str) -> Option<usize> {
        self.servers.by_alias(alias).map(|part| part.server())
    }

    /// Returns the alias of the server with this index.
    #[cfg(test)]
    pub(super) fn alias(&self, server: usize) -> Option<ServerName> {
        let mut parts = self.servers.all().iter();
        parts.find(|part| part.server() == server).map(|part| part.from.alias.clone())
    }

    /// Returns the server whose alias a name starts with, whether or not the server has such a tool or prompt.
    #[must_use]
    pub(crate) fn bearer(&self, name: &str) -> Option<&ServerName> {
        self.servers.bearer(name)
    }

    /// Resolves the name of a tool: it is an exposed name; or a raw name that only one server has; or else it goes to
    /// the only server whose names are never prefixed, which may have unlisted tools.
    #[must_use]
    pub(crate) fn tool(&self, name: &str) -> Resolution {
        self.named(Kind::Tools, name)
    }

    /// Resolves the name of a prompt by the same rules as [`Catalog::tool`].
    #[must_use]
    pub(crate) fn prompt(&self, name: &str) -> Resolution {
        self.named(Kind::Prompts, name)
    }

    /// Resolves a URI, by the first rule that applies: it is listed; it starts with an alias; one server lists its raw
    /// form; the templates of one server match, those shown in raw form first; a tool links to it; only one server has
    /// resources. It never goes to several servers: a URI can be a secret.
    #[must_use]
    pub(crate) fn resource(&self, uri: &str) -> Resolution {
        let found = self.resource_anywhere(uri);
        match (&found, &self.lens) {
            (Resolution::Found(target), Some(lens)) if !self.shows(lens, target) => Resolution::Unknown,
            _ => found,
        }
    }

    /// Reports whether the view shows a resource of a server, listed or not.
    #[must_use]
    pub(crate) fn shows_resource(&self, target: &Target) -> bool {
        self.lens.as_ref().is_none_or(|lens| self.shows(lens, target))
    }

    fn resource_anywhere(&self, uri: &str) -> Resolution {
        if let Some(entry) = self.entry(Kind::Resources, uri) {
            return found(entry);
        }
        let raw = || self.held(Kind::Resources, uri, |_| true);
        let prefixed = raw_uri(uri);
        // `git+ssh:` is a scheme. Any other first part that is an alias belongs to that server, even if another lists
        // the URI.
        if prefixed.as_ref().is_some_and(|(head, _)| SCHEME_HEADS.contains(head))
            && let Some(resolution) = raw()
        {
            return resolution;
        }
        if let Some((alias, stripped)) = prefixed
            && let Some(part) = self.servers.by_alias(alias).filter(|part| part.origin.mode == UriMode::Prefix)
        {
            return Resolution::Found(part.target(stripped.into()));
        }
        // The alias is that of a server behind another mcp-host, which knows the URI in this form.
        if let Some(host) = uri_head(uri).and_then(|alias| self.servers.reserved_by(alias)) {
            return Resolution::Found(host.target(uri.into()));
        }
        if let Some(resolution) = raw() {
            return resolution;
        }
        let templates = self.each(Kind::ResourceTemplates);
        let matching: Vec<&Entry> = templates.filter(|entry| covers(entry.raw_name(), uri)).collect();
        // Clients know such a URI from a template that is shown in raw form, even if another server's raw template
        // covers it.
        let as_shown = matching.iter().filter(|entry| entry.exposed() == entry.raw());
        let mut holders: Vec<usize> = as_shown.map(|entry| entry.origin().server).collect();
        if holders.is_empty() {
            holders.extend(matching.iter().map(|entry| entry.origin().server));
        }
        if !holders.is_empty() {
            return self.to_one(|part| holders.contains(&part.server()), uri);
        }
        // An unlisted URI may be linked from a tool: user interfaces are usually not listed.
        let linking = self.linking(uri);
        if !linking.is_empty() {
            return self.to_one(|part| linking.contains(&part.server()), uri);
        }
        self.to_one(Part::is_capable, uri)
    }

    /// Returns the servers whose tools link to this user interface.
    fn linking(&self, uri: &str) -> Vec<usize> {
        if !uri.get(..3).is_some_and(|scheme| scheme.eq_ignore_ascii_case("ui:")) {
            return Vec::new();
        }
        let linking = self.each(Kind::Tools).filter(|entry| entry.links_to(uri));
        linking.map(|entry| entry.origin().server).collect()
    }

    /// Resolves a URI template from a completion request.
    #[must_use]
    pub(crate) fn template(&self, template: &str) -> Resolution {
        self.entry(Kind::ResourceTemplates, template).map_or_else(|| self.resource(template), found)
    }

    fn named(&self, kind: Kind, name: &str) -> Resolution {
        if let Some(entry) = self.entry(kind, name) {
            return found(entry);
        }
        // MCP Apps pages call tools by raw name; such a name must never lead to another server.
        let (bearer, owner) = (self.bearer(name), self.owners.of(kind, name));
        let host = self.servers.reserver(name).map(|host| &host.from.alias).filter(|_| owner.is_none());
        let is_free = |alias: &ServerName| [bearer, owner, host].into_iter().flatten().all(|other| other == alias);
        if let Some(resolution) = self.held(kind, name, |entry| is_free(entry.server())) {
            return resolution;
        }
        let mut bare = self.servers.all().iter().filter(|part| part.from.settings.prefix == Prefix::Never);
        let (Some(part), None) = (bare.next(), bare.next()) else { return Resolution::Unknown };
        let admitted = kind != Kind::Tools || part.from.settings.admits(name);
        let admitted = admitted && self.lens.as_ref().is_none_or(|lens| lens.admits_unlisted(part.server(), name));
        if admitted && is_free(&part.from.alias) {
            return Resolution::Found(part.target(name.into()));
        }
        Resolution::Unknown
    }

    /// Returns the index of each server, and the hash of its offer.
    pub(crate) fn offers(&self) -> impl Iterator<Item = (usize, u128)> {
        self.servers.all().iter().map(|part| (part.server(), part.offer()))
    }

    /// Returns the rules that requests of this kind are judged by; `None` if they all pass.
    pub(crate) fn judged(&self, action: Action, subject: &Subject<'_>) -> Option<Ruled> {
        self.lens.as_ref()?.judged(action, subject)
    }

    /// Returns what a view shows of this catalog.
    #[must_use]
    pub(crate) fn through(&self, lens: &Arc<Lens>) -> Self {
        let lists = Kind::ALL.map(|kind| {
            let whole = self.list(kind);
            let mut list = whole.fresh();
            for (part, piece) in self.servers.all().iter().zip(whole.pieces()) {
                list.push(part, lens.piece(kind, part.server(), piece));
            }
            list.finish()
        });
        let (servers, owners, lens) = (self.servers.clone(), self.owners.clone(), Some(Arc::clone(lens)));
        Self { lists, servers, owners, lens, index: OnceLock::new() }
    }

    /// Returns the same catalog, with each server's tools replaced by what `edit` returns, and mcp-host's own tools
    /// added.
    pub(super) fn with_tools(
        &self,
        own: impl IntoIterator<Item = Arc<Piece>>,
        edit: impl Fn(&Arc<Piece>) -> Arc<Piece>,
    ) -> Self {
        let whole = self.list(Kind::Tools);
        let mut tools = whole.fresh();
        let parts = self.servers.all();
        for (part, piece) in parts.iter().zip(whole.pieces()) {
            tools.push(part, edit(piece));
        }
        let before = whole.pieces().iter().skip(parts.len()).map(&edit);
        before.chain(own).for_each(|own| tools.push_own(own));
        let mut lists = self.lists.clone();
        lists[Kind::Tools as usize] = tools.finish();
        Self { lists, index: OnceLock::new(), ..self.clone() }
    }

    /// Returns the index of the tools, if it was built already.
    pub(crate) fn index_now(&self) -> Option<Arc<Index>> {
        self.index.get().cloned()
    }

    /// Returns the index of the tools. Building it takes milliseconds, so this must not run on a thread that others wait
    /// on. The section of each server is kept, so after a change of one server only that server's tools are read again.
    pub(crate) fn index(&self) -> Arc<Index> {
        let made = self.index.get_or_init(|| {
            let mut reader = Reader::default();
            let pieces = self.list(Kind::Tools).pieces().iter().filter(|piece| !piece.entries.is_empty());
            Arc::new(Index::of(pieces.map(|piece| (&*piece.entries, piece.section(&mut reader)))))
        });
        Arc::clone(made)
    }

    /// Reports whether the view shows the resource that a URI leads to: the view shows the resource, a template that
    /// matches the URI, or a tool that links to it.
    fn shows(&self, lens: &Lens, target: &Target) -> bool {
        let exposed = exposed_uri(&target.alias, &target.name, target.uris);
        if lens.hides_resource(&target.alias, &exposed, &target.name) {
            return false;
        }
        let is_its = |entry: &&Entry| entry.origin().server == target.server;
        lens.admits_resource(target.server, &exposed, &target.name)
            || self.each(Kind::ResourceTemplates).filter(is_its).any(|entry| covers(entry.raw_name(), &target.name))
            || self.each(Kind::Tools).filter(is_its).any(|entry| entry.links_to_raw(&target.name))
    }

    fn list(&self, kind: Kind) -> &Listing {
        &self.lists[kind as usize]
    }

    /// Resolves a server's own name that is not an exposed name; `None` if no server has it.
    fn held(&self, kind: Kind, raw: &str, is_free: impl Fn(&Entry) -> bool) -> Option<Resolution> {
        let mut holders = self.list(kind).raw(raw).filter(|entry| is_free(entry));
        let first = holders.next()?;
        let Some(second) = holders.next() else { return Some(found(first)) };
        let all = [first, second].into_iter().chain(holders);
        Some(Resolution::Ambiguous(all.map(|entry| Arc::clone(entry.exposed())).collect()))
    }

    fn to_one(&self, may: impl Fn(&Part) -> bool, uri: &str) -> Resolution {
        let mut parts = self.servers.all().iter().filter(|part| may(part));
        match (parts.next(), parts.next()) {
            (Some(part), None) => Resolution::Found(part.target(uri.into())),
            _ => Resolution::Unknown,
        }
    }

    /// Makes a catalog of finished lists.
    pub(super) fn of(servers: Servers, lists: [Listing; 4], owners: Owners) -> Self {
        Self { lists, servers, owners, lens: None, index: OnceLock::new() }
    }
}

fn found(entry: &Entry) -> Resolution {
    let origin = entry.origin();
    let (alias, name) = (origin.alias.clone(), Arc::clone(entry.raw()));
    Resolution::Found(Target { server: origin.server, alias, name, uris: origin.mode })
}

/// Reports whether a URI may match a URI template: its literal parts occur in order, with anything for the expressions.
fn covers(template: &str, uri: &str) -> bool {
    let Some((first, mut template)) = template.split_once('{') else { return template == uri };
    let Some(mut uri) = uri.strip_prefix(first) else { return false };
    loop {
        let Some((_, literal)) = template.split_once('}') else { return false };
        let Some((literal, next)) = literal.split_once('{') else { return uri.ends_with(literal) };
        // The first match leaves the most room for the rest.
        let Some(at) = uri.find(literal) else { return false };
        uri = &uri[at + literal.len()..];
        template = next;
    }
}
