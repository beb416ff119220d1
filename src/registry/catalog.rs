//! All offers under one roof: what clients list, and where a name or URI of theirs leads.
//!
//! Made in `build.rs`, never changed after.

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
    /// Positions in `servers`.
    aliases: HashMap<Box<str>, usize>,
    naming: Naming,
}

/// What the catalog keeps of one server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    server: usize,
    alias: ServerName,
    settings: Arc<ServerNaming>,
    /// How its URIs are shown.
    pub(super) mode: UriMode,
    /// Whether it has resources at all.
    capable: bool,
    problems: Vec<String>,
}

/// Where a name or URI leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The index of the server, from its [`Contribution`].
    pub(crate) server: usize,
    /// Its alias.
    pub(crate) alias: ServerName,
    /// What the server itself calls it.
    pub(crate) name: Arc<str>,
    /// How the URIs in its answer are to be shown.
    pub(crate) uris: UriMode,
}

/// What became of a name or URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// It is one server's.
    Found(Target),
    /// More than one server could be meant; the names that tell them apart, if there are any.
    Ambiguous(Vec<Arc<str>>),
    /// It is nobody's.
    Unknown,
}

impl Resolution {
    /// The target, if there is one.
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
    /// It belongs to another state of the list: an older catalog may still have the page.
    #[error("the list has changed since that cursor was given; list again from the start")]
    Stale,
    /// We gave no such cursor.
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
    /// The result of a list request of a client of that revision: the first page, or the one behind `cursor`. The bytes are
    /// ready: a call copies nothing.
    ///
    /// # Errors
    /// When `cursor` is none of this catalog.
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

    /// Whether the list has more pages than one.
    #[must_use]
    pub(crate) fn is_paged(&self, kind: Kind) -> bool {
        self.list(kind).is_paged()
    }

    /// Stands for the content of a list: it changes exactly when clients would see another list.
    #[must_use]
    pub(crate) fn hash(&self, kind: Kind) -> u128 {
        self.list(kind).hash
    }

    /// Everything in a list, in order.
    #[must_use]
    pub fn entries(&self, kind: Kind) -> &[Entry] {
        &self.list(kind).entries
    }

    /// The tools, in order.
    #[must_use]
    pub fn tools(&self) -> &[Entry] {
        self.entries(Kind::Tools)
    }

    /// The prompts, in order.
    #[must_use]
    pub fn prompts(&self) -> &[Entry] {
        self.entries(Kind::Prompts)
    }

    /// The resources, in order.
    #[must_use]
    pub fn resources(&self) -> &[Entry] {
        self.entries(Kind::Resources)
    }

    /// The resource templates, in order.
    #[must_use]
    pub fn resource_templates(&self) -> &[Entry] {
        self.entries(Kind::ResourceTemplates)
    }

    /// The entry that clients know by that name, URI or URI template.
    #[must_use]
    pub fn entry(&self, kind: Kind, exposed: &str) -> Option<&Entry> {
        self.list(kind).exposed(exposed)
    }

    /// What a person should know about a server's lists: mended, left out, clashing.
    #[must_use]
    pub(crate) fn problems(&self, server: usize) -> &[String] {
        self.servers.iter().find(|found| found.server == server).map(|found| &*found.problems).unwrap_or_default()
    }

    /// The index of the server with that alias.
    #[cfg(test)]
    pub(crate) fn server(&self, alias: &str) -> Option<usize> {
        self.by_alias(alias).map(|server| server.server)
    }

    /// The server whose alias stands in front of a name, whether it has such a tool or prompt or not.
    #[must_use]
    pub(crate) fn bearer(&self, name: &str) -> Option<&ServerName> {
        let heads = name.match_indices(&*self.naming.separator).map(|(at, _)| &name[..at]);
        // A name may be megabytes of separators.
        heads.take_while(|head| head.len() <= ALIAS).find_map(|head| self.by_alias(head)).map(|server| &server.alias)
    }

    /// Where the name of a tool leads: by its exposed name; by its raw name, if one server has that; to the one server that
    /// is never prefixed, which may have tools that it does not list.
    #[must_use]
    pub(crate) fn tool(&self, name: &str) -> Resolution {
        self.named(Kind::Tools, name)
    }

    /// Where the name of a prompt leads, as with tools.
    #[must_use]
    pub(crate) fn prompt(&self, name: &str) -> Resolution {
        self.named(Kind::Prompts, name)
    }

    /// Where a URI leads: listed as such; with an alias in front; listed by one server under its raw form; matched by the
    /// templates of one server, first by those that are shown in their raw form; linked from a tool; to the one server that has resources.
    /// Never to several: a URI can be a secret.
    #[must_use]
    pub(crate) fn resource(&self, uri: &str) -> Resolution {
        let list = self.list(Kind::Resources);
        if let Some(entry) = list.exposed(uri) {
            return self.found(entry);
        }
        let raw = || list.raw(uri).map(|holder| self.held(Kind::Resources, uri, holder));
        let prefixed = raw_uri(uri);
        // `git+ssh:` is a scheme. Any other first part that is an alias is that server's, whoever lists such a URI.
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
        // Clients know such a URI as that of a template that is shown as it is, whatever another server's raw one covers.
        let as_shown = matching.iter().filter(|entry| entry.exposed == entry.raw).map(|entry| entry.server);
        let mut holders: Vec<usize> = as_shown.collect();
        if holders.is_empty() {
            holders.extend(matching.iter().map(|entry| entry.server));
        }
        if !holders.is_empty() {
            return self.to_one(self.servers.iter().filter(|found| holders.contains(&found.server)), uri);
        }
        // What no list shows may be linked from a tool: user interfaces are not listed as a rule.
        let linking = self.linking(uri);
        if !linking.is_empty() {
            return self.to_one(self.servers.iter().filter(|found| linking.contains(&found.server)), uri);
        }
        self.to_one(self.servers.iter().filter(|server| server.capable), uri)
    }

    /// The servers whose tools are shown with a link to that user interface.
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

    /// Where a URI template (of a completion request) leads.
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

/// What `build.rs` needs.
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

/// Whether a URI can come of a URI template: the literal parts in order, and anything for the expressions.
fn covers(template: &str, uri: &str) -> bool {
    let Some((first, mut template)) = template.split_once('{') else { return template == uri };
    let Some(mut uri) = uri.strip_prefix(first) else { return false };
    loop {
        let Some((_, literal)) = template.split_once('}') else { return false };
        let Some((literal, next)) = literal.split_once('{') else { return uri.ends_with(literal) };
        // The first place is as good as any later one for what comes after.
        let Some(at) = uri.find(literal) else { return false };
        uri = &uri[at + literal.len()..];
        template = next;
    }
}
