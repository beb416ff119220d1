//! All offers combined: the lists that clients see, and which server each name or URI leads to.
//!
//! A catalog is built in `build.rs` and never changed afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use super::filter::ServerNaming;
use super::listing::{Entry, Holder, Listing, read_cursor};
use super::rewrite::links;
use super::{Contribution, Kind, Problems};
use crate::config::Prefix;
use crate::exposed::{Naming, SCHEME_HEADS, UriMode, raw_uri};
use crate::name::{ALIAS, ServerName};
use crate::protocol::raw::string;
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
    servers: Vec<Server>,
    /// Positions in `servers`, by alias.
    aliases: HashMap<Box<str>, usize>,
    naming: Naming,
}

/// What the catalog knows about one server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    server: usize,
    alias: ServerName,
    settings: Arc<ServerNaming>,
    /// How its URIs are shown.
    pub(super) mode: UriMode,
    /// Whether it offers any resources.
    capable: bool,
    problems: Vec<String>,
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
    #[error("no cursor of this list")]
    Foreign,
}

impl Server {
    pub(super) fn new(from: &Contribution, naming: &Naming) -> Self {
        let is_bare = from.settings.prefix == Prefix::Never;
        Self {
            server: from.server,
            alias: from.alias.clone(),
            settings: Arc::clone(&from.settings),
            mode: if is_bare { UriMode::Passthrough } else { naming.resources },
            capable: from.offer.has(Kind::Resources) || from.offer.has(Kind::ResourceTemplates),
            problems: from.offer.problems().map(str::to_owned).collect(),
        }
    }

    fn target(&self, name: Arc<str>) -> Target {
        Target { server: self.server, alias: self.alias.clone(), name, uris: self.mode }
    }
}

