//! Decides which definitions of a server are shown, and under which names.
//!
//! For a server by itself this is decided once. In a catalog, other servers can interfere: a name is taken by one of
//! them, or starts with its alias, or a definition came from it through this mcp-host.

use std::borrow::Cow;
use std::sync::Arc;

use super::circle::{closes, head};
use super::entry::{Entry, Named};
use super::heads::{heads, is_alias, uri_head};
use super::listing::Listing;
use super::offer::Definition;
use super::part::Part;
use super::piece::{Piece, Settled};
use super::servers::Servers;
use super::{Kind, Owners, quoted};
use crate::config::Prefix;
use crate::exposed::{bare_name, exposed_name, exposed_uri, one_copy};
use crate::name::ServerName;

/// Why a definition that came through us is not shown.
const CIRCLE: &str = "it comes from this host";

/// What surrounds a server in a catalog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) servers: &'a Servers,
    pub(super) owners: &'a Owners,
    /// What the servers before it show.
    pub(super) list: &'a Listing,
}

/// Decides which definitions of a server are shown in a list.
pub(super) fn settle(part: &Part, kind: Kind, around: Option<Around<'_>>) -> Settled {
    let mut settling = Settling { part, kind, around, settled: Settled::default() };
    for (at, definition) in (0..).zip(&part.list(kind).definitions) {
        if kind != Kind::Tools || part.from.settings.admits(&definition.name) {
            settling.take(at, definition);
        }
    }
    settling.settled
}

/// Reports whether a server shows in this catalog exactly what it shows by itself.
pub(super) fn is_as_alone(part: &Part, kind: Kind, alone: &Piece, around: Around<'_>) -> bool {
    let is_of_another = |head: &str| {
        let reserver = around.servers.reserved_by(head);
        around.servers.position(head).is_some() || reserver.is_some_and(|other| other.server() != part.server())
    };
    if alone.heads.iter().any(|head| is_of_another(head)) {
        return false;
    }
    let is_its = |entry: &Entry| {
        let owner = entry.is_bare().then(|| around.owners.of(kind, entry.name())).flatten();
        owner.is_none_or(|owner| *owner == part.from.alias)
            && around.list.exposed(around.servers, entry.name()).is_none()
    };
    part.is_apart(kind) || alone.entries.iter().all(is_its)
}

struct Settling<'a> {
    part: &'a Part,
    kind: Kind,
    around: Option<Around<'a>>,
    settled: Settled,
}

impl Settling<'_> {
    fn take(&mut self, at: u32, definition: &Definition) {
        let Self { part, kind, around, .. } = *self;
        let raw = &definition.name;
        self.note_heads(raw);
        if around.is_some_and(|around| closes(kind, around.servers, part, definition)) {
            return self.leave_out(raw, CIRCLE);
        }
        let named = if kind.has_names() { self.name(raw) } else { self.uri(raw) };
        match named {
            Ok((exposed, is_bare)) => {
                let settled = &mut self.settled;
                let next = u32::try_from(settled.shown.len()).unwrap_or(u32::MAX);
                settled.exposed.insert(Arc::clone(&exposed), next);
                settled.shown.push(Named { at, exposed, is_bare });
            }
            Err(reason) if kind.has_names() => self.leave_out(raw, &reason),
            // This reason names the URI that clients would see.
            Err(reason) => self.settled.problems.add(|| reason),
        }
    }

    fn leave_out(&mut self, raw: &str, reason: &str) {
        let word = self.kind.word();
        self.settled.problems.add(|| format!("{word} {} left out: {reason}", quoted(raw)));
    }

    /// Returns the name of a tool or prompt, and whether it has no prefix; or why it has no name.
    fn name(&mut self, raw: &Arc<str>) -> Result<(Arc<str>, bool), String> {
        let (part, kind) = (self.part, self.kind);
        let (from, naming) = (&part.from, &part.naming);
        let rest = if kind == Kind::Tools { from.settings.renamed(raw) } else { raw };
        if from.settings.prefix.may_stay() {
            let bare = one_copy(&bare_name(&from.alias, rest, naming), raw);
            self.note_heads(&bare);
            // A name that starts with a server's alias is that server's, whether or not it has such a tool. One that
            // starts with an alias behind another mcp-host is that one's, unless another server showed it before.
            let bearer = self.around.and_then(|Around { servers, owners, .. }| {
                let of_host = || servers.reserver(&bare).map(|host| &host.from.alias);
                let owner = servers.bearer(&bare).or_else(|| owners.of(kind, &bare)).or_else(of_host);
                owner.filter(|owner| **owner != from.alias)
            });
            match bearer.or_else(|| Some(self.holder(&bare)?.0)) {
                None => return Ok((bare, true)),
                Some(owner) if !from.settings.prefix.may_prefix() => {
                    return Err(format!("the name {bare} belongs to {owner}"));
                }
                Some(_) => {}
            }
        }
        let full: Arc<str> = exposed_name(&from.alias, rest, naming).into();
        match self.holder(&full) {
            Some((owner, raw)) => Err(format!("{} of {owner} has the name {full}", quoted(raw))),
            None => Ok((full, false)),
        }
    }

    fn uri(&self, raw: &Arc<str>) -> Result<(Arc<str>, bool), String> {
        let exposed: Arc<str> = match exposed_uri(&self.part.from.alias, raw, self.part.origin.mode) {
            Cow::Borrowed(_) => Arc::clone(raw),
            Cow::Owned(exposed) => exposed.into(),
        };
        // URIs of a server that is an mcp-host get no prefix, so they can start with the alias of another server.
        let other =
            |head: &str| self.around?.servers.by_alias(head).filter(|other| other.from.alias != self.part.from.alias);
        if self.part.from.settings.prefix == Prefix::Inner
            && let Some(other) = uri_head(raw).and_then(other)
        {
            let owner = &other.from.alias;
            return Err(format!("{} {} left out: it belongs to {owner}", self.kind.word(), quoted(raw)));
        }
        match self.holder(&exposed) {
            Some((owner, _)) => {
                Err(format!("{} {} left out: {owner} lists it, too", self.kind.word(), quoted(&exposed)))
            }
            None => Ok((exposed, false)),
        }
    }

    /// Returns the server that already shows a definition under this name, and the server's own name for it.
    fn holder(&self, name: &str) -> Option<(&ServerName, &str)> {
        let own = match self.settled.exposed.get(name) {
            Some(index) => self.settled.shown.get(*index as usize),
            None => None,
        };
        let list = self.part.list(self.kind);
        if let Some(definition) = own.and_then(|own| list.definitions.get(own.at as usize)) {
            return Some((&self.part.from.alias, &*definition.name));
        }
        let around = self.around?;
        let entry = around.list.exposed(around.servers, name)?;
        Some((entry.server(), entry.raw_name()))
    }

    /// Notes each text at the front of a name that may be an alias. In a catalog these are known already.
    fn note_heads(&mut self, name: &str) {
        if self.around.is_some() {
            return;
        }
        let note = |head: &str| {
            if is_alias(head) && !self.settled.heads.contains(head) {
                self.settled.heads.insert(head.into());
            }
        };
        if self.kind.has_names() {
            heads(name, &self.part.naming).for_each(note);
        } else {
            head(name).into_iter().chain(uri_head(name)).for_each(note);
        }
    }
}