impl Catalog {
    /// Returns the result of a list request from a client of this revision: the first page, or the page at `cursor`.
    /// The bytes are prepared: a call copies nothing.
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
        list.pages(kind, revision).get(page).cloned().ok_or(BadCursor::Foreign)
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
        &self.list(kind).entries
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
        self.list(kind).exposed(exposed)
    }

    /// Returns problems of a server's lists to show to a person: definitions that were repaired, left out, or in
    /// conflict.
    #[must_use]
    pub(crate) fn problems(&self, server: usize) -> &[String] {
        self.servers.iter().find(|found| found.server == server).map(|found| &*found.problems).unwrap_or_default()
    }

    /// Returns the index of the server with this alias.
    #[cfg(test)]
    pub(crate) fn server(&self, alias: &str) -> Option<usize> {
        self.by_alias(alias).map(|server| server.server)
    }

    /// Returns the server whose alias a name starts with, whether or not the server has such a tool or prompt.
    #[must_use]
    pub(crate) fn bearer(&self, name: &str) -> Option<&ServerName> {
        let heads = name.match_indices(&*self.naming.separator).map(|(at, _)| &name[..at]);
        // A name may be megabytes of separators.
        heads.take_while(|head| head.len() <= ALIAS).find_map(|head| self.by_alias(head)).map(|server| &server.alias)
    }

    /// Resolves the name of a tool: it is an exposed name; or a raw name that only one server has; or else it goes to
    /// the only server whose names are never prefixed, which may have unlisted tools.
    #[must_use]
    pub(crate) fn tool(&self, name: &str) -> Resolution {
        self.named(Kind::Tools, name)
    }

    /// Resolves the name of a prompt in the same way.
    #[must_use]
    pub(crate) fn prompt(&self, name: &str) -> Resolution {
        self.named(Kind::Prompts, name)
    }

    /// Resolves a URI, by the first rule that applies: it is listed; it starts with an alias; one server lists its raw
    /// form; the templates of one server match, those shown in raw form first; a tool links to it; only one server has
    /// resources. It never goes to several servers: a URI can be a secret.
    #[must_use]
    pub(crate) fn resource(&self, uri: &str) -> Resolution {
        let list = self.list(Kind::Resources);
        if let Some(entry) = list.exposed(uri) {
            return self.found(entry);
        }
        let raw = || list.raw(uri).map(|holder| self.held(Kind::Resources, uri, holder));
        let prefixed = raw_uri(uri);
        // `git+ssh:` is a scheme. Any other first part that is an alias belongs to that server, even if another lists
        // the URI.
        if prefixed.as_ref().is_some_and(|(head, _)| SCHEME_HEADS.contains(head))
            && let Some(resolution) = raw()
        {
            return resolution;
        }
        if let Some((alias, stripped)) = prefixed
            && let Some(server) = self.by_alias(alias).filter(|server| server.mode == UriMode::Prefix)
        {
            return Resolution::Found(server.target(stripped.into()));
        }
        if let Some(resolution) = raw() {
            return resolution;
        }
        let templates = self.list(Kind::ResourceTemplates).entries.iter();
        let matching: Vec<&Entry> = templates.filter(|entry| covers(&entry.raw, uri)).collect();
        // Clients know such a URI from a template that is shown in raw form, even if another server's raw template
        // covers it.
        let as_shown = matching.iter().filter(|entry| entry.exposed == entry.raw).map(|entry| entry.server);
        let mut holders: Vec<usize> = as_shown.collect();
        if holders.is_empty() {
            holders.extend(matching.iter().map(|entry| entry.server));
        }
        if !holders.is_empty() {
            return self.to_one(self.servers.iter().filter(|found| holders.contains(&found.server)), uri);
        }
        // An unlisted URI may be linked from a tool: user interfaces are usually not listed.
        let linking = self.linking(uri);
        if !linking.is_empty() {
            return self.to_one(self.servers.iter().filter(|found| linking.contains(&found.server)), uri);
        }
        self.to_one(self.servers.iter().filter(|server| server.capable), uri)
    }

    /// Returns the servers whose tools link to this user interface.
    fn linking(&self, uri: &str) -> Vec<usize> {
        if !uri.get(..3).is_some_and(|scheme| scheme.eq_ignore_ascii_case("ui:")) {
            return Vec::new();
        }
        let links_to = |entry: &&Entry| {
            let definition = entry.definition();
            memchr::memmem::find(definition.as_bytes(), b"esourceUri").is_some()
                && definition
                    .value_of("_meta")
                    .is_some_and(|meta| links(meta).into_iter().filter_map(string).any(|link| link == uri))
        };
        self.tools().iter().filter(links_to).map(|entry| entry.server).collect()
    }

    /// Resolves a URI template from a completion request.
    #[must_use]
    pub(crate) fn template(&self, template: &str) -> Resolution {
        match self.list(Kind::ResourceTemplates).exposed(template) {
            Some(entry) => self.found(entry),
            None => self.resource(template),
        }
    }

    fn named(&self, kind: Kind, name: &str) -> Resolution {
        let list = self.list(kind);
        if let Some(entry) = list.exposed(name) {
            return self.found(entry);
        }
        if let Some(holder) = list.raw(name) {
            return self.held(kind, name, holder);
        }
        let mut bare = self.servers.iter().filter(|server| server.settings.prefix == Prefix::Never);
        let (Some(server), None) = (bare.next(), bare.next()) else { return Resolution::Unknown };
        let is_free = |owner: Option<&ServerName>| owner.is_none_or(|owner| *owner == server.alias);
        let admitted = kind != Kind::Tools || server.settings.admits(name);
        if admitted && is_free(self.bearer(name)) && is_free(list.reserved.get(name)) {
            return Resolution::Found(server.target(name.into()));
        }
        Resolution::Unknown
    }

    fn list(&self, kind: Kind) -> &Listing {
        &self.lists[kind as usize]
    }

    fn held(&self, kind: Kind, raw: &str, holder: Holder) -> Resolution {
        let list = self.list(kind);
        match holder {
            Holder::One(index) => list.at(index).map_or(Resolution::Unknown, |entry| self.found(entry)),
            Holder::Many => {
                let holders = list.entries.iter().filter(|entry| &*entry.raw == raw);
                Resolution::Ambiguous(holders.map(|entry| Arc::clone(&entry.exposed)).collect())
            }
        }
    }

    fn found(&self, entry: &Entry) -> Resolution {
        let server = self.by_alias(entry.alias.as_str());
        server.map_or(Resolution::Unknown, |server| Resolution::Found(server.target(Arc::clone(&entry.raw))))
    }

    fn by_alias(&self, alias: &str) -> Option<&Server> {
        self.aliases.get(alias).and_then(|position| self.servers.get(*position))
    }

    fn to_one<'a>(&self, mut servers: impl Iterator<Item = &'a Server>, uri: &str) -> Resolution {
        match (servers.next(), servers.next()) {
            (Some(server), None) => Resolution::Found(server.target(uri.into())),
            _ => Resolution::Unknown,
        }
    }
}

/// Methods for `build.rs`.
impl Catalog {
    pub(super) fn empty(servers: Vec<Server>, naming: Naming) -> Self {
        let by_alias = |(position, server): (usize, &Server)| (server.alias.as_str().into(), position);
        let aliases = servers.iter().enumerate().map(by_alias).collect();
        Self { lists: Default::default(), servers, aliases, naming }
    }

    pub(super) fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub(super) fn add_problems(&mut self, problems: Vec<Problems>) {
        for (server, problems) in self.servers.iter_mut().zip(problems) {
            server.problems.extend(problems.into_texts());
        }
    }

    pub(super) fn put(&mut self, kind: Kind, listing: Listing) {
        self.lists[kind as usize] = listing;
    }
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
